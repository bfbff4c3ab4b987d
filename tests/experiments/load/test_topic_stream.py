"""Streams of different topics to a real front and over socket pairs."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from time import perf_counter

import pytest

from ringmq.experiments.load import topic_stream
from ringmq.experiments.load.raw_clients import BenchError, connected, subscribe
from ringmq.experiments.load.receiver import Receiver
from ringmq.experiments.load.topic_stream import BLOCK, Streamed, TopicStream, blocks, packet_size, payload_of
from ringmq.experiments.processes.servers import Server
from ringmq.mqtt_front.codec.codec import decode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Pingreq, Publish, Version

TOPICS = [f"stream/{number:03d}" for number in range(120)]


def packets(data: bytes) -> list[object]:
    return [decode(Version.V311, first, body) for first, body in PacketReader().feed(data)]


def test_blocks_have_one_numbered_message_to_each_topic() -> None:
    made = list(blocks(TOPICS, 1, retain=True, deliveries=lambda topic: int(topic[-1])))
    assert [(block.messages, block.answers) for block in made] == [(50, 50), (50, 50), (20, 20)]
    assert sum(block.deliveries for block in made) == 12 * 45
    sent = packets(b"".join(block.data for block in made))
    assert all(isinstance(packet, Publish) and packet.retain and packet.qos == 1 for packet in sent)
    assert [(packet.topic, bytes(packet.payload)) for packet in sent if isinstance(packet, Publish)] == [
        (topic, payload_of(number)) for number, topic in enumerate(TOPICS)
    ]


def test_block_with_qos_0_ends_with_a_ping() -> None:
    made = list(blocks(TOPICS, 0))
    assert [(block.messages, block.answers) for block in made] == [(50, 1), (50, 1), (20, 1)]
    assert [isinstance(packet, Pingreq) for packet in packets(made[2].data)] == [False] * 20 + [True]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_all_messages_are_answered_and_delivered(ringmq_server: Server, qos: int) -> None:
    size = packet_size(TOPICS[0], qos)
    noted: list[int] = []
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        subscriber = stack.enter_context(connected(ringmq_server.address, "stream-sub"))
        subscribe(subscriber, "stream/#", qos=qos)
        subscriber.setblocking(False)
        payload_at = size - len(payload_of(0))
        if qos == 2:
            receiver.complete_deliveries(subscriber, size, payload_at - 2)
        elif qos:
            receiver.acknowledge(subscriber, size, payload_at - 2, lambda data: noted.append(len(data)))
        else:
            receiver.count(subscriber)
        publisher = stack.enter_context(connected(ringmq_server.address, "stream-pub"))
        stream = TopicStream(publisher, qos, receiver, size)
        ticks: list[float] = []
        for _ in range(2):  # a stream can be used again
            done = stream.run(
                blocks(TOPICS, qos, deliveries=lambda topic: 1),
                perf_counter() + 30,
                [lambda now: bool(ticks.append(now))],
            )
            assert (done.sent, done.answered(qos), done.due, done.delivered) == (120, 120, 120, 120)
            assert 0 < done.seconds < 30
    assert ticks
    assert sum(noted) == (240 * size if qos == 1 else 0)


def test_missing_deliveries_end_the_stream_early(ringmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_stream, "LINGER_S", 0.05)
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        publisher = stack.enter_context(connected(ringmq_server.address, "missing-pub"))
        stream = TopicStream(publisher, 1, receiver, packet_bytes=1)
        done = stream.run(blocks(TOPICS, 1, deliveries=lambda topic: 1), perf_counter() + 30)
    assert (done.answered(1), done.delivered, done.due) == (120, 0, 120)
    assert done.seconds < 20


def test_server_that_does_not_answer_gets_no_more_than_the_window() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        receiver = Receiver()
        stream = TopicStream(ours, 1, receiver, packet_bytes=1)
        done = stream.run(blocks(TOPICS * 10, 1), perf_counter() + 0.05)
        receiver.close()
    assert done.sent == topic_stream.MOST_UNANSWERED
    assert done.answered(1) == 0


def test_closed_connection_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        receiver = Receiver()
        stream = TopicStream(ours, 1, receiver, packet_bytes=1)
        theirs.close()
        with pytest.raises(BenchError, match="the server closed a connection"):
            stream.run(blocks(TOPICS, 1), perf_counter() + 30)
        receiver.close()


def test_unanswered_block_with_qos_0_counts_with_all_its_messages() -> None:
    assert Streamed(sent=500, unanswered=2).answered(0) == 500 - 2 * BLOCK
    assert Streamed(sent=20, unanswered=1).answered(0) == 0
    assert Streamed(sent=500, unanswered=2).answered(1) == 498
