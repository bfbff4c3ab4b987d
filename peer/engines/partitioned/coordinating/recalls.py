"""Entries that no copy has: a coordinator asks the homes themselves.

When a coordinator and its shadows are gone together, the entries of the homes that live are with these homes alone.
Until all of them have presented theirs, the coordinator may lack some, and no publisher without routes from before may
trust its own. In a ring that a leaf set sees whole this takes two round trips. A peer that has just left the ring may
live behind a cut, and is waited for as long as its entries would last, `entry_s`. So are the homes of a larger ring, as
nobody knows all of them.

Likewise when a peer is back that was behind a cut. Its entries may have lapsed here, and others may have begun at the
coordinators of its part. So it is asked, and so are those that come back after it. Knows neither entries nor
publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from math import inf
from typing import Final, Protocol

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Recall, Recalled
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.space import runs_of

MOST_ABSENT: Final = 1024
"""Peers that have left the ring and may be back, and are remembered."""


class Completion(Protocol):
    """The part of the holders that a recall uses."""

    def is_incomplete(self, partition: int) -> bool:
        """Whether entries may be missing in a partition."""

    def lack(self, partitions: Collection[int]) -> None:
        """Entries may be missing in these partitions."""

    def complete(self, partitions: Collection[int]) -> None:
        """They lack no entry of any home any more."""

    def lost(self, peer: Peer) -> None:
        """Routes may be missing at a publisher: it begins anew."""


class OpenRecall:
    """Partitions whose homes are asked, and the peers that have not answered."""

    __slots__ = ("asked", "awaited", "began_at", "for_return", "partitions")

    def __init__(self, partitions: Iterable[int], began_at: float, for_return: bool) -> None:
        self.partitions = set(partitions)
        self.began_at = began_at
        self.for_return = for_return
        """It began as a peer is back, and not as no copy was met."""
        self.asked: set[Peer] = set()
        self.awaited: dict[Id, Peer] = {}


class Recalls:
    """One per coordinator."""

    __slots__ = (
        "_absent", "_acting", "_greeted", "_holders", "_idents", "_known", "_look_at", "_missing", "_open",
        "_returned_at", "_state", "_streams",
    )  # fmt: skip

    def __init__(
        self, state: MessagingContext, streams: ItemStreams, holders: Completion, acting: Callable[[], Collection[int]]
    ) -> None:
        """`acting` returns the partitions that this peer coordinates."""
        self._state = state
        self._streams = streams
        self._holders = holders
        self._acting = acting
        self._idents = 0
        self._open: dict[int, OpenRecall] = {}
        self._look_at = inf
        """When the next look at all of them is due, as the first has waited long enough for missing peers."""
        self._known: dict[Id, Peer] = {}
        self._absent: dict[Id, Peer] = {}
        """Peers that have left the ring, whenever, and are not back."""
        self._greeted: set[Id] = set()
        """Those that have asked for routes nevertheless, and are not in the leaf set yet."""
        self._returned_at = -inf
        """When a peer was back last that was behind a cut."""
        self._missing: dict[Id, float] = {}
        """Peers that have left the ring and are not back, and when: not longer ago than `entry_s`."""

    def __len__(self) -> int:
        """The number of partitions that are recalled."""
        return sum(len(recall.partitions) for recall in self._open.values())

    def took_over(self, partitions: Collection[int]) -> None:
        """This peer coordinates these partitions now. Call it before any holder is given them."""
        lacking = [partition for partition in partitions if self._holders.is_incomplete(partition)]
        self._begin(lacking, for_return=False)
        if self._state.clock.now < self._returned_at + 2 * self._state.config.slow_retry_s:
            # Their copies are whole, but perhaps of the other part.
            self._begin(set(partitions).difference(lacking), for_return=True)

    def _begin(self, partitions: Collection[int], for_return: bool) -> None:
        """Ask all peers, unless there are some that this one does not know."""
        if not partitions or not self._state.overlay.sees_all:
            return
        if for_return:
            self._holders.lack(partitions)
        self._idents += 1
        recall = self._open[self._idents] = OpenRecall(partitions, self._state.clock.now, for_return)
        self._ask(self._idents, recall)

    def _ask(self, ident: int, recall: OpenRecall) -> None:
        """Ask the peers that were not asked yet: also those that have just come, which may bring sessions with them."""
        for peer in (self._state.me, *self._state.overlay.leaves):
            if peer not in recall.asked:
                recall.asked.add(peer)
                recall.awaited[peer.id] = peer
                self._streams.send(peer, Recall(ident, runs_of(recall.partitions)))

    def recalled(self, sender: Peer, message: Recalled) -> None:
        recall = self._open.get(message.ident)
        if recall is not None and recall.awaited.get(sender.id) == sender:
            del recall.awaited[sender.id]
            self._see(message.ident, recall)

    def _see(self, ident: int, recall: OpenRecall) -> None:
        if not recall.partitions:
            del self._open[ident]
        elif not recall.awaited:
            missing_s = self._missing_s(recall)
            if missing_s <= 0:
                del self._open[ident]
                self._finish(recall)
            elif self._state.clock.now + missing_s < self._look_at:
                self._look_at = self._state.clock.now + missing_s
                self._state.after(missing_s, self._look)

    def _look(self) -> None:
        self._look_at = inf
        for ident, recall in list(self._open.items()):
            self._see(ident, recall)

    def _finish(self, recall: OpenRecall) -> None:
        """Another recall of the same partitions may go on."""
        others = [other.partitions for other in self._open.values()]
        self._holders.complete(recall.partitions.difference(*others))

    def _missing_s(self, recall: OpenRecall) -> float:
        """For how long entries of peers may be in force that are not there."""
        now, entry_s = self._state.clock.now, self._state.config.entry_s
        if recall.for_return:
            # Those that were behind the same cut are back soon after the first, or are dead.
            return recall.began_at + self._state.config.slow_retry_s - now if self._absent else 0.0
        self._missing = {peer_id: at for peer_id, at in self._missing.items() if at + entry_s > now}
        return max([at + entry_s - now for at in self._missing.values()], default=0.0)

    def follow(self) -> None:
        """The ring has changed."""
        known = {peer.id: peer for peer in (self._state.me, *self._state.overlay.leaves)}
        left = [peer for peer_id, peer in self._known.items() if peer_id not in known]
        self._known = known
        self._missing.update(dict.fromkeys([peer.id for peer in left], self._state.clock.now))
        self._see_returned(left)
        for peer_id in self._missing.keys() & known.keys():
            del self._missing[peer_id]
        for ident, recall in list(self._open.items()):
            if not self._state.overlay.sees_all:
                del self._open[ident]
                continue
            recall.awaited = {peer_id: peer for peer_id, peer in recall.awaited.items() if known.get(peer_id) == peer}
            self._ask(ident, recall)
            self._see(ident, recall)

    def _see_returned(self, left: Iterable[Peer]) -> None:
        """Which of the absent peers are back. One that has started again has met nobody in between."""
        known, absent = self._known, self._absent
        absent.update((peer.id, peer) for peer in left)
        back = [peer for peer_id, peer in absent.items() if peer_id in known]
        for peer in back:
            del absent[peer.id]
            self._greet(peer)
            self._greeted.discard(peer.id)
        if len(absent) > MOST_ABSENT:
            oldest = next(iter(absent))
            del absent[oldest]
            self._greeted.discard(oldest)
        if any(known[peer.id] == peer for peer in back):
            self._see_return()

    def met(self, peer: Peer) -> None:
        """A peer wants routes, or to trust those that it has. It may be back, and not in the leaf set yet."""
        if self._absent.get(peer.id) != peer:
            return
        self._greet(peer)
        if self._state.clock.now >= self._returned_at + self._state.config.slow_retry_s:
            self._see_return()

    def _greet(self, peer: Peer) -> None:
        """A peer is back. What it was sent meanwhile may have come late, and says nothing of what its part has granted:
        it begins anew, with the word that entries may be missing."""
        if peer.id not in self._greeted:
            self._greeted.add(peer.id)
            self._holders.lost(peer)

    def _see_return(self) -> None:
        self._returned_at = self._state.clock.now
        self._begin(self._acting(), for_return=True)

    def stopped(self, partitions: Collection[int]) -> None:
        """Other peers coordinate these partitions now."""
        for ident, recall in list(self._open.items()):
            recall.partitions.difference_update(partitions)
            self._see(ident, recall)

    def lost(self, peer: Peer) -> None:
        """The stream to a peer was lost, with the question or with what came before the answer."""
        if any(recall.awaited.get(peer.id) == peer for recall in self._open.values()):
            # Not at once: a peer that has started again is lost with each item.
            self._state.after(self._state.config.retry_s, partial(self._ask_again, peer))

    def _ask_again(self, peer: Peer) -> None:
        for ident, recall in self._open.items():
            if recall.awaited.get(peer.id) == peer:
                self._streams.send(peer, Recall(ident, runs_of(recall.partitions)))
