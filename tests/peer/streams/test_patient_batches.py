"""Patient batches: their acknowledgement rides on the next message, and they are sent again late."""

from __future__ import annotations

from ringmq.peer.messaging.config import LAN
from ringmq.peer.streams.outgoing_stream import LATEST_S, PATIENCE
from ringmq.peer.streams.stream_messages import Batch, Lane
from tests.peer.streams.test_streams import A, B, Line


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
    line.pass_time(PATIENCE * LAN.retry_s - 0.1)
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
    assert [batch.patient for batch in line.b.end() if isinstance(batch, Batch)] == [False]


def test_slow_answers_make_the_sender_patient() -> None:
    """When a machine is busy all answers are slow, and to send everything again would make it busier."""
    line = Line()
    slow_s = 3 * LAN.retry_s
    resent = []
    for number in range(12):
        before = line.a.streams.counters.resent
        line.a.streams.send(B, f"item {number}", lambda: None)
        batches = line.a.end()
        line.clock.now += slow_s
        line.a.context.timers.run(line.clock.now)
        again = line.a.end()
        resent.append(line.a.streams.counters.resent - before)
        line.b.take(A, batches + again)
        line.a.take(B, line.b.end())
    assert resent[0] == 1
    assert resent[6:] == [0] * 6
    assert slow_s < line.a.streams.answer_s(B) < LATEST_S
    assert line.a.streams.heard_at(B) == line.clock.now
