"""A survey of a ring that nobody knows whole: it reaches all, in few rounds, and names those that are silent."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.administration import survey as survey_module
from ringmq.peer.administration.requests import (
    ClientRow,
    Page,
    PeerRow,
    Reply,
    Request,
    Subject,
    decode_reply,
)
from ringmq.peer.administration.survey import ALL_S, MAX_AT_ONCE, NO_ANSWER, SILENT_S, UNASKED, UNFINISHED, Survey

HALF = 16
"""Members of a leaf set on each side."""


def ring_of(count: int) -> list[Peer]:
    return [Peer(Id(SPACE // count * number + 1), f"host-{number}", 4883, 1) for number in range(count)]


def leaves_of(ring: list[Peer], number: int) -> tuple[Peer, ...]:
    near = {(number + step) % len(ring) for step in range(-HALF, HALF + 1)} - {number}
    return tuple(ring[other] for other in near)


class World:
    """Peers that answer at once, but for the silent ones; each round is one way and back."""

    def __init__(self, count: int, request: Request | None = None, silent: tuple[int, ...] = ()) -> None:
        self.ring = ring_of(count)
        self.numbers = {peer.id: number for number, peer in enumerate(self.ring)}
        self.silent = {self.ring[number].id for number in silent}
        self.now = 100.0
        self.survey = Survey(request or Request(about=Subject.PEERS), self.now)
        self.asked: list[Peer] = []
        self.rounds = 0
        self.most_at_once = 0

    def begin(self, hints: tuple[int, ...] = ()) -> None:
        self.survey.begin(self.ring[0], leaves_of(self.ring, 0), [self.ring[number] for number in hints])

    def run(self) -> None:
        """Go on until nobody can answer any more."""
        while asked := self.survey.take_asked(self.now):
            self.rounds += 1
            self.asked += asked
            self.most_at_once = max(self.most_at_once, len(asked))
            for peer in asked:
                if peer.id not in self.silent:
                    self.answer(peer)

    def answer(self, peer: Peer, rows: int = 1, last: bool = True, total: int | None = None) -> None:
        page = Page(rows=[msgspec.Raw(b"{}")] * rows, total=rows if total is None else total)
        leaves = leaves_of(self.ring, self.numbers[peer.id]) if peer.id in self.numbers else ()
        self.survey.page(peer, page, leaves, last, self.now)

    def pass_time(self, span_s: float) -> None:
        self.now += span_s
        self.survey.tick(self.now)

    def reply(self) -> tuple[Reply, list[PeerRow]]:
        reply, rows = decode_reply(self.survey.reply(self.now), PeerRow)
        return reply, [row for row in rows if isinstance(row, PeerRow)]


@pytest.mark.parametrize("count", [1, 2, 17, 33, 34, 100, 500])
def test_each_peer_of_a_ring_is_asked_once_and_answers(count: int) -> None:
    world = World(count)
    world.begin()
    world.run()
    assert world.survey.done
    assert sorted(peer.id for peer in world.asked) == [peer.id for peer in world.ring]
    reply, rows = world.reply()
    assert {row.peer for row in rows} == {peer.id.hex() for peer in world.ring}
    assert {peer.id for peer in reply.peers} == {row.peer for row in rows}
    assert (reply.total, reply.missing, reply.unasked) == (count, [], 0)


def test_hints_save_rounds_in_a_large_ring() -> None:
    alone, hinted = World(500), World(500)
    alone.begin()
    alone.run()
    hinted.begin(tuple(range(32, 500, 32)))
    hinted.run()
    assert alone.rounds >= 15, "leaf sets lead on by 16 peers on each side"
    assert hinted.rounds <= 5
    assert len(hinted.asked) == 500
    assert hinted.most_at_once <= MAX_AT_ONCE


def test_a_dead_hint_is_neither_waited_for_nor_missing() -> None:
    world = World(40)
    gone = Peer(Id(5), "gone", 4883, 1)
    world.survey.begin(world.ring[0], leaves_of(world.ring, 0), [gone])
    world.silent = {gone.id}
    world.run()
    assert world.survey.done
    assert world.reply()[0].missing == []


def test_a_silent_peer_is_waited_for_and_named() -> None:
    world = World(50, silent=(7, 30))
    world.begin()
    world.run()
    assert not world.survey.done
    world.pass_time(SILENT_S / 2)
    assert not world.survey.done
    world.pass_time(SILENT_S / 2)
    assert world.survey.done
    reply, rows = world.reply()
    assert len(rows) == 48
    assert {(missing.address, missing.why) for missing in reply.missing} == {
        ("host-7:4883", NO_ANSWER),
        ("host-30:4883", NO_ANSWER),
    }


def test_a_survey_ends_though_somebody_keeps_answering() -> None:
    world = World(2)
    world.begin()
    for peer in world.survey.take_asked(world.now):
        if peer.id != world.ring[1].id:
            world.answer(peer)
    while not world.survey.done:
        world.pass_time(SILENT_S / 3)
        world.answer(world.ring[1], last=False)
        assert world.now < 100 + ALL_S + SILENT_S
    reply, _ = world.reply()
    assert [missing.why for missing in reply.missing] == [UNFINISHED]


def test_peers_that_time_was_too_short_for_are_named() -> None:
    world = World(400)
    world.begin()
    world.survey.page(world.ring[0], Page(), (), True, world.now)  # not asked yet: it does not count
    asked = world.survey.take_asked(world.now)
    for number in range(0, 400, 20):
        world.survey.begin(world.ring[number], leaves_of(world.ring, number), ())
    assert len(asked) == 33
    world.pass_time(ALL_S)
    reply, _ = world.reply()
    assert world.survey.done
    assert {missing.why for missing in reply.missing} == {NO_ANSWER, UNASKED}
    assert len(reply.missing) == 400


def test_rows_beyond_the_limit_are_counted() -> None:
    world = World(3, Request(about=Subject.PEERS, limit=2))
    world.begin()
    for peer in world.survey.take_asked(world.now):
        world.answer(peer, rows=2, last=False)
        world.answer(peer, rows=0, total=5)
    reply, rows = world.reply()
    assert (len(rows), reply.total) == (2, 15)


def test_rows_take_no_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "MAX_REPLY_BYTES", 1000)
    world = World(3, Request(about=Subject.CLIENTS))
    world.begin()
    for peer in world.survey.take_asked(world.now):
        page = Page(rows=[msgspec.Raw(msgspec.json.encode(ClientRow(client="c" * 300)))] * 2, total=2)
        world.survey.page(peer, page, (), True, world.now)
    reply, rows = decode_reply(world.survey.reply(world.now), ClientRow)
    assert reply.total == 6
    assert 0 < len(rows) < 3


def test_a_peer_that_answers_nonsense_is_named_with_the_reason() -> None:
    world = World(3)
    world.begin()
    first, second, third = world.survey.take_asked(world.now)
    world.answer(first)
    world.survey.page(second, Page(rows=[msgspec.Raw(b'{"clients":"x"}')]), (), True, world.now)
    world.survey.unreadable(third, "unreadable page: no")
    world.answer(second)  # given up: it does not count any more
    assert world.survey.done
    reply, rows = world.reply()
    assert len(rows) == 1
    assert sorted(missing.why[:15] for missing in reply.missing) == ["unreadable page", "unreadable row:"]


def test_the_fault_of_a_peer_is_named() -> None:
    world = World(2)
    world.begin()
    own, other = world.survey.take_asked(world.now)
    world.answer(own)
    world.survey.page(other, Page(fault="its front is amqtt"), (), True, world.now)
    assert [missing.why for missing in world.reply()[0].missing] == ["its front is amqtt"]


def test_a_ring_that_is_too_large_is_asked_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey_module, "MAX_PEERS", 60)
    world = World(100)
    world.begin()
    world.run()
    reply, rows = world.reply()
    assert len(rows) == 60
    assert 0 < reply.unasked <= 40


def test_a_later_start_of_a_peer_is_asked_at_its_new_address() -> None:
    me, old = ring_of(2)
    new = Peer(old.id, "elsewhere", 4884, 2)
    survey = Survey(Request(about=Subject.PEERS), 0.0)
    survey.begin(me, [old], ())
    survey.begin(me, [new], ())
    assert survey.take_asked(0.0) == [me, new]


@given(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 3), st.booleans()), max_size=80))
def test_answers_in_any_order_and_number_end_in_one_reply(answers: list[tuple[int, int, bool]]) -> None:
    """No answer counts twice, and the time ends every survey."""
    world = World(60)
    world.begin()
    for number, rows, last in answers:
        world.survey.take_asked(world.now)
        world.answer(world.ring[number], rows, last)
    world.pass_time(ALL_S)
    assert world.survey.done
    reply, rows = world.reply()
    named = [peer.id for peer in reply.peers] + [missing.peer for missing in reply.missing]
    assert len(named) == len(set(named))
    assert {row.peer for row in rows} <= set(named)
