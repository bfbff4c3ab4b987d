"""What a peer records: who is chosen, numbers without gaps, batches within their bounds, and latencies by interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.logger.config import RecordConfig
from ringmq.logger.histogram import bucket_of
from ringmq.logger.recorder import MAX_BATCH_BYTES, MAX_SERIES, MAX_WAITING_BYTES, Recorder, is_of_the_log
from ringmq.logger.records import MAX_LINE_BYTES, Delivery, Latencies, LinkTraffic, Record, Sample, decode

ME, OTHER = "0" * 31 + "1", "0" * 31 + "2"
T0_NS = 1_700_000_000_000_000_000


def recorder(**settings: Any) -> Recorder:
    return Recorder("spring", ME, 7, RecordConfig(**settings), T0_NS / 1e9)


def deliver(recorder: Recorder, took_ns: int = 2_000_000, **members: Any) -> dict[str, Any]:
    """Returns what was delivered, by the names of the record."""
    told = {
        "origin": OTHER,
        "origin_boot": 3,
        "sequence": 4,
        "topic": "hall/7/door",
        "dispatching": "guided",
        "sender": OTHER,
        "sent_ns": T0_NS,
        "received_ns": T0_NS + took_ns,
        "hops": 1,
        "size": 32,
        "clients": 2,
        "sends": 5,
        "duplicate": False,
    } | members
    recorder.delivered(**told)
    told["bytes"] = told.pop("size")
    return told


def batches(recorder: Recorder) -> list[bytes]:
    found = []
    while batch := recorder.take():
        found.append(batch)
    return found


def taken(recorder: Recorder) -> list[Record]:
    lines = b"".join(batches(recorder)).split(b"\n")
    assert lines.pop() == b"", "the last line has no end"
    return [decode(line) for line in lines]


@settings(deadline=None)
@given(st.integers(2, 200), st.integers(1, 20))
def test_of_each_so_many_one_is_chosen(every: int, blocks: int) -> None:
    it = recorder(every=every)
    for _ in range(blocks):
        assert sum(it.chooses() for _ in range(every)) == 1


def test_every_place_is_chosen_alike() -> None:
    """Else what is published in turns would be chosen in turns, or some of it never."""
    it = recorder(every=10)
    places = Counter(place for _ in range(5000) for place in range(10) if it.chooses())
    assert set(places) == set(range(10))
    assert min(places.values()) > 350  # 500 with a standard deviation of 21
    assert max(places.values()) < 650


def test_another_peer_or_start_chooses_otherwise_and_the_same_one_alike() -> None:
    config = RecordConfig(every=10)
    same, again, other_peer, other_boot = [
        Recorder("spring", peer, boot, config, 0) for peer, boot in ((ME, 7), (ME, 7), (OTHER, 7), (ME, 8))
    ]
    choices = [[it.chooses() for _ in range(1000)] for it in (same, again, other_peer, other_boot)]
    assert choices[0] == choices[1]
    assert choices[0] not in (choices[2], choices[3])


@pytest.mark.parametrize(
    ("settings", "answer"),
    [({"every": 1}, True), ({"deliveries": "off", "every": 1}, False), ({"deliveries": "off", "every": 2}, False)],
)
def test_all_or_none(settings: dict[str, Any], answer: bool) -> None:
    it = recorder(**settings)
    assert {it.chooses() for _ in range(1000)} == {answer}


def test_a_histogram_is_of_the_same_choice() -> None:
    each, histogram = recorder(), recorder(deliveries="histogram")
    assert [each.chooses() for _ in range(1000)] == [histogram.chooses() for _ in range(1000)]


@pytest.mark.parametrize("topic", ["ringmq/log", "ringmq/log/", "ringmq/log/" + ME, "ringmq/log/a/b"])
def test_topics_of_the_log(topic: str) -> None:
    assert is_of_the_log(topic)


@pytest.mark.parametrize("topic", ["ringmq", "ringmq/", "ringmq/logs", "ringmq/logs/a", "/ringmq/log", "a/ringmq/log"])
def test_other_topics(topic: str) -> None:
    assert not is_of_the_log(topic)


@pytest.mark.parametrize("duplicate", [False, True])
def test_a_delivery_becomes_a_record(duplicate: bool) -> None:
    it = recorder()
    told = deliver(it, duplicate=duplicate)
    common = {"run": "spring", "peer": ME, "boot": 7, "number": 0, "at": (T0_NS + 2_000_000) / 1e9}
    assert taken(it) == [Delivery(**common, **told)]


def test_a_delivery_is_no_duplicate_unless_it_is_said() -> None:
    it = recorder()
    it.delivered(OTHER, 3, 4, "a", "direct", OTHER, T0_NS, T0_NS, 0, 32, 1, 0)
    assert [record.duplicate for record in taken(it) if isinstance(record, Delivery)] == [False]


def test_a_sample_gets_its_number_and_what_is_missing(make_sample: Callable[..., Sample]) -> None:
    it = recorder()
    deliver(it)
    it.unrecorded = 5
    it.sample(make_sample())
    assert taken(it)[1] == make_sample(number=1, unrecorded=5)


def test_with_deliveries_off_there_are_samples_alone(make_sample: Callable[..., Sample]) -> None:
    it = recorder(deliveries="off")
    deliver(it)
    it.end_interval(T0_NS / 1e9 + 1)
    it.sample(make_sample())
    assert taken(it) == [make_sample(number=0, unrecorded=0)]


def test_what_was_taken_is_gone_and_numbers_go_on() -> None:
    it = recorder()
    numbers = []
    for _ in range(3):
        deliver(it)
        deliver(it)
        numbers += [record.number for record in taken(it)]
        assert it.take() == b""
        assert it.waiting_bytes == 0
    assert numbers == list(range(6))


@settings(deadline=None)
@given(st.lists(st.integers(0, MAX_BATCH_BYTES + 1000), max_size=40))
def test_batches_keep_their_bounds(sizes: list[int]) -> None:
    it = recorder()
    for size in sizes:
        deliver(it, topic="t" * size)
    assert it.waiting_bytes > MAX_BATCH_BYTES or not it.full
    found = batches(it)
    for batch in found:
        assert batch.endswith(b"\n")
        assert len(batch) <= MAX_BATCH_BYTES or batch.count(b"\n") == 1
    records = [decode(line) for batch in found for line in batch.splitlines()]
    assert [record.number for record in records] == list(range(len(sizes)))
    assert [len(record.topic) for record in records if isinstance(record, Delivery)] == sizes
    for first, second in pairwise(found):
        line = second.split(b"\n", 1)[0]
        assert len(first) + len(line) + 1 > MAX_BATCH_BYTES, "there was room for one more"


def test_it_is_full_when_a_batch_is() -> None:
    it = recorder()
    waiting = 0
    while not it.full:
        assert it.waiting_bytes == waiting < MAX_BATCH_BYTES
        deliver(it)
        waiting = it.waiting_bytes
    first = it.take()
    assert not it.full
    assert len(first) + it.waiting_bytes == waiting
    assert it.take().count(b"\n") == 1


def test_a_batch_may_be_exactly_as_large_as_its_bound() -> None:
    it = recorder()
    deliver(it, topic="")
    rest = MAX_BATCH_BYTES - 2 * it.waiting_bytes
    deliver(it, topic="t" * rest)
    deliver(it, topic="")
    deliver(it, topic="t" * rest)
    deliver(it, topic="")
    deliver(it, topic="t" * (rest + 1))
    found = batches(it)
    assert [batch.count(b"\n") for batch in found] == [2, 2, 1, 1]
    assert len(found[0]) == len(found[1]) == MAX_BATCH_BYTES


def test_a_line_may_be_exactly_as_long_as_its_bound() -> None:
    it = recorder()
    deliver(it, topic="")
    rest = MAX_LINE_BYTES - (len(it.take()) - 1)
    deliver(it, topic="t" * rest)
    assert len(it.take()) == MAX_LINE_BYTES + 1
    deliver(it, topic="t" * (rest + 1))
    assert (it.take(), it.unrecorded) == (b"", 1)


def test_what_does_not_fit_is_counted_and_leaves_no_gap() -> None:
    it = recorder()
    while it.waiting_bytes < MAX_WAITING_BYTES:
        deliver(it, topic="t" * 10_000)
    kept = it.waiting_bytes
    assert kept < MAX_WAITING_BYTES + 11_000
    for _ in range(3):
        deliver(it)
    assert (it.unrecorded, it.waiting_bytes) == (3, kept)
    before = taken(it)
    deliver(it)
    after = taken(it)
    assert [record.number for record in before + after] == list(range(len(before) + 1))
    assert it.unrecorded == 3


def test_a_record_that_nobody_could_read_is_given_up(make_sample: Callable[..., Sample]) -> None:
    it = recorder()
    links = [LinkTraffic(peer=OTHER, bytes_in=0, bytes_out=0, queued_bytes=0)] * (MAX_LINE_BYTES // 60)
    it.sample(make_sample(links=links))
    assert (it.unrecorded, it.waiting_bytes, it.take()) == (1, 0, b"")
    deliver(it)
    assert [record.number for record in taken(it)] == [0]


def test_latencies_of_an_interval() -> None:
    it = recorder(deliveries="histogram", interval_s=10)
    took_ns = [1_000_000, 5_000_000, -3_000_000]
    for took in took_ns:
        deliver(it, took)
    assert it.take() == b"", "an interval is told at its end"
    end = T0_NS / 1e9 + 12.5
    it.end_interval(end)
    seconds = [took / 1e9 for took in took_ns]
    assert taken(it) == [
        Latencies(
            run="spring",
            peer=ME,
            boot=7,
            number=0,
            at=end,
            interval_s=12.5,
            topic="hall/7/door",
            dispatching="guided",
            hops=1,
            count=3,
            sum_s=sum(seconds),
            min_s=-0.003,
            max_s=0.005,
            bytes=96,
            buckets=Counter(map(bucket_of, seconds)),
        )
    ]
    it.end_interval(end + 1)
    assert taken(it) == [], "nothing came"
    deliver(it)
    it.end_interval(end + 3)
    (second,) = taken(it)
    assert isinstance(second, Latencies)
    assert (second.interval_s, second.count, second.number) == (2.0, 1, 1)


def test_a_clock_that_went_back_makes_no_negative_interval() -> None:
    it = recorder(deliveries="histogram")
    deliver(it)
    it.end_interval(T0_NS / 1e9 - 60)
    assert [record.interval_s for record in taken(it) if isinstance(record, Latencies)] == [0]


def test_only_what_reached_clients_is_among_the_latencies() -> None:
    it = recorder(deliveries="histogram")
    deliver(it, clients=0)
    deliver(it, duplicate=True)
    it.end_interval(T0_NS / 1e9 + 1)
    assert taken(it) == []


def test_topic_dispatching_and_hops_are_told_apart() -> None:
    it = recorder(deliveries="histogram")
    series = [(topic, way, hops) for topic in ("a", "b") for way in ("direct", "guided") for hops in (0, 1, 2)]
    for times, (topic, way, hops) in enumerate(series, 1):
        for _ in range(times):
            deliver(it, topic=topic, dispatching=way, hops=hops)
    it.end_interval(T0_NS / 1e9 + 1)
    found = [(one.topic, one.dispatching, one.hops, one.count) for one in taken(it) if isinstance(one, Latencies)]
    assert found == [(*one, times) for times, one in enumerate(series, 1)]


def test_topics_beyond_the_bound_stand_together_until_the_interval_ends() -> None:
    it = recorder(deliveries="histogram")
    for number in range(MAX_SERIES + 10):
        deliver(it, topic=f"t/{number}", hops=1 + number % 2)
    deliver(it, topic="t/0", hops=1)
    it.end_interval(T0_NS / 1e9 + 1)
    counts = {(one.topic, one.hops): one.count for one in taken(it) if isinstance(one, Latencies)}
    wanted = {(f"t/{number}", 1 + number % 2): 1 for number in range(MAX_SERIES)}
    assert counts == wanted | {("t/0", 1): 2, ("", 1): 5, ("", 2): 5}
    deliver(it, topic="t/1005")
    it.end_interval(T0_NS / 1e9 + 2)
    assert [one.topic for one in taken(it) if isinstance(one, Latencies)] == ["t/1005"]
