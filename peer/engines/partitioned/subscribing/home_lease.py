"""The leases of the entries of this home, one for each coordinator, and how long a coordinator has owed an answer. A
lease is renewed by a digest of constant size.

Where a coordinator has other entries than the home, the home sends it all of that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import inf, nextafter
from typing import Final, Protocol

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import Directory
from ringmq.peer.engines.partitioned.messages import (
    Item,
    Present,
    Presented,
    Recall,
    Recalled,
    Register,
    Registry,
)
from ringmq.peer.engines.partitioned.subscribing.local_filter import HomePartition, LocalFilter
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.record import Number
from ringmq.peer.replication.space import partitions_in, runs_of
from ringmq.peer.streams.stream_messages import Lane

RENEWALS: Final = 5
"""Renewals within a lease, so that three late ones in a row do no harm."""
MOST_ENTRIES: Final = 256
ITEM_CHARACTERS: Final = 1 << 16
"""Bounds of one item with entries, so that it delays no other for long: names have up to 65,535 bytes."""
REGISTRY_CHARACTERS: Final = 2 << 20
"""A Registry cannot be divided, since it is true of a whole partition; a frame has 16 MiB."""


class ItemSender(Protocol):
    """The streams to other peers, as a role sees them."""

    def send(
        self, peer: Peer, item: Item, done: Callable[[], None] | None = None, lane: Lane = Lane.CONTROL
    ) -> None: ...


def pieces(filters: Iterable[LocalFilter]) -> Iterator[list[LocalFilter]]:
    """Filters divided by the bounds of one item."""
    piece: list[LocalFilter] = []
    characters = 0
    for own in filters:
        if piece and (len(piece) >= MOST_ENTRIES or characters + len(own.filter) > ITEM_CHARACTERS):
            yield piece
            piece, characters = [], 0
        piece.append(own)
        characters += len(own.filter)
    if piece:
        yield piece


def nowhere(peer: Peer) -> bool:
    """No message goes to a peer that the renewal could wait for."""
    return False


class HomeLease:
    """One per engine."""

    __slots__ = (
        "_announced", "_asked_at", "_directory", "_due", "_highest", "_partitions", "_recalls", "_silences", "_state",
        "_streams", "_unheard",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemSender,
        directory: Directory,
        partitions: Mapping[int, HomePartition],
        highest: Callable[[], Number],
    ) -> None:
        """`highest` gives the highest number of an entry so far."""
        self._state = state
        self._streams = streams
        self._directory = directory
        self._partitions = partitions
        self._highest = highest
        self._announced: dict[int, HomePartition] = {}
        """Partitions with a new coordinator, which may lack entries."""
        self._due: dict[Peer, list[HomePartition]] = {}
        """Renewals that wait for another message to their coordinator."""
        self._silences: dict[Peer, int] = {}
        """Checks since a coordinator that owes an answer was heard."""
        self._unheard: set[Peer] = set()
        """Coordinators that have not answered the last renewal."""
        self._asked_at = -inf
        """The time in the last renewal; grows with each of them."""
        self._recalls: dict[tuple[Peer, float], Recall] = {}
        """Recalls that wait for the answer to the renewal with this time."""

    def announce(self, partition: HomePartition) -> None:
        """Present the home to the new coordinator at the end of this iteration."""
        self._announced[partition.index] = partition

    def flush(self) -> None:
        """Call it after the registrations of this iteration were sent: the digest has their entries."""
        if self._announced:
            announced, self._announced = self._announced, {}
            for peer, partitions in self._by_coordinator(announced.values()).items():
                self._present(peer, partitions)

    def renew(self, later: Callable[[Peer], bool] = nowhere) -> None:
        """All leases; to be called RENEWALS times in a lease, after the registrations of this iteration.

        The renewals to coordinators that `later` names wait for `renew_at`, at most until the next call.
        """
        self._announced.clear()
        asked = self._by_coordinator(self._partitions.values())
        for peer, partitions in asked.items():
            if peer in self._unheard:
                # It may be dead, and its range be divided between its two neighbours.
                self._directory.verify(partitions[0].index)
                self._directory.verify(partitions[-1].index)
        self._unheard = set(asked)
        overdue, self._due = self._due, {}
        for peer, partitions in asked.items():
            if later(peer) and peer not in overdue:
                self._due[peer] = partitions
            else:
                self._present(peer, partitions, everything=True)

    def renew_at(self, peer: Peer) -> None:
        """Another message goes to this peer now: renew the lease there with it, if it is due."""
        due = self._due.pop(peer, None)
        if due is not None:
            # Some may have got another coordinator since.
            theirs = self._by_coordinator(due).get(peer)
            if theirs is not None:
                self._present(peer, theirs, everything=True)

    def _by_coordinator(self, partitions: Iterable[HomePartition]) -> dict[Peer, list[HomePartition]]:
        by_peer: dict[Peer, list[HomePartition]] = {}
        for partition in partitions:
            if partition.coordinator is not None and partition.count:
                by_peer.setdefault(partition.coordinator, []).append(partition)
        for theirs in by_peer.values():
            theirs.sort(key=lambda partition: partition.index)
        return by_peer

    def recall(self, sender: Peer, message: Recall) -> None:
        """A coordinator may lack entries: it has them before the answer."""
        known = self._partitions
        partitions = [known[index] for index in partitions_in(message.runs) if index in known and known[index].count]
        if partitions:
            since = self._state.clock.now - self._state.config.entry_s
            self._recalls = {key: recall for key, recall in self._recalls.items() if key[1] > since}
            self._present(sender, partitions)
            self._recalls[sender, self._asked_at] = message
        else:
            self._streams.send(sender, Recalled(message.ident))

    def _present(self, peer: Peer, partitions: list[HomePartition], *, everything: bool = False) -> None:
        count = digest = 0
        for partition in partitions:
            count += partition.count
            digest ^= partition.digest
        runs = runs_of([partition.index for partition in partitions])
        # Strictly later than before: the time identifies the answer.
        self._asked_at = max(self._state.clock.now, nextafter(self._asked_at, inf))
        self._streams.send(peer, Present(runs, count, digest, everything, self._asked_at))

    def presented(self, sender: Peer, message: Presented) -> None:
        self.heard(sender)
        recall = self._recalls.pop((sender, message.asked_at), None)
        if not message.same:
            self._compare(sender, message, frozenset() if recall is None else frozenset(partitions_in(recall.runs)))
        if recall is not None:
            self._streams.send(sender, Recalled(recall.ident))

    def _compare(self, sender: Peer, message: Presented, recalled: Collection[int]) -> None:
        theirs = {index: (count, digest) for index, count, digest in message.digests}
        for index in theirs:
            if index not in self._partitions:
                self._streams.send(sender, Registry(index, self._highest(), ()))
        for index in {*theirs, *partitions_in(message.runs)}:
            partition = self._partitions.get(index)
            if partition is None or (partition.coordinator != sender and index not in recalled):
                continue
            # Filters that came since the question differ too. To send them again does no harm, and streams are in
            # order, so this list is never behind a registration.
            if (partition.count, partition.digest) != theirs.get(index, (0, 0)):
                self._correct(sender, partition)

    def heard(self, peer: Peer) -> None:
        self._unheard.discard(peer)
        self.stream_lost(peer)

    def stream_lost(self, peer: Peer) -> None:
        """Its answers are lost: the checks count from now on."""
        self._silences.pop(peer, None)

    def owes(self, peer: Peer, partitions: list[int]) -> None:
        """A coordinator owes an answer: ask after 2, 4, 8 … checks whether there is a successor."""
        self._directory.doubt(min(partitions))
        self._directory.doubt(max(partitions))
        checks = self._silences[peer] = self._silences.get(peer, 0) + 1
        # Ends stay for up to two checks after their confirmation, so the first check proves nothing.
        if checks > 1 and checks & (checks - 1) == 0:
            # If it is dead, its range is divided between its two neighbours.
            self._directory.verify(min(partitions))
            self._directory.verify(max(partitions))

    def _correct(self, peer: Peer, partition: HomePartition) -> None:
        """Send all entries of a partition to its coordinator."""
        now = self._state.clock.now
        wanted = list(partition.wanted())
        for own in wanted:
            if own.question is not None:
                own.question.asks(now)
        if sum(len(own.filter) for own in wanted) <= REGISTRY_CHARACTERS:
            entries = tuple([own.entry() for own in wanted])
            self._streams.send(peer, Registry(partition.index, self._highest(), entries))
        else:
            # Without a Registry the coordinator keeps entries that this home has not: they bring unwanted messages,
            # which are dropped. Missing entries would lose messages.
            for piece in pieces(wanted):
                self._streams.send(peer, Register(tuple([own.entry() for own in piece])))
