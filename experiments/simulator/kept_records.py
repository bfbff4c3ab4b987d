"""The records that a simulated peer keeps for others, as the checks see them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of_filter
from ringmq.peer.replication.record import RecordKind

partition_of = lru_cache(maxsize=None)(partition_of_filter)
"""The partition of a filter. The checks ask for the same ones of every peer, and a run has some thousands."""


class KeptRecords:
    """The records of one peer."""

    def __init__(self, engine: PartitionedEngine) -> None:
        self._engine = engine
        self._replicas = engine.replicas

    def partitions(self) -> Iterable[int]:
        """The partitions that the peer has records of."""
        return self._replicas.partitions()

    def acts(self, partition: int) -> bool:
        """Whether the peer coordinates a partition."""
        return self._engine.acts(partition)

    def served_by(self, topic_filter: str) -> str | None:
        """The wide filter of this peer that serves a filter of its clients."""
        return self._engine.subscriber.served_by(topic_filter)

    def has_entry(self, topic_filter: str, peer_id: Id) -> bool:
        key = (RecordKind.ENTRY, topic_filter, peer_id)
        record = self._replicas.records(partition_of(topic_filter)).get(key)
        return record is not None and not record.gone

    def entries(self, partition: int) -> set[tuple[str, Id]]:
        """The filters of the partition, each with its subscriber."""
        return {
            (record.name, record.home.id)
            for record in self._replicas.records(partition).values()
            if record.kind is RecordKind.ENTRY and not record.gone and record.home is not None
        }

    def present(self, partition: int) -> frozenset[tuple[object, ...]]:
        """All records that are not gone: equal at a coordinator and its shadows once the ring is quiet."""
        records = self._replicas.records(partition).values()
        return frozenset((*record.key, record.number, record.body) for record in records if not record.gone)


def records_of(engine: object) -> KeptRecords:
    assert isinstance(engine, PartitionedEngine), "Scribe keeps no records with coordinators"
    return KeptRecords(engine)
