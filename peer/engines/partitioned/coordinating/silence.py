"""Peers that leave requests unanswered: whether they answer at all, and since when they can be relied upon again.

The ring takes seconds to declare a peer dead, as that is hard to undo. To go on without a silent peer for a while is
easy to undo, so this happens much earlier, and only if somebody needs an answer of it. Knows neither partitions nor
records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Alive, Check
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.followers import ItemStreams

TRIES: Final = 3
"""Questions in one check, so that a lost message does not make a peer silent."""
MOST_LATE: Final = 0.1
"""A check proves nothing if this peer itself was late by this part of its time, or has waited as long for a processor:
the other may wait for the same processor."""
MOST_BUSY: Final = 8
"""Checks in a row for which a peer may send other messages and no answer."""
MOST_DOUBLINGS: Final = 4
SLOWER: Final = 1.5
MOST_SLOWER: Final = 3
"""A check waits for SLOWER times the time that an answer of the peer took lately: on a slow line, or a busy machine,
nobody answers within `silent_s`, and to go on without those who live stops everybody. It waits up to this many times
`silent_s` before the peer is silent, as everybody waits with it, and up to half a lease after that."""
MOST_EARLIER: Final = 16
"""Earlier checks of which a late answer still tells how long it took."""
SOON: Final = 10
"""A peer that falls silent again within this many times `steady_s` must answer for twice as long the next time, and is
waited for twice as long before it counts as silent: it may only be too busy."""


class Watch:
    """A peer that is being checked, or is silent."""

    __slots__ = (
        "answered", "asked_at", "busy", "earlier", "number", "peer", "silent", "steady_since", "wait_s", "waited_s",
    )  # fmt: skip

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.number = 0
        self.asked_at = 0.0
        self.earlier: deque[tuple[int, float]] = deque(maxlen=MOST_EARLIER)
        """The numbers of the last checks, also of the present one, and when each began."""
        self.wait_s = 0.0
        """How long the present check waits for an answer."""
        self.waited_s = 0.0
        """How long this peer had waited for a processor before."""
        self.answered = False
        """Whether the present check has an answer."""
        self.busy = 0
        """Checks in a row without an answer, during which the peer has sent other messages."""
        self.silent = False
        self.steady_since: float | None = None
        """A silent peer has answered every check from then on."""


class Silence:
    """One per engine."""

    __slots__ = ("_changed", "_checks", "_returned", "_slow", "_state", "_streams", "_watched", "waited_s")

    def __init__(self, state: MessagingContext, streams: ItemStreams, changed: Callable[[], None]) -> None:
        """`changed` is called when a peer has become silent, or is relied upon again."""
        self._state = state
        self._streams = streams
        self._changed = changed
        self.waited_s: Callable[[], float] = _no_wait
        """How long this peer has waited for a processor since its start."""
        self._watched: dict[Peer, Watch] = {}
        self._checks = 0
        self._returned: dict[Id, tuple[float, int]] = {}
        """Peers that were silent lately: until when that counts, and how often in a row."""
        self._slow: dict[Id, tuple[float, float]] = {}
        """Peers that answered a check late: until when that counts, and how long the answer took."""

    @property
    def silent(self) -> frozenset[Id]:
        return frozenset([watch.peer.id for watch in self._watched.values() if watch.silent])

    @property
    def peers(self) -> list[Peer]:
        """The silent peers, the longest silent first."""
        return [watch.peer for watch in self._watched.values() if watch.silent]

    def watches(self, peer: Peer) -> bool:
        """Whether a peer is being checked, or is silent."""
        return peer in self._watched

    def suspect(self, peer: Peer) -> None:
        """A peer has left a request unanswered for `doubt_s`."""
        if peer.id != self._state.me.id and peer not in self._watched:
            watch = self._watched[peer] = Watch(peer)
            # If another peer hears it, the checks take a detour, and it is not silent.
            self._state.find_way(peer)
            self._begin(watch)

    def follow(self, known: Callable[[Peer], bool]) -> None:
        """The ring has changed: forget the peers that are not there any more. The ring decides about them."""
        gone = [peer for peer in self._watched if not known(peer)]
        for peer in gone:
            del self._watched[peer]

    def check(self, sender: Peer, message: Check) -> None:
        self._state.send(sender, Alive(message.number))

    def alive(self, sender: Peer, message: Alive) -> None:
        watch = self._watched.get(sender)
        if watch is None:
            return
        for number, asked_at in watch.earlier:
            if number == message.number:
                self._learn(sender.id, self._state.clock.now - asked_at)
        if watch.number != message.number:
            return
        watch.answered = True
        if not watch.silent:
            del self._watched[sender]
        elif watch.steady_since is None:
            watch.steady_since = self._state.clock.now

    def _learn(self, peer_id: Id, took_s: float) -> None:
        """An answer to a check, or to a repeated question of it, has come so long after the first question."""
        now, config = self._state.clock.now, self._state.config
        if took_s > config.silent_s:
            self._slow = {known: slow for known, slow in self._slow.items() if slow[0] > now}
            self._slow[peer_id] = now + SOON * config.steady_s, max(took_s, self._slow_s(peer_id) / 2)

    def _slow_s(self, peer_id: Id) -> float:
        """How long the answers of a peer took lately, if they were late."""
        until, took_s = self._slow.get(peer_id, (0.0, 0.0))
        return took_s if self._state.clock.now < until else 0.0

    def _begin(self, watch: Watch) -> None:
        self._checks += 1
        watch.number = self._checks
        watch.asked_at = self._state.clock.now
        watch.earlier.append((watch.number, watch.asked_at))
        watch.waited_s = self.waited_s()
        watch.answered = False
        # Peers on a machine that is too busy answer late, all of them. To take over from them would make it busier.
        watch.wait_s = self._state.config.silent_s
        if not watch.silent:
            watch.wait_s = max(watch.wait_s * (1 << self._times_of(watch.peer)), self._streams.answer_s(watch.peer))
        most_s = self._state.config.lease_s / 2 if watch.silent else MOST_SLOWER * self._state.config.silent_s
        slow_s = min(SLOWER * self._slow_s(watch.peer.id), most_s)
        watch.wait_s = max(watch.wait_s, slow_s)
        self._ask(watch, watch.number, TRIES)

    def _ask(self, watch: Watch, number: int, tries: int) -> None:
        if self._watched.get(watch.peer) is not watch or watch.number != number:
            return
        if tries == 0:
            self._judge(watch)
            return
        if not watch.answered:
            self._state.send(watch.peer, Check(number))
        self._state.after(watch.wait_s / TRIES, partial(self._ask, watch, number, tries - 1))

    def _judge(self, watch: Watch) -> None:
        now = self._state.clock.now
        if not watch.answered:
            # If this peer stood still itself, the answer may be waiting to be read.
            late_s = max(now - watch.asked_at - watch.wait_s, self.waited_s() - watch.waited_s)
            if late_s <= MOST_LATE * watch.wait_s and not self._is_busy(watch):
                watch.steady_since = None
                if not watch.silent:
                    watch.silent = True
                    self._state.counters.silent_peers += 1
                    self._changed()
        elif watch.silent and self._is_steady(watch, now):
            del self._watched[watch.peer]
            self._changed()
            return
        self._begin(watch)

    def _is_busy(self, watch: Watch) -> bool:
        """Whether a peer sends other messages, and has not come to the check yet. If it goes on so, the line to it may
        be cut in one direction."""
        watch.busy = watch.busy + 1 if self._streams.heard_at(watch.peer) > watch.asked_at else 0
        return 0 < watch.busy <= MOST_BUSY

    def _times_of(self, peer: Peer) -> int:
        """How often in a row a peer was silent lately, and came back."""
        until, times = self._returned.get(peer.id, (0.0, 0))
        return times if self._state.clock.now < until else 0

    def _is_steady(self, watch: Watch, now: float) -> bool:
        """Whether a peer that was silent has answered for long enough."""
        assert watch.steady_since is not None, "an answered check sets it"
        times = self._times_of(watch.peer)
        if now < watch.steady_since + self._state.config.steady_s * (1 << times):
            return False
        # The time counts from its return, so a peer that was well for long begins anew.
        wait_s = self._state.config.steady_s * SOON * (1 << times)
        self._returned = {peer_id: known for peer_id, known in self._returned.items() if known[0] > now}
        self._returned[watch.peer.id] = now + wait_s, min(times + 1, MOST_DOUBLINGS)
        return True


def _no_wait() -> float:
    return 0.0
