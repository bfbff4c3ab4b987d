"""The records that a new coordinator collects from the other owners of its partitions, and the answers of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import State, StateRequest
from ringmq.peer.replication.copying import PIECE_BYTES
from ringmq.peer.replication.followers import join_peers
from ringmq.peer.replication.partition_store import PARTIAL, WHOLE, PartitionStore
from ringmq.peer.replication.record import SharedRecord, is_higher
from ringmq.peer.replication.rows import RowWriter
from ringmq.peer.replication.space import Runs, numbered_runs, partitions_in, runs_of


class Gathering:
    """Partitions with the same owners, whose records this peer collects."""

    __slots__ = ("awaited", "began_at", "epochs", "holders", "ident", "owners", "partitions", "silent", "used", "whole")

    def __init__(
        self, ident: int, owners: tuple[Peer, ...], silent: Peer | None, me: Id, partitions: set[int], now: float
    ) -> None:
        self.ident = ident
        self.owners = owners
        self.silent = silent
        """The nearest peer, if it is silent and this peer is to act for it."""
        self.partitions = partitions
        self.awaited = {peer.id: peer for peer in owners if peer.id != me and peer != silent}
        self.began_at = now
        self.epochs: dict[int, int] = {}
        self.holders: dict[Id, Peer] = {}
        self.whole: set[int] = set()
        """Partitions of which some owner has had all records in force."""
        self.used: set[int] = set()
        """Partitions that some owner knows the coordinator of, and has not all records of."""

    def learn(self, message: State) -> None:
        """What an owner says beside its records."""
        for first, last, number in message.epochs:
            for partition in range(first, last + 1):
                if is_higher(number, self.epochs.get(partition, 0)):
                    self.epochs[partition] = number
        join_peers(self.holders, message.holders)
        self.whole.update(partitions_in(message.whole))
        self.used.update(partitions_in(message.partial))


def states_of(
    store: PartitionStore,
    request: StateRequest,
    given: Mapping[int, int],
    holders: tuple[Peer, ...],
    refused: Runs,
    told: Callable[[SharedRecord], SharedRecord],
) -> Iterator[State]:
    """The answer to a request, in pieces: the records of the given partitions that the sender of the request lacks.
    The numbers of `given` say whether these are all in force."""
    known = dict(request.digests)
    writer = RowWriter()
    for partition in given:
        records: Iterable[SharedRecord] = store.records(partition).values()
        if known.get(partition, 0) == store.digest(partition):
            # Tombstones are forgotten at different times, and the digest leaves them out.
            records = [record for record in records if record.gone]
        for record in records:
            writer.add(partition, told(record))
            if writer.size >= PIECE_BYTES:
                yield State(request.ident, (), writer.homes, tuple(writer.rows), (), more=True)
                writer = RowWriter()
    epochs = numbered_runs([(partition, store.epoch(partition).number) for partition in given])
    whole, lacking = (runs_of(p for p in given if given[p] == state) for state in (WHOLE, PARTIAL))
    rows = tuple(writer.rows)
    yield State(request.ident, epochs, writer.homes, rows, holders, refused, whole=whole, partial=lacking)
