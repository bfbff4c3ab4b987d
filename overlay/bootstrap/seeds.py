"""The seeds: the addresses through which a peer finds its ring, and finds it again after a split.

Each seed is asked for an introduction repeatedly: often until this peer is part of a ring, rarely afterwards, never
while a link with it is open. Owns these tasks and the decision to found a ring. Answers go to the owner.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine, Sequence
from typing import Final, Protocol

from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import Timing
from ringmq.overlay.errors import IdTakenError, OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.queries import MyselfError

FIRST_RETRY: Final = 1 / 8
"""The pause after the first failure, in join_s; it doubles up to MAX_RETRY."""
MAX_RETRY: Final = 4.0
FIRST_FOUNDS: Final = 2.0
"""Time, in join_s, that the first of the seeds waits for another seed that is part of a ring."""
RECENT: Final = MAX_RETRY * 2
"""Time, in join_s, for which an answer counts: a seed that is running has answered again by then."""
YIELD: Final = 2.0
"""Time, in found_s, that a peer leaves the founding to another joining peer, which may itself wait in vain."""
REUNION: Final = 6.0
"""Period, in reunion_s, in which a peer that is part of a ring asks a seed."""
MAX_SHOWN: Final = 4
"""Addresses in a line for people."""


class Founding:
    """Decides when a joining peer founds a ring, by the answers of others and the time.

    One ring is the aim, but a peer that waits for ever is worse than two rings, which become one when they meet. So
    the first seed of the list founds soon, and all others after a long time without a ring: of the peers that reach
    each other the lowest id, and any peer that reaches no other. The rest waits for the lowest id, but not for ever.
    """

    def __init__(self, me: Id, timing: Timing, spread: float, began: float, *, first: bool = False) -> None:
        self._me = me
        self._timing = timing
        self._spread = spread
        self._began = began
        self._seen_at = -math.inf
        self._joining: dict[Id, tuple[Peer, float]] = {}
        self.first = first
        """Whether this peer is the first seed of its list."""

    def lead(self) -> None:
        """This peer has turned out to be the first seed of its list: found soon, and wait for no other joining peer."""
        self.first = True

    def answered(self, hello: Hello, now: float) -> None:
        self._joining.pop(hello.peer.id, None)
        # Old answers are dropped here: a stranger can make up any number of ids, and each would stay.
        self._joining = {peer_id: entry for peer_id, entry in self._joining.items() if self._recent(entry[1], now)}
        if hello.active:
            self._seen_at = now
        else:
            self._joining[hello.peer.id] = (hello.peer, now)

    def sees(self, now: float) -> bool:
        """Whether a peer of a ring has answered recently."""
        return self._recent(self._seen_at, now)

    def _recent(self, when: float, now: float) -> bool:
        return now - when < self._timing.join_s * RECENT

    def other(self, now: float) -> Peer | None:
        """The peer that should found instead: the lowest id of all joining peers, if it is below ours."""
        lower = [peer for peer, when in self._joining.values() if peer.id < self._me and self._recent(when, now)]
        return min(lower, key=lambda peer: peer.id, default=None)

    def due(self, now: float) -> float:
        """Time of the founding, by the answers so far."""
        if self.first:
            wait_s = self._timing.join_s * FIRST_FOUNDS
        else:
            wait_s = self._timing.found_s * self._spread * (1 if self.other(now) is None else YIELD)
        # A ring that has just answered can be joined, so it holds back every founder.
        return max(self._began + wait_s, self._seen_at + self._timing.join_s * RECENT)


class SeedOwner(Protocol):
    """The joining peer."""

    @property
    def active(self) -> bool: ...
    def introduced(self, hello: Hello) -> None:
        """The peer at one of the seeds answered. Pass it to `answered`, like answers from other sources."""

    def taken(self, address: Address) -> None:
        """The peer at one of the seeds has the id of this peer."""

    def linked(self, peer: Id) -> bool: ...
    def found(self) -> None:
        """There is no ring yet: found one."""

    async def introduce(self, address: Address) -> Hello: ...


class Seeds:
    """Create, `start`, and `await stop()`."""

    def __init__(self, config: OverlayConfig, own: frozenset[Address], owner: SeedOwner, incidents: Incidents) -> None:
        self._config = config
        self._owner = owner
        self._incidents = incidents
        listed = tuple(dict.fromkeys(config.seeds))
        self.others = tuple(seed for seed in listed if seed not in own)
        self._first: Address | None = listed[0] if listed else None
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self._spread = 0.75 + 0.5 * config.id / SPACE
        """Factor for all pauses: peers that were started together do not ask together."""
        self._founding = Founding(config.id, config.timing, self._spread, self._loop.time(), first=self._first in own)

    def start(self) -> None:
        """Begin to ask. Without another seed, the ring is founded at once."""
        if not self.others:
            self._owner.found()
            return
        tasks = [self._ask_on(seed) for seed in self.others]
        for task in (*tasks, self._found_in_time()):
            self._tasks.append(self._loop.create_task(self._guarded(task), name="seed"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def answered(self, hello: Hello) -> None:
        """A peer answered, here or elsewhere: a reason to wait if it is part of a ring, or may found one."""
        self._founding.answered(hello, self._loop.time())

    def outlook(self, alone: bool) -> str | None:
        """For the status: the reason why a joining peer waits, or why a ring is one peer. None when all is well."""
        if self._owner.active:
            known = f"asks {_listed(self.others)} now and then" if self.others else "knows nobody to ask"
            return f"alone in its ring; {known}" if alone else None
        if not alone or self._founding.sees(self._loop.time()):
            return "found a ring; waits for a place in it"
        return self._prospect()

    def _prospect(self) -> str:
        now = self._loop.time()
        other = self._founding.other(now)
        unless = "" if other is None or self._founding.first else f" unless {show((other.host, other.port))} does"
        left_s = max(0.0, self._founding.due(now) - now)
        return f"no ring found; asked {_listed(self.others)}; founding in {left_s:.0f} s{unless}"

    async def _guarded(self, task: Coroutine[None, None, None]) -> None:
        try:
            await task
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("seed_errors")

    async def _ask_on(self, seed: Address) -> None:
        join_s, reunion_s = self._config.timing.join_s, self._config.timing.reunion_s * REUNION
        known: Id | None = None
        retry_s = join_s * FIRST_RETRY
        while True:
            if known is None or not self._owner.linked(known):
                try:
                    hello = await self._owner.introduce(seed)
                except MyselfError:
                    # The list may name this peer by an address that is not in `own`, such as a host name.
                    self._is_myself(seed)
                    return
                except OverlayError as error:
                    self._incidents.warn("seeds_unreachable", show(seed), str(error))
                    known = None
                    if isinstance(error, IdTakenError):
                        self._owner.taken(seed)
                else:
                    self._incidents.forgive("seeds_unreachable", show(seed))
                    known = hello.peer.id
                    self._owner.introduced(hello)
            if self._owner.active:
                retry_s = join_s * FIRST_RETRY
                await asyncio.sleep(reunion_s * self._spread)
            else:
                await asyncio.sleep(retry_s * self._spread)
                retry_s = min(retry_s * 2, join_s * MAX_RETRY)
                # While this peer joins, a linked seed is asked too: its answer says whether it is in a ring by now.
                known = None

    def _is_myself(self, seed: Address) -> None:
        self.others = tuple(other for other in self.others if other != seed)
        if seed == self._first:
            self._founding.lead()

    async def _found_in_time(self) -> None:
        """Found a ring when that is due, unless this peer has joined a ring."""
        look_s = self._config.timing.join_s * FIRST_FOUNDS
        while not self._owner.active:
            now = self._loop.time()
            # At most `look_s`, as each answer may bring the time forward or put it off.
            await asyncio.sleep(min(look_s, self._founding.due(now) - now))
            if self._owner.active:
                return
            now = self._loop.time()
            if self._founding.due(now) <= now:
                if not self._founding.first:
                    self._incidents.warn("rings_founded", "seeds", f"no ring found; asked {_listed(self.others)}")
                self._owner.found()
                return
            if not self._founding.sees(now):
                self._incidents.warn("no_ring_found", "seeds", self._prospect())


def _listed(addresses: Sequence[Address]) -> str:
    shown = ", ".join(map(show, addresses[:MAX_SHOWN]))
    return shown if len(addresses) <= MAX_SHOWN else f"{shown} and {len(addresses) - MAX_SHOWN} more"
