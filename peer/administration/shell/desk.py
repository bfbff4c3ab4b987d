"""The desk of a peer: answers the questions of other peers, and asks the whole ring for whoever requests it here.

Owns the numbers of questions, the pages on their way and the time. A long listing is made in slices, one at a time
whoever asked, so that the event loop goes on: messages come first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Final, Protocol

import msgspec
import structlog

from ringmq.overlay.config import show
from ringmq.overlay.core.messages import MAX_ANSWER_BYTES, Answer, Peer, Question
from ringmq.overlay.node import Node
from ringmq.peer.administration.requests import (
    CHANGES,
    Page,
    Reply,
    Request,
    RequestError,
    Row,
    decode_page,
    decode_request,
    shown,
)
from ringmq.peer.administration.rights import Asker, refusal
from ringmq.peer.administration.survey import SILENT_S, Survey
from ringmq.peer.iteration import Iteration

SLICE_S: Final = 0.002
"""Work of a listing in one iteration."""
PAUSE_S: Final = 0.001
"""Between two slices: all else that is due goes first."""
PAGE_BYTES: Final = 48 << 10
"""A page is sent when it has so many bytes. With one more row it is still below MAX_ANSWER_BYTES."""
MAX_ROW_BYTES: Final = 64 << 10
"""A larger row is left out. Names are cut far below it."""
MAX_JOBS: Final = 64
"""Questions that are answered at the same time."""
MAX_SURVEYS: Final = 8
"""Requests that ask the ring at the same time; each holds up to 16 MiB of rows."""
LOOK_S: Final = 0.05
"""How often a running survey looks for silent peers."""

log = structlog.get_logger("administration")

Done = Callable[[bytes], None]
"""Takes the JSON of a Reply."""


class RowSource(Protocol):
    """What this peer tells of itself, and changes."""

    def rows(self, request: Request) -> Iterator[Row | None]:
        """The rows that answer a request; None where the present slice of work must end. Raises RequestError."""


class _Job:
    """A question that is being answered. `send` takes a page, and returns False while there is no room for it."""

    __slots__ = ("limit", "rows", "send", "since", "total", "waiting")

    def __init__(self, request: Request, rows: Iterator[Row | None], send: Callable[[bytes, bool], bool]) -> None:
        self.limit = request.limit
        self.rows = rows
        self.send = send
        self.total = 0
        self.waiting: tuple[bytes, bool] | None = None
        """A page for which there was no room, and whether it is the last."""
        self.since = 0.0


class Desk:
    """One per peer. Create it inside a running event loop, and `open` it when the node has started."""

    def __init__(self, node: Node, iteration: Iteration, source: RowSource) -> None:
        self._node = node
        self._iteration = iteration
        self._source = source
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[_Job] = deque()
        self._turn_timer: asyncio.TimerHandle | None = None
        self._number = 0
        self._surveys: dict[int, tuple[Survey, Done]] = {}
        self._look_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def open(self) -> None:
        node = self._node
        node.ring.on_question = self._asked
        node.ring.on_answer = self._answered
        node.on_request = self._requested

    def close(self) -> None:
        """Answer nobody any more. Idempotent."""
        self._closed = True
        for timer in (self._turn_timer, self._look_timer):
            if timer is not None:
                timer.cancel()

    # Requests

    def _requested(self, body: bytes, done: Done) -> None:
        """A request has come to the overlay port."""
        try:
            request = decode_request(body)
        except RequestError as error:
            done(_failed(str(error)))
            return
        self.ask(request, Asker.OVERLAY_PORT, done)

    def ask(self, request: Request, asker: Asker, done: Done) -> None:
        """Ask all peers of the ring; `done` is called once, within ALL_S and a little."""
        why = refusal(asker, request.about)
        if not why and len(self._surveys) >= MAX_SURVEYS:
            why = "this peer answers too many requests already: try again"
        if why or self._closed:
            done(_failed(why or "this peer stops"))
            return
        if request.about in CHANGES:
            what, name = str(request.about), shown(request.client or request.filter)
            log.info("asked for a change", what=what, name=name, asker=asker.name.lower())
        now = self._iteration.begin()
        self._number += 1
        survey = Survey(request, now)
        self._surveys[self._number] = survey, done
        ring = self._node.ring
        survey.begin(ring.me, ring.leaves.peers, ring.table)
        self._go_on(self._number)
        if self._look_timer is None:
            self._look_timer = self._loop.call_later(LOOK_S, self._look)

    def _go_on(self, number: int) -> None:
        """Ask the next peers, or give the answer."""
        found = self._surveys.get(number)
        if found is None:
            return
        survey, done = found
        now = self._iteration.begin()
        body = msgspec.json.encode(survey.request)
        me = self._node.ring.me
        for peer in survey.take_asked(now):
            if peer.id == me.id:
                self._begin_job(survey.request, self._own_sink(number))
            else:
                self._node.post(peer, Question(number, body))
        # This peer may have answered within the loop above, and so ended the survey.
        if survey.done and self._surveys.pop(number, None) is not None:
            done(survey.reply(now))

    def _own_sink(self, number: int) -> Callable[[bytes, bool], bool]:
        def take(body: bytes, last: bool) -> bool:
            self._answered(self._node.ring.me, Answer(number, last, (), body))
            return True

        return take

    def _answered(self, sender: Peer, answer: Answer) -> None:
        found = self._surveys.get(answer.number)
        if found is None:
            return  # It has come too late.
        survey, now = found[0], self._iteration.begin()
        try:
            survey.page(sender, decode_page(answer.body), answer.leaves, answer.last, now)
        except RequestError as error:
            survey.unreadable(sender, str(error))
        self._go_on(answer.number)

    def _look(self) -> None:
        now = self._iteration.begin()
        self._look_timer = None
        for number, (survey, _) in list(self._surveys.items()):
            survey.tick(now)
            self._go_on(number)
        if self._surveys and not self._closed:
            self._look_timer = self._loop.call_later(LOOK_S, self._look)

    # Answers

    def _asked(self, sender: Peer, question: Question) -> None:
        """A peer asks about this one."""
        send = self._link_sink(sender, question.number)
        try:
            request = decode_request(question.body)
            why = refusal(Asker.PEER, request.about)
            if why:
                raise RequestError(why)
        except RequestError as error:
            send(_fault(str(error)), True)
            return
        self._begin_job(request, send)

    def _link_sink(self, peer: Peer, number: int) -> Callable[[bytes, bool], bool]:
        node, first = self._node, True

        def send(body: bytes, last: bool) -> bool:
            nonlocal first
            # A message of the ring that finds its link full would close it.
            if node.room(peer.id) < 2 * MAX_ANSWER_BYTES:
                return False
            node.post(peer, Answer(number, last, node.ring.leaves.peers if first else (), body))
            first = False
            return True

        return send

    def _begin_job(self, request: Request, send: Callable[[bytes, bool], bool]) -> None:
        me = self._node.ring.me
        if not _is_meant(request.peer, me):
            send(msgspec.json.encode(Page()), True)
        elif len(self._jobs) >= MAX_JOBS:
            send(_fault("it answers too many questions already"), True)
        else:
            self._jobs.append(_Job(request, self._source.rows(request), send))
            if self._turn_timer is None and not self._closed:
                self._turn_timer = self._loop.call_later(0, self._turn)

    def _turn(self) -> None:
        """One slice of the first answer; the others follow in turn."""
        self._iteration.begin()
        self._turn_timer = None
        job = self._jobs.popleft()
        if self._work(job):
            self._jobs.append(job)
        if self._jobs and not self._closed:
            self._turn_timer = self._loop.call_later(PAUSE_S, self._turn)

    def _work(self, job: _Job) -> bool:
        """Whether more is to do."""
        if job.waiting is not None:
            # The peer does not read, or its link has gone: whoever asks goes on without this answer.
            if not job.send(*job.waiting):
                return self._loop.time() < job.since + SILENT_S
            job.waiting = None
        try:
            rows, ended = self._slice(job)
        except RequestError as error:
            body, ended = _fault(str(error)), True
        except Exception:
            # The root of a callback: the peer that asked must not wait for an answer that never comes.
            log.exception("unhandled error while answering a request")
            body, ended = _fault("it failed to answer; its log has the reason"), True
        else:
            if not rows and not ended:
                return True
            body = msgspec.json.encode(Page(rows=rows, total=job.total if ended else 0))
        if not job.send(body, ended):
            job.waiting, job.since = (body, ended), self._loop.time()
            return True
        return not ended

    def _slice(self, job: _Job) -> tuple[list[msgspec.Raw], bool]:
        """Rows of one slice, and whether they were the last."""
        began = perf_counter()
        rows: list[msgspec.Raw] = []
        size = 0
        for row in job.rows:
            if row is None:
                return rows, False
            job.total += 1
            if job.total <= job.limit:
                encoded = msgspec.json.encode(row)
                if len(encoded) <= MAX_ROW_BYTES:
                    rows.append(msgspec.Raw(encoded))
                    size += len(encoded)
            if size >= PAGE_BYTES or perf_counter() - began > SLICE_S:
                return rows, False
        return rows, True


def _is_meant(name: str, me: Peer) -> bool:
    """Whether a request for one peer is for this one."""
    return not name or me.id.hex().startswith(name.lower()) or name == show((me.host, me.port))


def _fault(why: str) -> bytes:
    return msgspec.json.encode(Page(fault=why))


def _failed(why: str) -> bytes:
    return msgspec.json.encode(Reply(error=why))
