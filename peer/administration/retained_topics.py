"""The retained messages of the topics that a peer coordinates, in steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.record import RecordKind, SharedRecord

LOOKED_AT_ONCE: Final = 500
"""Topics in one step, some 1 ms."""


def retained_here(engine: PartitionedEngine, topic_filter: str) -> Iterator[SharedRecord | None]:
    """Records that match a filter, each once in the ring: those of shadows are left out. None ends a step.

    Messages may come and go between two steps.
    """
    index, store = engine.coordinator.retaining.index, engine.replicas
    wanted = inner_of(topic_filter)
    after: str | None = None
    while True:
        found, after = index.look_through(wanted, after, LOOKED_AT_ONCE)
        for topic, partition in found:
            record = store.get(partition, (RecordKind.RETAINED, topic, 0))
            if record is not None and not record.gone and engine.acts(partition):
                yield engine.coordinator.told(record)
        if after is None:
            return
        yield None
