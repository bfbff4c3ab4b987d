"""What a peer records, and where it goes: alone with a clock, and in rings of real processes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest

from ringmq.experiments.processes.ports import choose_ports
from ringmq.logger.config import RecordConfig
from ringmq.logger.records import Delivery, Latencies, Record, Sample, Traffic, decode
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.telemetry.recording import FLUSH_S, MAX_UNACKNOWLEDGED, Recording, RecordingError
from tests.peer.rings import LATEST_S, Client, Eventually, Ring, Start

PEER = "0" * 31 + "7"


def without_gaps(records: list[Record]) -> bool:
    """From the first on that there is of each peer."""
    numbers = defaultdict(list)
    for one in records:
        numbers[one.peer].append(one.number)
    return all(sorted(found) == list(range(min(found), min(found) + len(found))) for found in numbers.values())


def test_a_ring_records_all_of_a_small_load(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 3, "--run", "r", "--record-every", "1")
    log = Client(ring.mqtt[2], "log", "ringmq/log/#")
    receivers = [Client(address, f"s{number}", "t/#") for number, address in enumerate(ring.mqtt)]
    more = Client(ring.mqtt[1], "more", "t/1")
    publisher = Client(ring.mqtt[0], "p")
    for number in range(40):
        publisher.publish(f"t/{number % 2}", b"x" * number, number // 2 % 2)
    eventually(lambda: all(len(one.read()) == 40 for one in receivers) and len(more.read()) == 20, LATEST_S)
    eventually(lambda: publisher.read() or publisher.acknowledged == 20, LATEST_S)
    deliveries = eventually(lambda: (got := log.deliveries()) and len(got) >= 120 and got, LATEST_S)
    assert len(deliveries) == 120
    ways = Counter((one.sequence, one.peer) for one in deliveries)
    assert set(ways.values()) == {1}
    assert len({one.sequence for one in deliveries}) == 40
    origin = ring.ids[0]
    for one in deliveries:
        at_origin = one.peer == origin
        number = one.bytes
        assert (one.run, one.origin, one.sender, one.dispatching) == ("r", origin, origin, "direct")
        assert (one.hops, one.sends) == ((0, 2) if at_origin else (1, 0))
        assert one.topic == f"t/{number % 2}"
        assert one.clients == (2 if one.peer == ring.ids[1] and number % 2 else 1)
        assert one.received_ns >= one.sent_ns > 0
        assert (one.received_ns == one.sent_ns) is at_origin
        assert not one.duplicate
    _compare_with_status(ring, log, eventually)
    assert without_gaps(log.records())
    assert {topic for topic, _ in log.came} == {f"ringmq/log/{peer}" for peer in ring.ids}


def _compare_with_status(ring: Ring, log: Client, eventually: Eventually) -> None:
    """The sums are what the clients counted: 40 published; 140 delivered, and nothing of the log among them."""

    def settled() -> bool:
        mqtt = [one.mqtt for one in log.last_samples().values()]
        return (sum(one.messages_in for one in mqtt), sum(one.messages_out for one in mqtt)) == (40, 140)

    eventually(settled, LATEST_S)
    samples = log.last_samples()
    assert set(samples) == set(ring.ids)
    for told in ring.statuses():
        one, counted = samples[told["id"]], told["front"]["counters"]
        assert one.mqtt.messages_in == counted["publish_received"]
        assert one.mqtt.messages_out == counted["publish_sent"]
        assert one.address == told["address"]
        assert one.listeners == told["listeners"]
        assert one.pid == told["pid"]
        assert one.clients == told["front"]["clients"]
        assert one.subscriptions == told["front"]["subscriptions"]
        assert {link.peer for link in one.links} == set(ring.ids) - {one.peer}
        assert one.memory_bytes > 1 << 20
        assert one.cpu_s > 0
    assert [samples[peer].log.messages_out for peer in ring.ids[:2]] == [0, 0]
    eventually(lambda: log.last_samples()[ring.ids[2]].log.messages_out > 0, LATEST_S)
    assert [samples[peer].topics for peer in ring.ids] == [2, 0, 0]
    assert sum(one.overlay.messages_out for one in samples.values()) >= 80


def test_records_show_a_tree(start: Start, ringmq: Start, eventually: Eventually) -> None:
    options = ("--record-every", "1", "--dispatch", "guided", "--fanout", "1")
    ring = Ring(start, ringmq, eventually, 4, *options)
    log = Client(ring.mqtt[1], "log", "ringmq/log/#")
    receivers = [Client(address, f"s{number}", "t") for number, address in enumerate(ring.mqtt)]
    publisher = Client(ring.mqtt[0], "p")
    for number in range(10):
        publisher.publish("t", b"%d" % number, number % 2)
    eventually(lambda: all(len(one.read()) == 10 for one in receivers), LATEST_S)
    deliveries = eventually(lambda: (got := log.deliveries()) and len(got) >= 40 and got, LATEST_S)
    by_message = defaultdict(list)
    for one in deliveries:
        by_message[one.sequence].append(one)
    assert len(by_message) == 10
    for ways in by_message.values():
        assert sorted(one.hops for one in ways) == [0, 1, 2, 3]
        assert sorted(one.sends for one in ways) == [0, 1, 1, 1]
        path = sorted(ways, key=lambda one: one.hops)
        assert [one.sender for one in path] == [path[0].peer, *[one.peer for one in path[:3]]]
        assert {one.dispatching for one in ways} == {"guided"}
        assert {one.clients for one in ways} == {1}


def test_scribe_records_peers_that_only_forward(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 4, "--record-every", "1", "--dispatch", "scribe")
    log = Client(ring.mqtt[3], "log", "ringmq/log/#")
    points = [Id(int(one, 16)) for one in ring.ids]
    names = (f"t/{number}" for number in count())
    rooted = (name for name in names if min(points, key=partial(nearness, key_of_place(name))) == points[3])
    topics = list(islice(rooted, 8))
    receivers = [Client(ring.mqtt[number], f"s{number}", *topics) for number in (1, 2)]
    publisher = Client(ring.mqtt[0], "p")
    for number in range(16):
        publisher.publish(topics[number % 8], b"%d" % number, number // 8)
    eventually(lambda: all(len(one.read()) == 16 for one in receivers), LATEST_S)

    def reached() -> bool:
        return Counter(one.peer for one in log.deliveries() if one.clients) == {ring.ids[1]: 16, ring.ids[2]: 16}

    def complete() -> bool:
        deliveries = log.deliveries()
        return sum(one.sends for one in deliveries) == sum(one.hops > 0 for one in deliveries)

    eventually(reached, LATEST_S)
    eventually(lambda: sum(one.hops == 0 for one in log.deliveries()) == 16, LATEST_S)
    eventually(lambda: sum(one.peer == ring.ids[3] for one in log.deliveries()) >= 16, LATEST_S)
    eventually(complete, LATEST_S)
    deliveries = log.deliveries()
    assert {one.dispatching for one in deliveries} == {"scribe"}
    passing = [one for one in deliveries if one.sends and not one.clients and one.hops]
    assert {one.peer for one in passing} >= {ring.ids[3]}, "the root has no subscriber"
    for one in deliveries:
        assert (one.hops == 0) is (one.peer == one.sender == one.origin)


def test_message_is_recorded_at_all_peers_or_at_none(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 3, "--record-every", "3")
    log = Client(ring.mqtt[0], "log", "ringmq/log/#")
    receivers = [Client(address, f"s{number}", "t") for number, address in enumerate(ring.mqtt)]
    publisher = Client(ring.mqtt[1], "p")
    for number in range(90):
        publisher.publish("t", b"%d" % number)
    for one in receivers:
        eventually(lambda one=one: len(one.read()) == 90, LATEST_S)
        assert [payload for _, payload in one.came] == [b"%d" % number for number in range(90)]
    deliveries = eventually(lambda: (got := log.deliveries()) and len(got) >= 90 and got, LATEST_S)
    assert set(Counter(one.sequence for one in deliveries).values()) == {3}
    assert len(deliveries) == 90


def test_histograms_replace_deliveries(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 2, "--record-every", "1", "--record", "histogram")
    log = Client(ring.mqtt[0], "log", "ringmq/log/#")
    receiver = Client(ring.mqtt[1], "s", "t")
    publisher = Client(ring.mqtt[0], "p")
    for number in range(20):
        publisher.publish("t", b"%d" % number)
    eventually(lambda: len(receiver.read()) == 20, LATEST_S)

    def counted() -> int:
        return sum(one.count for one in log.records() if isinstance(one, Latencies) and one.hops == 1)

    eventually(lambda: counted() == 20, LATEST_S)
    assert log.deliveries() == []


def test_log_messages_of_clients_are_counted_separately(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 1, "--record-every", "1")
    other = Client(ring.mqtt[0], "other", "ringmq/log/x", qos=0)
    publisher = Client(ring.mqtt[0], "p")
    for qos in (0, 1):
        publisher.publish("ringmq/log/x", b"12345", qos)
    eventually(lambda: len(other.read()) == 2, LATEST_S)
    log = Client(ring.mqtt[0], "log", "ringmq/log/+")
    one = eventually(lambda: log.last_samples().get(ring.ids[0]), LATEST_S)
    assert (one.mqtt.messages_in, one.mqtt.messages_out) == (0, 0)
    assert (one.log.messages_in, one.log.bytes_in) == (2, 10)
    assert (one.log.messages_out, one.log.bytes_out) >= (2, 10)
    assert log.deliveries() == []
    shown = ringmq("status", "--peer", ring.overlay[0]).out
    assert "\nrecords     2 in (10 B), " in shown


def test_peer_without_clients_records(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 1)
    log = Client(ring.mqtt[0], "log", "ringmq/log/#")
    line = ("--overlay", "127.0.0.1:0", "--timing", "local", "--no-discovery", "--join", ring.overlay[0])
    other = start("peer", *line)
    other.says("active: ")
    eventually(lambda: len(log.last_samples()) == 2, LATEST_S)


def test_record_file_has_the_last_sample(start: Start, ringmq: Start, eventually: Eventually, tmp_path: Path) -> None:
    settings = tmp_path / "peer.toml"
    settings.write_text("[record]\nevery = 1\nmqtt = false\ninterval_s = 60\nfile = 'records.jsonl'\n")
    ring = Ring(start, ringmq, eventually, 1, "--config", str(settings))
    publisher = Client(ring.mqtt[0], "p")
    publisher.publish("t", b"x", 1)
    eventually(lambda: publisher.read() or publisher.acknowledged, LATEST_S)
    assert ring.processes[0].end() == 0
    written = next(tmp_path.rglob("records.jsonl")).read_bytes()
    records = [decode(line) for line in written.splitlines()]
    assert [type(one) for one in records] == [Delivery, Sample]
    assert isinstance(records[1], Sample)
    assert records[1].mqtt.messages_in == 1
    assert without_gaps(records)


def test_last_records_are_sent_before_the_peer_departs(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 2, "--record-every", "1")
    log = Client(ring.mqtt[0], "log", "ringmq/log/#")
    publisher = Client(ring.mqtt[1], "p")
    eventually(lambda: len(log.last_samples()) == 2, LATEST_S)
    publisher.publish("t", b"x", 1)
    eventually(lambda: publisher.read() or publisher.acknowledged, LATEST_S)
    assert ring.processes[1].end() == 0
    eventually(lambda: log.last_samples()[ring.ids[1]].mqtt.messages_in == 1, LATEST_S)
    assert [one.peer for one in log.deliveries()] == [ring.ids[1]]
    assert without_gaps([one for one in log.records() if one.peer == ring.ids[1]])


def test_prometheus_reads_a_peer(start: Start, ringmq: Start, eventually: Eventually, tmp_path: Path) -> None:
    port = choose_ports(0, 1)[0]
    settings = tmp_path / "peer.toml"
    settings.write_text(f"[record]\nmetrics = '127.0.0.1:{port}'\n")
    ring = Ring(start, ringmq, eventually, 1, "--config", str(settings))
    publisher = Client(ring.mqtt[0], "p")
    publisher.publish("t", b"x", 1)
    eventually(lambda: publisher.read() or publisher.acknowledged, LATEST_S)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['ringmq_mqtt_messages_total{direction="in"}'] == "1"
    assert values['ringmq_events_total{event="pubsub_published"}'] >= "1"
    assert all(float(value) >= 0 for value in values.values())
    again = start("peer", "--overlay", "127.0.0.1:0", "--no-discovery", "--config", str(settings))
    assert again.popen.wait(20) == 1
    complaint = [line for line in again.err.splitlines() if line.startswith("ringmq: ")]
    assert len(complaint) == 1
    assert str(port) in complaint[0]


def test_recording_can_be_switched_off(start: Start, ringmq: Start, eventually: Eventually) -> None:
    ring = Ring(start, ringmq, eventually, 1, "--record", "off")
    log = Client(ring.mqtt[0], "log", "ringmq/log/#", "t")
    log.publish("t", b"x")
    eventually(lambda: any(topic == "t" for topic, _ in log.read()), LATEST_S)
    log.came = [one for one in log.came if one[0] != "t"]
    eventually(lambda: len([one for one in log.records() if isinstance(one, Sample)]) >= 3, LATEST_S)
    assert log.deliveries() == []


# Alone


def a_sample(run: str, at: float) -> Sample:
    traffic = Traffic()
    return Sample(
        run=run, peer=PEER, boot=1, number=0, at=at, uptime_s=1, address="h:1", listeners={}, pid=1,
        dispatching="direct", fanout=0, cpu_s=0, memory_bytes=0, clients=0, subscriptions=0, topics=0,
        mqtt=traffic, overlay=traffic, log=traffic, links=[], coordinated=0, copied=0, filters=0, publishing=0,
        waiting_bytes=0, unacknowledged=0,
    )  # fmt: skip


class Published:
    """Takes what is published, and acknowledges when told."""

    def __init__(self, answer: Reason | None = None) -> None:
        self.answer = answer
        self.messages: list[Message] = []
        self.some = asyncio.Event()
        self.dones: list[Done] = []

    def __call__(self, message: Message, done: Done) -> None:
        self.messages.append(message)
        self.some.set()
        self.dones.append(done)
        if self.answer is not None:
            done(self.answer)

    @property
    def records(self) -> list[Record]:
        return [decode(line) for message in self.messages for line in message.payload.splitlines()]


@contextlib.contextmanager
def recorded(config: RecordConfig, published: Published) -> Iterator[Recording]:
    recording = Recording(config, "my ring", PEER, 1)
    recording.start(a_sample, published)
    yield recording


def deliver(recording: Recording, count: int) -> None:
    now = time.time_ns()
    for number in range(count):
        recording.recorder.delivered(PEER, 1, number, "t", "direct", PEER, now, now, 0, 1, 1, 0)


async def test_batches_are_published_to_the_topic_of_the_peer_with_qos_1() -> None:
    published = Published(Reason.NO_MATCHING_SUBSCRIBERS)
    with recorded(RecordConfig(), published) as recording:
        deliver(recording, 1)
        await recording.stop()
    assert [(one.topic, one.qos, one.retain) for one in published.messages] == [(f"ringmq/log/{PEER}", 1, False)]
    assert [(type(one), one.run, one.number) for one in published.records] == [
        (Delivery, "my_ring", 0),
        (Sample, "my_ring", 1),
    ]
    await recording.stop()
    assert len(published.messages) == 1, "once is enough"


async def test_unacknowledged_batches_hold_back_the_rest() -> None:
    published = Published()
    with recorded(RecordConfig(every=1), published) as recording:
        deliver(recording, 17_000)
        recording._send(partly=False)
        assert len(published.messages) == MAX_UNACKNOWLEDGED
        published.dones[0](Reason.SUCCESS)
        recording._send(partly=False)
        assert len(published.messages) == MAX_UNACKNOWLEDGED + 1
        assert recording.status()["unacknowledged"] == MAX_UNACKNOWLEDGED
        started = time.monotonic()
        await recording.stop()
    assert time.monotonic() - started < 10, "who does not acknowledge is not waited for"


async def test_refused_batches_are_published_again() -> None:
    published = Published(Reason.QUOTA_EXCEEDED)
    with recorded(RecordConfig(interval_s=0), published) as recording:
        deliver(recording, 1)
        recording._send(partly=True)
        recording._send(partly=True)
        published.answer = Reason.SUCCESS
        recording._send(partly=True)
        recording._send(partly=True)
        await recording.stop()
    assert [one.payload for one in published.messages] == 3 * [published.messages[0].payload]


async def test_without_samples_records_do_not_wait_for_ever(eventually: Eventually) -> None:
    published = Published(Reason.SUCCESS)
    with recorded(RecordConfig(interval_s=0), published) as recording:
        deliver(recording, 2)
        await asyncio.wait_for(published.some.wait(), 20 * FLUSH_S)
        await recording.stop()
    assert [type(one) for one in published.records] == [Delivery, Delivery]


async def test_nothing_is_recorded_without_a_sink() -> None:
    published = Published()
    with recorded(RecordConfig(mqtt=False), published) as recording:
        assert not recording.records
        await recording.stop()
    assert published.messages == []


async def test_metrics_port_in_use_fails_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        recording = Recording(RecordConfig(metrics=taken.getsockname()), "r", PEER, 1)
        with pytest.raises(RecordingError, match=str(taken.getsockname()[1])):
            await recording.listen(a_sample, dict)
        await recording.stop()
