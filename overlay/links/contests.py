"""Contests: a connection claims an id that another peer has, or had. That peer is asked before the claim counts.

Two processes have one id when a peer has started again, or when somebody uses a copy of its data folder. The known one
is asked over its link, and by an introduction at its address. If it answers either, it runs, and the claim is refused.
It does not run if its link breaks and nobody or another peer answers at its address, if the claiming process itself
answers there, or if it is silent for a while. Decides nothing about links: `overlay.links.table` does.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final

from ringmq.overlay.config import Address, show
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.link import Link

MAX_CONTESTS: Final = 256
"""Contests at one time. As many peers start again at once after a power cut; beyond it, a claim waits for its next try,
as after a crossed dial."""
ASK_SHARE: Final = 2 / 3
"""How long the known peer may take to answer, as a share of handshake_s: above the pauses of a busy peer, or a copy of
its data folder takes its id, but less than the other side waits for its HELLO. Nobody waits as long after a crash of
the process alone: the link breaks, and the address refuses at once."""
_RUNS_AT: Final = re.compile(r"is this a copy of \[?([0-9A-Za-z.:_%-]{1,255}?)\]?:(\d{1,5})'s data folder\?")

Introduce = Callable[[Address], Coroutine[None, None, Hello]]
Decide = Callable[[Link, Peer, Peer, bool], None]
"""Called with the claiming connection, the peer that it claims to be, the known peer, and whether that peer runs."""


def taken_by(known: Peer) -> str:
    """The detail of a GOODBYE "id taken", by which a newcomer learns where the peer with its id runs."""
    return f"is this a copy of {show((known.host, known.port))}'s data folder?"


def runs_at(detail: str) -> Address | None:
    """The address in such a detail."""
    found = _RUNS_AT.search(detail)
    return (found[1], int(found[2])) if found is not None and 1 <= int(found[2]) <= 65535 else None


class Contest:
    """One claim, until the known peer has answered or is known not to run."""

    __slots__ = ("claim", "known", "link", "question", "timer", "voices")

    def __init__(self, link: Link, claim: Peer, known: Peer) -> None:
        self.link = link
        self.claim = claim
        self.known = known
        self.voices: set[object] = set()
        """The ways by which the known peer may still answer: its link, and its address."""
        self.question: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Contests:
    """One per table of links. Call `ended` with each link that ends."""

    def __init__(self, handshake_s: float, introduce: Introduce, incidents: Incidents, decide: Decide) -> None:
        self._ask_s = handshake_s * ASK_SHARE
        self._introduce = introduce
        self._incidents = incidents
        self._decide = decide
        self._loop = asyncio.get_running_loop()
        self._contests: dict[Link, Contest] = {}
        self._questions: set[asyncio.Task[None]] = set()

    def open(self, link: Link, claim: Peer, known: Peer, holder: Link | None) -> bool:
        """Ask the known peer, over the open link `holder` if there is one. False: too many are being asked."""
        if len(self._contests) >= MAX_CONTESTS:
            return False
        contest = self._contests[link] = Contest(link, claim, known)
        # Messages that follow the HELLO wait for the decision.
        link.hold()
        delay_s = 0.0
        if holder is not None:
            contest.voices.add(holder)
            delay_s = 2 * holder.delay_s
            holder.ask(partial(self._close, contest, True))
        # With the same boot, the peer at that address may be the one that has dialled: its answer would prove nothing.
        if known.boot != claim.boot:
            contest.voices.add(contest)
            contest.question = self._loop.create_task(self._ask_address(contest), name=f"contest {known}")
            self._questions.add(contest.question)
            contest.question.add_done_callback(self._questions.discard)
        contest.timer = self._loop.call_later(self._ask_s + delay_s, self._close, contest, False)
        return True

    def ended(self, link: Link) -> None:
        """A connection has ended: it claims nothing any more, and nobody answers over it."""
        contest = self._contests.get(link)
        if contest is not None:
            self._forget(contest)
        for other in [other for other in self._contests.values() if link in other.voices]:
            self._silent(other, link)

    async def close(self) -> None:
        for contest in list(self._contests.values()):
            self._forget(contest)
        if self._questions:
            await asyncio.wait(list(self._questions))

    async def _ask_address(self, contest: Contest) -> None:
        known, claim = contest.known, contest.claim
        try:
            hello = await self._introduce((known.host, known.port))
        except OverlayError:
            self._silent(contest, contest)
            return
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("contest_errors")
            self._silent(contest, contest)
            return
        if hello.peer.id != known.id:
            self._silent(contest, contest)
        else:
            # The newcomer itself may answer at the address of before: then the known process is gone for certain.
            self._close(contest, hello.peer.boot != claim.boot)

    def _silent(self, contest: Contest, voice: object) -> None:
        """The known peer will not answer in this way."""
        contest.voices.discard(voice)
        if not contest.voices:
            self._close(contest, False)

    def _close(self, contest: Contest, runs: bool) -> None:
        if self._contests.get(contest.link) is contest:
            self._forget(contest)
            self._decide(contest.link, contest.claim, contest.known, runs)
            contest.link.release()

    def _forget(self, contest: Contest) -> None:
        del self._contests[contest.link]
        if contest.timer is not None:
            contest.timer.cancel()
        question = contest.question
        if question is not None and question is not asyncio.current_task(self._loop):
            question.cancel()
