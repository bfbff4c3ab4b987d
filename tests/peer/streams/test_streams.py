"""Streams deliver each item once and in order, and call `done` when it is safe and applied, whatever the line does."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.iteration import Clock, StillClock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.messaging.config import LAN
from ringmq.peer.streams import outgoing_stream, stream_pairs, streams
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane
from ringmq.peer.streams.streams import Streams
from tests.peer.streams.stream_line import LineContext, StreamWorld
from tests.peer.streams.stream_mutations import FAULTS, faulty

A = Peer(Id(1), "a", 1, 5)
B = Peer(Id(2), "b", 1, 7)
UNSEEN = "delayed acknowledgements are never sent"
"""Retries heal it, so that only the number of messages shows it."""


# Random calls and weather


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32), actions=st.integers(1, 150))
def test_every_item_is_handled_once_in_order_and_done_when_it_is_applied(seed: int, actions: int) -> None:
    StreamWorld(seed).run(actions)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != UNSEEN])
def test_the_simulated_line_shows_a_fault(fault: str) -> None:
    def run_all(faulty_class: type[Streams]) -> None:
        for seed in range(400):
            StreamWorld(seed, faulty_class).run(80)

    with faulty(fault) as faulty_class, pytest.raises((AssertionError, StopIteration)):
        run_all(faulty_class)


# Tables


class Process:
    """One process with streams; items are strings. `end` ends an iteration."""

    def __init__(self, me: Peer, clock: Clock, streams_class: type[Streams] = Streams) -> None:
        self.context = LineContext(me, clock)
        self.handled: list[str] = []
        self.lost: list[Peer] = []
        self.on_item: Callable[[str], None] = lambda item: None
        self.streams = streams_class(self.context, self._encode, self._decode, self._handle, self.lost.append)

    def _encode(self, item: object) -> bytes:
        assert isinstance(item, str)
        return item.encode()

    def _decode(self, data: bytes) -> str:
        if data == b"unreadable":
            raise ProtocolError("unreadable")
        return data.decode()

    def _handle(self, sender: Peer, item: object) -> None:
        assert isinstance(item, str)
        self.handled.append(item)
        self.on_item(item)

    def settle(self) -> None:
        """Handle the messages of this peer to itself."""
        while self.context.local:
            message = self.context.local.popleft()
            assert isinstance(message, Batch)
            self.streams.received(self.context.me, message)

    def end(self) -> list[Batch | BatchAck]:
        """Commit, acknowledge and flush: the messages sent."""
        self.settle()
        self.streams.acknowledge()
        self.streams.flush()
        posts, self.context.posts = self.context.posts, []
        return [message for _, message in posts]

    def take(self, sender: Peer, messages: list[Batch | BatchAck]) -> None:
        for message in messages:
            if isinstance(message, Batch):
                self.streams.received(sender, message)
            else:
                self.streams.acknowledged(sender, message)
            self.settle()


class Line:
    """Two processes on a line without faults."""

    def __init__(self, streams_class: type[Streams] = Streams) -> None:
        self.clock = StillClock(50.0)
        self.a = Process(A, self.clock, streams_class)
        self.b = Process(B, self.clock, streams_class)
        self.crossed: list[Batch | BatchAck] = []

    def exchange(self) -> None:
        """Carry messages until neither side has any."""
        while True:
            to_b, to_a = self.a.end(), self.b.end()
            if not to_b and not to_a:
                return
            self.crossed += to_b + to_a
            self.b.take(self.a.context.me, to_b)
            self.a.take(self.b.context.me, to_a)

    def pass_time(self, until_s: float) -> None:
        """Run the timers of both sides until then, and carry their messages."""
        until = self.clock.now + until_s
        while (at := min(self.a.context.timers.next_at, self.b.context.timers.next_at)) <= until:
            self.clock.now = at
            self.a.context.timers.run(at)
            self.b.context.timers.run(at)
            self.exchange()
        self.clock.now = until


def _batches(messages: list[Batch | BatchAck]) -> list[Batch]:
    return [message for message in messages if isinstance(message, Batch)]


def test_done_is_called_after_the_commit_of_the_receiver() -> None:
    line, calls = Line(), list[str]()
    line.a.streams.send(B, "x", lambda: calls.append("x"))
    line.b.take(A, line.a.end())
    assert line.b.handled == ["x"]
    # The receiver flushes without having committed.
    line.b.streams.flush()
    assert line.b.context.posts == []
    line.a.take(B, line.b.end())
    assert calls == ["x"]
    assert line.a.streams.idle(B)


def test_items_join_while_the_window_is_full() -> None:
    line = Line()
    sent = []
    for item in "abcdefg":
        line.a.streams.send(B, item)
        sent += line.a.end()
    assert [batch.items for batch in _batches(sent)] == [(b"a",), (b"b",), (b"c",), (b"d",)]
    line.b.take(A, sent)
    line.a.take(B, line.b.end())
    assert [batch.items for batch in _batches(line.a.end())] == [(b"e", b"f", b"g")]


def test_batches_have_bounds_and_a_large_item_goes_alone() -> None:
    line = Line()
    for item in ["s"] * 600 + ["l" * 40_000] + ["m" * 20_000] * 2 + ["s"]:
        line.a.streams.send(B, item, lane=Lane.BULK)
    line.exchange()
    assert [len(batch.items) for batch in _batches(line.crossed)] == [512, 88, 1, 1, 2]
    assert len(line.b.handled) == 604


def test_bulk_does_not_delay_control() -> None:
    line = Line()
    for _ in range(20):
        line.a.streams.send(B, "b" * 30_000, lane=Lane.BULK)
    assert len(line.a.end()) == 4
    line.a.streams.send(B, "more", lane=Lane.BULK)
    line.a.streams.send(B, "urgent")
    assert [batch.items for batch in _batches(line.a.end())] == [(b"urgent",)]


def test_an_acknowledgement_rides_on_the_next_batch() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    line.b.take(A, line.a.end())
    assert line.b.end() == []
    line.b.streams.send(A, "y")
    [batch] = _batches(line.b.end())
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


def test_a_silent_peer_gets_the_window_once_and_then_its_oldest_batch_alone() -> None:
    line = Line()
    for item in "abc":
        line.a.streams.send(B, item)
        line.a.end()
    sent = []
    begun = line.clock.now
    while line.clock.now < begun + 8:
        line.clock.now = line.a.context.timers.next_at
        line.a.context.timers.run(line.clock.now)
        sent += [(round(line.clock.now - begun, 3), batch.seq) for batch in _batches(line.a.end())]
    assert sent == [(0.3, 1), (0.3, 2), (0.3, 3), (0.9, 1), (2.1, 1), (4.1, 1), (6.1, 1), (8.1, 1)]
    # The peer goes on: the other batches follow without a wait.
    line.a.context.config = LAN
    line.clock.now = line.a.context.timers.next_at
    line.a.context.timers.run(line.clock.now)
    line.exchange()
    assert line.b.handled == ["a", "b", "c"]
    line.pass_time(1.0)
    assert line.a.streams.idle(B)


def test_a_peer_that_stays_silent_is_lost_after_the_time_to_give_up() -> None:
    line = Line()
    line.a.streams.send(B, "x", lambda: None)
    line.a.end()
    begun = line.clock.now
    while line.a.context.timers:
        line.clock.now = line.a.context.timers.next_at
        line.a.context.timers.run(line.clock.now)
        line.a.end()
    assert LAN.give_up_s < line.clock.now - begun <= LAN.give_up_s + LAN.slow_retry_s
    assert (line.a.streams.counters.given_up, len(line.a.context.timers)) == (1, 0)
    assert line.a.streams.idle(B)


def test_a_peer_that_answers_is_not_given_up_however_long_it_holds_back() -> None:
    line, calls = Line(), list[str]()
    releases: list[Callable[[], None]] = []
    line.b.on_item = lambda item: releases.append(line.b.streams.hold_back())
    line.a.streams.send(B, "x", lambda: calls.append("x"))
    line.exchange()
    line.pass_time(10 * LAN.give_up_s)
    assert line.a.lost == []
    releases[0]()
    line.exchange()
    assert calls == ["x"]


def test_a_pair_that_rested_for_long_is_not_given_up_at_the_first_loss() -> None:
    line = Line()
    line.a.streams.send(B, "x", lambda: None)
    line.exchange()
    line.pass_time(10 * LAN.give_up_s)
    line.a.streams.send(B, "y")
    line.a.end()
    line.pass_time(2.0)
    assert (line.a.lost, line.b.handled) == ([], ["x", "y"])


def test_a_pair_has_one_timer_and_an_idle_pair_has_none() -> None:
    line = Line()
    for _ in range(50):
        for lane in Lane:
            line.a.streams.send(B, "x", lambda: None, lane)
        assert len(line.a.context.timers) <= 1
        line.exchange()
    assert len(line.a.context.timers) == 1
    line.pass_time(1.0)
    assert (len(line.a.context.timers), len(line.b.context.timers)) == (0, 0)


def test_holds_are_released_in_any_order() -> None:
    line, calls = Line(), list[str]()
    releases: list[Callable[[], None]] = []
    line.b.on_item = lambda item: releases.append(line.b.streams.hold_back())
    for item in "abc":
        line.a.streams.send(B, item, lambda item=item: calls.append(item))  # type: ignore[misc]
        line.exchange()
    assert calls == []
    for index in (2, 0, 1):
        releases[index]()
        releases[index]()
        line.exchange()
    assert calls == ["c", "a", "b"]
    line.pass_time(1.0)
    assert len(line.a.context.timers) == 0


def test_a_peer_that_holds_back_is_told_from_a_silent_one() -> None:
    line, releases = Line(), list[Callable[[], None]]()
    line.b.on_item = lambda item: releases.append(line.b.streams.hold_back())
    line.a.streams.send(B, "x", lambda: None)
    line.exchange()
    line.pass_time(60.0)
    assert line.a.streams.held_back_at(B) > line.clock.now - LAN.void_s, "it is asked again and again"
    releases[0]()
    line.exchange()
    assert line.a.streams.held_back_at(B) == -inf
    line.a.on_item = lambda item: releases.append(line.a.streams.hold_back())
    line.a.streams.send(A, "own")
    line.exchange()
    assert line.a.streams.held_back_at(A) == line.clock.now


def test_a_batch_with_two_holds_is_applied_after_both() -> None:
    line, calls = Line(), list[str]()
    releases: list[Callable[[], None]] = []
    line.b.on_item = lambda item: releases.append(line.b.streams.hold_back())
    line.a.streams.send(B, "x", lambda: calls.append("x"))
    line.a.streams.send(B, "y")
    line.exchange()
    releases[0]()
    line.exchange()
    assert calls == []
    releases[1]()
    line.exchange()
    assert calls == ["x"]


def test_a_hold_outside_of_a_handler_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="hold_back must be called while an item is handled"):
        Line().a.streams.hold_back()


def test_more_owed_batches_than_the_bound_lose_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_OWED", 2)
    line = Line()
    releases: list[Callable[[], None]] = []
    line.b.on_item = lambda item: releases.append(line.b.streams.hold_back())
    for item in "abc":
        line.a.streams.send(B, item, lambda: None)
        line.exchange()
    assert line.a.lost == [B]
    assert line.a.streams.counters.overflowed == 1


def test_items_of_a_peer_to_itself_are_handled_after_the_present_call() -> None:
    line, calls = Line(), list[str]()
    line.a.on_item = lambda item: line.a.streams.send(A, "second") if item == "first" else None
    line.a.streams.send(A, "first", lambda: calls.append("done"))
    assert line.a.handled == []
    line.a.settle()
    assert line.a.handled == ["first", "second"]
    assert calls == ["done"]
    line.a.streams.send_encoded(A, b"encoded", lambda: calls.append("encoded"))
    assert line.a.end() == []
    assert (line.a.handled[-1], calls[-1]) == ("encoded", "encoded")


def test_an_own_item_is_done_when_its_hold_is_released() -> None:
    line, calls = Line(), list[str]()
    releases: list[Callable[[], None]] = []
    line.a.on_item = lambda item: releases.append(line.a.streams.hold_back())
    line.a.streams.send(A, "x", lambda: calls.append("done"))
    line.a.settle()
    assert calls == []
    releases[0]()
    assert calls == []
    line.a.settle()
    assert calls == ["done"]


def test_a_peer_that_is_too_far_behind_is_lost_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_QUEUED_BYTES", 10_000)
    line, calls = Line(), list[str]()
    for _ in range(12):
        line.a.streams.send(B, "x" * 1000, lambda: calls.append("x"))
    # Within the present call nobody can know it yet.
    assert line.a.lost == []
    line.exchange()
    assert (line.a.lost, line.b.handled, calls) == ([B], [], [])
    assert line.a.streams.counters.overflowed == 1
    line.a.streams.send(B, "next")
    line.exchange()
    assert line.b.handled == ["next"]


def test_memory_of_acknowledged_items_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_QUEUED_BYTES", 10_000)
    line = Line()
    for _ in range(50):
        line.a.streams.send(B, "x" * 5000, lambda: None)
        line.exchange()
    assert line.a.lost == []


def test_an_unreadable_batch_is_neither_handled_in_part_nor_acknowledged() -> None:
    line = Line()
    line.a.streams.send(B, "good", lambda: None)
    line.a.streams.send_encoded(B, b"unreadable")
    line.exchange()
    assert (line.b.handled, line.b.streams.counters.unreadable) == ([], 1)
    assert not line.a.streams.idle(B)


def test_a_handler_that_raises_ends_the_stream() -> None:
    line, calls = Line(), list[str]()

    def fail(item: str) -> None:
        if item == "bad":
            raise ZeroDivisionError

    line.b.on_item = fail
    for item in ("good", "bad", "after"):
        line.a.streams.send(B, item, lambda: calls.append("done"))
    batches = line.a.end()
    with pytest.raises(ZeroDivisionError):
        line.b.take(A, batches)
    line.b.end()
    line.pass_time(1.0)
    assert (line.a.lost, calls, line.b.handled) == ([B], [], ["good", "bad"])
    line.a.streams.send(B, "again")
    line.exchange()
    assert line.b.handled[-1] == "again"


def test_a_callback_that_raises_does_not_end_the_others() -> None:
    line, calls = Line(), list[str]()

    def fail() -> None:
        raise ZeroDivisionError

    line.a.streams.send(B, "x", fail)
    line.a.streams.send(B, "y", lambda: calls.append("y"))
    line.b.take(A, line.a.end())
    with pytest.raises(ZeroDivisionError):
        line.a.take(B, line.b.end())
    line.a.settle()
    assert calls == ["y"]


def test_a_callback_that_closes_the_pair_ends_the_others() -> None:
    line, calls = Line(), list[str]()
    line.a.streams.send(B, "x", lambda: line.a.streams.close(B))
    line.a.streams.send(B, "y", lambda: calls.append("y"))
    line.exchange()
    assert calls == []


def test_a_handler_that_closes_the_pair_ends_the_batch() -> None:
    line = Line()
    line.b.on_item = lambda item: line.b.streams.close(A)
    line.a.streams.send(B, "x", lambda: None)
    line.a.streams.send(B, "y")
    line.exchange()
    assert line.b.handled == ["x"]
    line.pass_time(1.0)
    assert line.a.lost == [B]


def test_a_restarted_receiver_does_not_process_batches_of_its_older_boot() -> None:
    line = Line()
    line.a.streams.send(B, "x", lambda: None)
    batches = line.a.end()
    later = Peer(B.id, "b", 1, B.boot + 1)
    restarted = Process(later, line.clock)
    restarted.take(A, batches)
    assert restarted.handled == []
    line.a.take(later, restarted.end())
    line.a.settle()
    assert line.a.lost == [B]
    line.a.streams.send(later, "y")
    restarted.take(A, line.a.end())
    assert restarted.handled == ["y"]


def test_a_restarted_sender_ends_what_came_from_its_older_boot() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    old = line.a.end()
    line.b.take(A, old)
    later = Peer(A.id, "a", 1, A.boot + 1)
    restarted = Process(later, line.clock)
    restarted.streams.send(B, "y")
    line.b.take(later, restarted.end())
    assert (line.b.handled, line.b.lost) == (["x", "y"], [A])
    line.b.take(A, old)
    assert line.b.handled == ["x", "y"]
    assert line.b.streams.counters.skipped == 1


def test_an_older_boot_gets_nothing_and_is_reported_lost_after_a_wait() -> None:
    """Whoever believes in it would otherwise send again in the same iteration, without end."""
    line, older = Line(), Peer(B.id, "b", 1, B.boot - 1)
    line.a.streams.send(B, "new")
    line.a.streams.send(older, "old", lambda: None)
    line.a.streams.close(Peer(B.id, "b", 1, B.boot - 2))
    line.exchange()
    assert (line.a.lost, line.b.handled, line.a.streams.idle(B)) == ([], ["new"], False)
    line.pass_time(LAN.retry_s + 0.01)
    assert line.a.lost == [older]


def test_the_other_side_learns_of_a_close_with_its_next_batch() -> None:
    line, calls = Line(), list[str]()
    line.a.streams.send(B, "x", lambda: calls.append("x"))
    line.exchange()
    line.b.streams.close(A)
    line.exchange()
    assert (line.a.lost, line.b.lost) == ([], [])
    line.a.streams.send(B, "y", lambda: calls.append("y"))
    line.exchange()
    assert (line.a.lost, line.b.handled, calls) == ([B], ["x"], ["x"])
    line.a.streams.send(B, "z", lambda: calls.append("z"))
    line.exchange()
    assert (line.b.handled, calls) == (["x", "z"], ["x", "z"])


def test_a_close_cancels_the_report_of_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "MAX_QUEUED_BYTES", 1000)
    line = Line()
    line.a.streams.send(B, "x" * 2000)
    line.a.streams.close(B)
    line.exchange()
    assert line.a.lost == []


def test_a_forgotten_pair_is_found_out_by_its_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_pairs, "MAX_CLOSED", 0)
    line = Line()
    line.a.streams.send(B, "x", lambda: None)
    line.exchange()
    line.b.streams.close(A)
    assert not line.b.streams._by_id
    line.a.streams.send(B, "y", lambda: None)
    line.exchange()
    assert (line.a.lost, line.b.handled) == ([B], ["x"])


def test_the_first_batch_may_get_lost() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    line.a.end()
    line.a.streams.send(B, "y")
    line.b.take(A, line.a.end())
    assert line.b.end() == []
    line.pass_time(1.0)
    assert (line.b.handled, line.a.lost) == (["x", "y"], [])


def test_an_acknowledgement_of_a_stranger_leaves_no_trace() -> None:
    line = Line()
    line.a.streams.acknowledged(B, BatchAck(Lane.CONTROL, A.boot, 1, 1))
    assert not line.a.streams._by_id


def test_counters_by_name() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    line.exchange()
    names = {"batches": 1, "resent": 0, "skipped": 0, "unreadable": 0, "given_up": 0, "overflowed": 0}
    assert line.a.streams.counters.as_dict() == names


def test_a_batch_survives_the_wire() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    [batch] = _batches(line.a.end())
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(batch), type=Batch) == batch


def test_the_context_is_notified_of_due_work() -> None:
    line = Line()
    line.a.streams.send(B, "x")
    line.a.streams.send(B, "y")
    assert line.a.context.owed == 1
    line.b.take(A, line.a.end())
    assert line.b.context.owed == 1


def test_the_window_of_the_module_is_what_the_tables_use() -> None:
    assert (outgoing_stream.WINDOW, outgoing_stream.BATCH_ITEMS, outgoing_stream.BATCH_BYTES) == (4, 512, 32 << 10)
