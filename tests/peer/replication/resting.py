"""The number of places that a replica table has read from the disk and not opened yet."""

from __future__ import annotations

from ringmq.peer.replication.replicas import ReplicaTable


def resting(replicas: ReplicaTable) -> int:
    return len(replicas._resting)
