"""Acknowledgements of streams ride on batches in the other direction, and go alone only if they must."""

from __future__ import annotations

from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication import outgoing_stream
from ringmq.peer.replication.stream_messages import Batch, Lane
from tests.peer.replication.stream_mutations import faulty
from tests.peer.replication.stream_processes import A, B, Line, batches

UNSEEN = "delayed acknowledgements are never sent"


def test_an_acknowledgement_rides_on_the_next_batch() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    line.b.take(A, line.a.end())
    assert line.b.end() == []
    line.b.streams.send(A, "y")
    [batch] = batches(line.b.end())
    assert [(ack.lane, ack.seq) for ack in batch.acks] == [(Lane.CONTROL, 1)]
    line.a.take(B, [batch])
    assert line.a.streams.idle(B)


def test_an_answer_carries_the_acknowledgement_of_its_question() -> None:
    line, calls = Line(), list[str]()
    line.b.on_item = lambda item: line.b.streams.send(A, "answer")
    line.a.streams.send(B, "question", lambda: calls.append("done"))
    line.b.take(A, line.a.end())
    messages = line.b.end()
    assert [type(message) for message in messages] == [Batch]
    line.a.take(B, messages)
    assert (calls, line.a.handled) == (["done"], ["answer"])


def test_a_delayed_acknowledgement_goes_alone_before_the_sender_retries() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    line.exchange()
    assert not line.a.streams.idle(B)
    line.pass_time(LAN.retry_s / 2)
    assert line.a.streams.idle(B)
    assert line.a.streams.counters.resent == 0


def test_the_acknowledgement_of_a_patient_batch_rides_on_the_next_message() -> None:
    line = Line()
    line.a.streams.send(B, "question")
    line.exchange()
    line.b.streams.send_encoded(A, b"answer", lane=Lane.LOG, patient=True)
    line.exchange()
    crossed = len(line.crossed)
    line.pass_time(LAN.retry_s / 2)
    line.pass_time(1.0)
    assert len(line.crossed) == crossed, "not even with a delayed acknowledgement of the other lane"
    assert not line.b.streams.idle(A)
    line.a.streams.send(B, "next question")
    line.exchange()
    assert line.b.streams.idle(A)
    assert line.b.streams.counters.resent == 0


def test_a_patient_batch_is_sent_again_in_the_end_and_acknowledged_at_once() -> None:
    line = Line()
    line.b.streams.send_encoded(A, b"answer", patient=True)
    line.exchange()
    line.pass_time(outgoing_stream.PATIENCE * LAN.retry_s - 0.1)
    assert line.b.streams.counters.resent == 0
    line.pass_time(0.2)
    assert line.b.streams.counters.resent == 1
    assert line.b.streams.idle(A)
    assert line.a.handled == ["answer"]


def test_a_batch_behind_a_patient_one_is_not_patient() -> None:
    line = Line()
    line.b.streams.send_encoded(A, b"lost", patient=True)
    line.b.end()
    line.b.streams.send(A, "lost too")
    line.b.end()
    line.pass_time(LAN.retry_s + 0.01)
    assert line.a.handled == ["lost", "lost too"]


def test_an_item_that_somebody_waits_for_makes_its_batch_impatient() -> None:
    line = Line()
    line.b.streams.send_encoded(A, b"x", patient=True)
    line.b.streams.send(A, "y")
    assert [batch.patient for batch in batches(line.b.end())] == [False]


def test_the_number_of_messages_shows_that_delayed_acknowledgements_are_never_sent() -> None:
    with faulty(UNSEEN) as faulty_class:
        line = Line(faulty_class)
        line.a.streams.send(B, "x")
        line.exchange()
        line.pass_time(1.0)
        assert line.a.streams.counters.resent == 1


def test_a_sender_of_much_does_not_wait_for_delayed_acknowledgements() -> None:
    line = Line()
    for _ in range(100):
        line.a.streams.send(B, "b" * 30_000, lane=Lane.BULK)
    line.exchange()
    assert len(line.b.handled) == 100
