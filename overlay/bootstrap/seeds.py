"""The seeds: the addresses through which a peer finds its ring, and finds it again after a split.

Each seed is asked who it is, again and again: quickly until this peer is part of a ring, rarely afterwards, never while
a link with it is open. Owns the tasks that do so, and the decision to found a ring. Who answered goes to the owner.
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
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.queries import MyselfError

FIRST_RETRY: Final = 1 / 8
"""The pause after the first failure, in join_s; it doubles up to MAX_RETRY."""
MAX_RETRY: Final = 4.0
FIRST_FOUNDS: Final = 2.0
"""How long, in join_s, the first of the seeds waits for another that is part of a ring."""
LATELY: Final = MAX_RETRY * 2
"""For how long, in join_s, an answer counts: a seed that is there has answered again by then."""
YIELD: Final = 2.0
"""How often found_s a peer leaves it to another that joins too: that one may wait for what never comes."""
REUNION: Final = 6.0
"""How often a seed is asked by a peer that is part of a ring, in reunion_s."""
MAX_SHOWN: Final = 4
"""Addresses in a line for people."""


class Founding:
    """When a joining peer founds a ring. Given who answered, and the time.

    One ring is the aim, but a peer that is kept waiting is worse than two rings, which become one when they meet.
    So the first of the list founds soon, and all others when they have seen nobody of a ring for long: the lowest id of
    those that reach each other, and who reaches nobody. The rest wait for that one, but not for ever.
    """

    def __init__(self, me: Id, timing: Timing, spread: float, began: float) -> None:
        self._me = me
        self._timing = timing
        self._spread = spread
        self._began = began
        self._seen_at = -math.inf
        self._joining: dict[Id, tuple[Peer, float]] = {}
        self.first = False
        """Whether this peer is the first of its list."""

    def answered(self, hello: Hello, now: float) -> None:
        self._joining.pop(hello.peer.id, None)
        self._joining = {point: entry for point, entry in self._joining.items() if self._lately(entry[1], now)}
        if hello.active:
            self._seen_at = now
        else:
            self._joining[hello.peer.id] = (hello.peer, now)

    def sees(self, now: float) -> bool:
        """Whether there was a ring lately."""
        return self._lately(self._seen_at, now)

    def _lately(self, when: float, now: float) -> bool:
        return now - when < self._timing.join_s * LATELY

    def other(self, now: float) -> Peer | None:
        """Who is to found instead: the lowest id of those that are joining, if it is below ours."""
        lower = [peer for peer, when in self._joining.values() if peer.id < self._me and self._lately(when, now)]
        return min(lower, key=lambda peer: peer.id, default=None)

    def due(self, now: float) -> float:
        """When to found, as things stand."""
        if self.first:
            wait_s = self._timing.join_s * FIRST_FOUNDS
        else:
            wait_s = self._timing.found_s * self._spread * (1 if self.other(now) is None else YIELD)
        return max(self._began + wait_s, self._seen_at + self._timing.join_s * LATELY)


class Guest(Protocol):
    """Whom the seeds are for."""

    @property
    def active(self) -> bool: ...
    def introduced(self, hello: Hello) -> None:
        """Somebody at one of the seeds answered; to be told to `answered`, like those found in other ways."""

    def linked(self, peer: Id) -> bool: ...
    def found(self) -> None:
        """There is no ring yet: begin one."""

    async def introduce(self, address: Address) -> Hello: ...


class Seeds:
    """Create, `start`, and `await stop()`."""

    def __init__(self, config: OverlayConfig, own: frozenset[Address], guest: Guest, incidents: Incidents) -> None:
        self._config = config
        self._guest = guest
        self._incidents = incidents
        listed = tuple(dict.fromkeys(config.seeds))
        self.others = tuple(seed for seed in listed if seed not in own)
        self._first: Address | None = listed[0] if listed else None
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()
        self._spread = 0.75 + 0.5 * config.id / SPACE
        """Peers that were started together do not ask together."""
        self._founding = Founding(config.id, config.timing, self._spread, self._loop.time())
        self._founding.first = self._first in own

    def start(self) -> None:
        """With nobody else to ask, the ring is founded at once."""
        if not self.others:
            self._guest.found()
            return
        roots = [self._ask_on(seed) for seed in self.others]
        for root in (*roots, self._found_in_time()):
            self._tasks.append(self._loop.create_task(self._guarded(root), name="seed"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def answered(self, hello: Hello) -> None:
        """Somebody was found, here or in another way: a reason to wait, if he is of a ring or may found one."""
        self._founding.answered(hello, self._loop.time())

    def outlook(self, alone: bool) -> str | None:
        """For the status: what a joining peer waits for, or that a ring is one peer. None when all is well."""
        if self._guest.active:
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

    async def _guarded(self, root: Coroutine[None, None, None]) -> None:
        try:
            await root
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("seed_errors")

    async def _ask_on(self, seed: Address) -> None:
        join_s, reunion_s = self._config.timing.join_s, self._config.timing.reunion_s * REUNION
        known: Id | None = None
        retry_s = join_s * FIRST_RETRY
        while True:
            if known is None or not self._guest.linked(known):
                try:
                    hello = await self._guest.introduce(seed)
                except MyselfError:
                    self._is_myself(seed)
                    return
                except OverlayError as error:
                    self._incidents.warn("seeds_unreachable", show(seed), str(error))
                    known = None
                else:
                    self._incidents.forgive("seeds_unreachable", show(seed))
                    known = hello.peer.id
                    self._guest.introduced(hello)
            if self._guest.active:
                retry_s = join_s * FIRST_RETRY
                await asyncio.sleep(reunion_s * self._spread)
            else:
                await asyncio.sleep(retry_s * self._spread)
                retry_s = min(retry_s * 2, join_s * MAX_RETRY)
                known = None

    def _is_myself(self, seed: Address) -> None:
        self.others = tuple(other for other in self.others if other != seed)
        self._founding.first = self._founding.first or seed == self._first

    async def _found_in_time(self) -> None:
        """Begin a ring when that is due and this peer has not come into one."""
        look_s = self._config.timing.join_s * FIRST_FOUNDS
        while not self._guest.active:
            now = self._loop.time()
            await asyncio.sleep(min(look_s, self._founding.due(now) - now))
            if self._guest.active:
                return
            now = self._loop.time()
            if self._founding.due(now) <= now:
                if not self._founding.first:
                    self._incidents.warn("rings_founded", "seeds", f"no ring found; asked {_listed(self.others)}")
                self._guest.found()
                return
            if not self._founding.sees(now):
                self._incidents.warn("no_ring_found", "seeds", self._prospect())


def _listed(addresses: Sequence[Address]) -> str:
    shown = ", ".join(map(show, addresses[:MAX_SHOWN]))
    return shown if len(addresses) <= MAX_SHOWN else f"{shown} and {len(addresses) - MAX_SHOWN} more"
