"""The desk: listings in slices, pages that wait for room, and bounds on what runs at the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import MAX_ANSWER_BYTES, Answer, Peer, Question
from ringmq.overlay.core.routing import RoutingTable
from ringmq.peer.administration.requests import (
    ChangedRow,
    ClientRow,
    Page,
    Reply,
    Request,
    RequestError,
    Row,
    Subject,
    decode_page,
    encode_request,
)
from ringmq.peer.administration.rights import Asker
from ringmq.peer.administration.shell import desk as desk_module
from ringmq.peer.administration.shell.desk import MAX_JOBS, MAX_ROW_BYTES, MAX_SURVEYS, PAGE_BYTES, SLICE_S, Desk
from ringmq.peer.administration.survey import NO_ANSWER
from ringmq.peer.iteration import Iteration

ME, OTHER = Peer(Id(1), "me", 1, 1), Peer(Id(2), "other", 2, 1)
ROOM = 16 << 20


class FakeRing:
    def __init__(self) -> None:
        self.me = ME
        self.leaves = LeafSet(ME.id)
        self.table = RoutingTable(ME.id)
        self.on_question: Callable[[Peer, Question], None]
        self.on_answer: Callable[[Peer, Answer], None]


class FakeNode:
    """Records what is posted."""

    def __init__(self) -> None:
        self.ring = FakeRing()
        self.posted: list[tuple[Peer, Question | Answer]] = []
        self.free = ROOM
        self.looked = 0
        """How often somebody asked for room."""
        self.on_request: Callable[[bytes, Callable[[bytes], None]], None]

    def post(self, peer: Peer, message: Question | Answer) -> None:
        self.posted.append((peer, message))

    def room(self, peer: Id) -> int:
        self.looked += 1
        return self.free

    @property
    def pages(self) -> list[Page]:
        return [decode_page(message.body) for _, message in self.posted if isinstance(message, Answer)]

    @property
    def answered(self) -> bool:
        return any(isinstance(message, Answer) and message.last for _, message in self.posted)


class Told:
    """Tells the rows that it is given; None ends a slice."""

    def __init__(self, *rows: Row | None, fault: Exception | None = None) -> None:
        self.told = rows
        self.fault = fault
        self.asked: list[Request] = []

    def rows(self, request: Request) -> Iterator[Row | None]:
        self.asked.append(request)
        yield from self.told
        if self.fault is not None:
            raise self.fault


class Office:
    """A desk on a node that nobody is behind."""

    def __init__(self, teller: Told) -> None:
        self.node = FakeNode()
        self.teller = teller
        self.desk = Desk(cast("Any", self.node), Iteration(), teller)
        self.desk.open()
        self.replies: list[Reply] = []

    def ask(self, request: Request, asker: Asker = Asker.WRITER) -> None:
        self.desk.ask(request, asker, self.reply)

    def reply(self, body: bytes) -> None:
        self.replies.append(msgspec.json.decode(body, type=Reply))

    def question(self, request: Request, number: int = 7) -> None:
        self.node.ring.on_question(OTHER, Question(number, encode_request(request)))


async def until(condition: Callable[[], object], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


CLIENTS = Request(about=Subject.CLIENTS, limit=100_000)


async def test_a_question_is_answered_in_pages_that_fit_a_message() -> None:
    office = Office(Told(*[ClientRow(client=f"{number:0200}") for number in range(2000)]))
    office.node.ring.leaves.add(OTHER)
    office.question(CLIENTS)
    await until(lambda: office.node.answered)
    answers = [message for _, message in office.node.posted if isinstance(message, Answer)]
    assert len(answers) > 5
    assert max(len(answer.body) for answer in answers) < PAGE_BYTES + MAX_ROW_BYTES + 100 < MAX_ANSWER_BYTES
    assert [answer.last for answer in answers] == [False] * (len(answers) - 1) + [True]
    assert [answer.leaves for answer in answers[:2]] == [(OTHER,), ()]
    assert {answer.number for answer in answers} == {7}
    assert sum(len(page.rows) for page in office.node.pages) == 2000
    assert office.node.pages[-1].total == 2000


async def test_other_work_goes_on_beside_a_listing() -> None:
    """The event loop turns between two slices, which take no longer than their share."""
    gaps: list[float] = []

    class Slow(Told):
        def rows(self, request: Request) -> Iterator[Row | None]:
            for number in range(2000):
                began = time.perf_counter()
                while time.perf_counter() < began + 0.0001:
                    pass
                yield ClientRow(client=str(number))

    office = Office(Slow())
    office.question(CLIENTS)
    last = time.perf_counter()
    while not office.node.answered:
        await asyncio.sleep(0)
        now = time.perf_counter()
        gaps.append(now - last)
        last = now
    gaps.sort()
    assert len(gaps) > 2000 * 0.0001 / SLICE_S
    assert gaps[-len(gaps) // 20] < 10 * SLICE_S, "of the slowest twentieth"


async def test_rows_beyond_the_limit_are_counted_and_not_sent() -> None:
    office = Office(Told(*[ClientRow(client=str(number)) for number in range(10)]))
    office.question(Request(about=Subject.CLIENTS, limit=3))
    await until(lambda: office.node.answered)
    assert [len(page.rows) for page in office.node.pages] == [3]
    assert office.node.pages[0].total == 10


async def test_a_page_waits_for_room_on_the_link() -> None:
    office = Office(Told(ClientRow(client="a"), None, ClientRow(client="b")))
    office.node.free = 0
    office.question(CLIENTS)
    await until(lambda: office.node.looked >= 3)
    assert office.node.posted == []
    office.node.free = ROOM
    await until(lambda: office.node.answered)
    assert [len(page.rows) for page in office.node.pages] == [1, 1]


async def test_a_peer_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "SILENT_S", 0.05)
    office = Office(Told(ClientRow(client="a")))
    office.node.free = 0
    office.question(CLIENTS)
    await until(lambda: not office.desk._jobs)
    assert office.node.posted == []


async def test_a_fault_is_one_line_of_the_answer() -> None:
    office = Office(Told(ClientRow(client="a"), fault=RequestError("its front is amqtt")))
    office.question(CLIENTS)
    await until(lambda: office.node.answered)
    assert office.node.pages[-1].fault == "its front is amqtt"


async def test_an_error_of_our_own_is_answered_too() -> None:
    office = Office(Told(fault=KeyError("bug")))
    office.question(CLIENTS)
    await until(lambda: office.node.answered)
    assert office.node.pages[-1].fault == "it failed to answer; its log has the reason"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"about":"kick"}'])
async def test_a_wrong_question_is_answered_with_its_fault(body: bytes) -> None:
    office = Office(Told())
    office.node.ring.on_question(OTHER, Question(1, body))
    assert office.node.answered
    assert office.node.pages[0].fault
    assert office.teller.asked == []


async def test_no_more_than_so_many_questions_are_answered_at_once() -> None:
    office = Office(Told(ClientRow(client="a")))
    for number in range(MAX_JOBS + 1):
        office.question(CLIENTS, number)
    assert [page.fault for page in office.node.pages] == ["it answers too many questions already"]
    await until(lambda: len(office.node.pages) == MAX_JOBS + 1)


@pytest.mark.parametrize(
    ("name", "meant"), [("", True), (ME.id.hex()[:4], True), ("me:1", True), ("me:2", False), ("ffff", False)]
)
async def test_a_request_for_one_peer_is_answered_by_that_peer(name: str, meant: bool) -> None:
    office = Office(Told(ClientRow(client="a")))
    office.ask(Request(about=Subject.CLIENTS, peer=name))
    await until(lambda: office.replies)
    assert len(office.replies[0].rows) == int(meant)
    assert len(office.teller.asked) == int(meant)


async def test_the_ring_is_asked_and_a_silent_peer_is_named() -> None:
    office = Office(Told(ClientRow(client="a")))
    office.node.ring.leaves.add(OTHER)
    began = time.monotonic()
    office.ask(CLIENTS)
    ((peer, question),) = office.node.posted
    assert peer == OTHER
    assert isinstance(question, Question)
    await until(lambda: office.replies)
    assert time.monotonic() - began < 3
    (reply,) = office.replies
    assert [(missing.address, missing.why) for missing in reply.missing] == [("other:2", NO_ANSWER)]
    assert len(reply.rows) == 1
    # It comes too late now, and nothing happens.
    office.node.ring.on_answer(OTHER, Answer(question.number, True, (), b"{}"))


async def test_an_answer_counts_only_from_the_peer_that_was_asked() -> None:
    office = Office(Told(ClientRow(client="a")))
    office.node.ring.leaves.add(OTHER)
    office.ask(CLIENTS)
    number = cast("Question", office.node.posted[0][1]).number
    stranger = Peer(Id(3), "stranger", 3, 1)
    page = msgspec.json.encode(Page(rows=[msgspec.Raw(b'{"client":"forged"}')], total=1))
    office.node.ring.on_answer(stranger, Answer(number, True, (), page))
    office.node.ring.on_answer(OTHER, Answer(number, True, (), b'{"rows":7}'))
    await until(lambda: office.replies)
    (reply,) = office.replies
    assert b"forged" not in b"".join(reply.rows)
    assert [missing.why[:15] for missing in reply.missing] == ["unreadable page"]


async def test_too_many_requests_are_refused() -> None:
    office = Office(Told(ClientRow(client="a")))
    office.node.ring.leaves.add(OTHER)
    for _ in range(MAX_SURVEYS + 1):
        office.ask(CLIENTS)
    assert [reply.error for reply in office.replies] == ["this peer answers too many requests already: try again"]
    office.desk.close()


async def test_a_reader_may_not_change_anything() -> None:
    office = Office(Told(ChangedRow(name="a", done="disconnected")))
    office.ask(Request(about=Subject.KICK, client="a"), Asker.READER)
    assert [reply.error for reply in office.replies] == ["kick needs a token that may write"]
    assert office.teller.asked == []


async def test_a_request_at_the_overlay_port_is_answered() -> None:
    office = Office(Told(ClientRow(client="a")))
    office.node.on_request(encode_request(CLIENTS), office.reply)
    office.node.on_request(b"{}", office.reply)
    await until(lambda: len(office.replies) == 2)
    assert office.replies[0].error.startswith("unreadable request")
    assert len(office.replies[1].rows) == 1


async def test_a_closed_desk_answers_nobody() -> None:
    office = Office(Told(ClientRow(client="a")))
    office.desk.close()
    office.ask(CLIENTS)
    assert [reply.error for reply in office.replies] == ["this peer stops"]
