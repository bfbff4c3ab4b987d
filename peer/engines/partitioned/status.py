"""The status of the partitioned engine: a snapshot for `ringmq status`, bounded in size.

Reads the engine and changes nothing. How it is shown to people is not its business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_topic_name, matches
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.lasting import is_away, is_lasting
from ringmq.peer.engines.partitioned.enrolling.enrolments import Enrolments
from ringmq.peer.engines.partitioned.messages import EntryFlag
from ringmq.peer.engines.partitioned.names import prefixes_of
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FINAL, FilterStage
from ringmq.peer.engines.partitioned.subscribing.wide_filter import WideEntry, WideFilter
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.messaging.status_parts import (
    MAX_SHOWN,
    id_of,
    short,
    shown_choice,
    shown_peer,
    shown_queues,
    shown_settings,
)
from ringmq.peer.replication.followers import Follower
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.space import key_of_partition

if TYPE_CHECKING:
    from ringmq.peer.engines.partitioned.engine import PartitionedEngine


def describe(engine: PartitionedEngine, now: float, counted: Mapping[str, int]) -> dict[str, Any]:
    """A JSON-able snapshot. `counted` has further counters, of the shell."""
    streams = {f"stream_{name}": count for name, count in engine.streams.counters.as_dict().items()}
    return {
        "settings": shown_settings(engine.config),
        "partitions": _partitions(engine),
        "publishing": _publishing(engine, now),
        "subscribing": _subscribing(engine),
        "client_ids": _client_ids(engine.enrolments),
        "queues": shown_queues(engine.waiting_bytes, engine.send_windows),
        "counters": {**engine.counters.as_dict(), **streams, **counted},
    }


def describe_topic(
    engine: PartitionedEngine, topic: str, towards: Callable[[Id], Peer | None]
) -> dict[str, Any] | None:
    """The status of one topic: for each partition that may have subscribers of it, the next peer towards its
    coordinator.

    `towards` computes that peer from the key of a partition; None: this peer is the nearest. JSON-able; None for an
    invalid topic.
    """
    try:
        check_topic_name(topic)
    except PacketError:
        return None
    # All partitions share these bounds: a topic needs as many of them as it has levels, and the status has a maximal
    # size.
    room, holder_room = MAX_SHOWN, MAX_SHOWN
    shown_partitions = []
    for partition, filters in _filters_by_partition(engine, topic).items():
        nearer = towards(key_of_partition(partition))
        held = None
        if partition in engine.replicas.epochs or engine.replicas.records(partition):
            subscribers = _subscribers(engine.replicas.records(partition).values(), topic)
            holders = engine.coordinator.holders.of(partition)
            held = _partition(engine, partition) | {
                "subscribers_total": len(subscribers),
                "subscribers": subscribers[:room],
                "holding": [shown_peer(holder.peer) for holder in holders[:holder_room]],
            }
            room -= len(held["subscribers"])
            holder_room -= len(held["holding"])
        shown_partitions.append(
            {
                "partition": partition,
                "filters": [short(name) for name in filters],
                "nearer": None if nearer is None else shown_peer(nearer),
                "held": held,
            }
        )
    return {"topic": short(topic), "partitions": shown_partitions}


def _filters_by_partition(engine: PartitionedEngine, topic: str) -> dict[int, list[str]]:
    """The partitions of a topic, each with the topic, or the widest filters of the prefixes that it is for."""
    found = {engine.names.partition_of(topic): [topic]}
    # The topic itself is the last prefix. Repeated names come of empty levels.
    for prefix in dict.fromkeys(reversed(prefixes_of(topic))):
        if prefix != topic:
            found.setdefault(engine.names.partition_of(prefix), []).append(f"{prefix}/#" if prefix else "#")
    return found


def _subscribers(records: Iterable[SharedRecord], topic: str) -> list[dict[str, str]]:
    return [
        {"filter": short(record.name), **shown_peer(record.home), "entry": _kind_of_entry(record)}
        for record in records
        if record.kind is RecordKind.ENTRY and record.home is not None and (not record.gone or is_away(record))
        if matches(inner_of(record.name), topic)
    ]


def _kind_of_entry(record: SharedRecord) -> str:
    if record.flags & EntryFlag.WIDE:
        return "wide"
    return "away" if is_away(record) else "lasting" if is_lasting(record) else "passing"


def _partitions(engine: PartitionedEngine) -> dict[str, Any]:
    """`total` counts those with records; of these, the ones that this peer coordinates are shown first."""
    coordinator = engine.coordinator
    every = sorted(engine.replicas.partitions())
    own = [partition for partition in every if engine.acts(partition)]
    others = (partition for partition in every if not engine.acts(partition))
    kinds: Counter[RecordKind] = Counter()
    lasting: Counter[bool] = Counter()
    for (kind, flags, gone), count in engine.replicas.counts.items():
        if not gone:
            kinds[kind] += count
        if kind is RecordKind.ENTRY and flags & EntryFlag.LASTING:
            lasting[gone] += count
    shadows = {shadow for followed in coordinator.copying.followed.values() for shadow in followed}
    return {
        "owned": sum(engine.replicas.acting),
        "shadowed": coordinator.shadowed(),
        "gathering": len(coordinator.takeover),
        "total": len(every),
        "coordinated": len(own),
        "entries": kinds[RecordKind.ENTRY],
        "lasting": lasting[False],
        "away": lasting[True],
        "retained": kinds[RecordKind.RETAINED],
        "client_ids": kinds[RecordKind.CLIENT_ID],
        "holders": len(coordinator.holders),
        "shadows": [_shadow(shadow) for shadow in islice(shadows, MAX_SHOWN)],
        "shadows_total": len(shadows),
        "out_of_step": sum(shadow.behind for shadow in shadows),
        "silent": [shown_peer(peer) for peer in coordinator.silence.peers],
        "shown": [_partition(engine, partition) for partition in islice(chain(own, others), MAX_SHOWN)],
    }


def _partition(engine: PartitionedEngine, partition: int) -> dict[str, Any]:
    kinds = Counter(record.kind for record in engine.replicas.records(partition).values() if not record.gone)
    epoch = engine.replicas.epoch(partition)
    coordinator = engine.coordinator
    role = "coordinator" if engine.acts(partition) else "shadow"
    return {
        "partition": partition,
        "role": "gathering" if coordinator.takeover.gathers(partition) else role,
        "reign": epoch.number,
        "reigning": epoch.actor.hex(),
        "entries": kinds[RecordKind.ENTRY],
        "retained": kinds[RecordKind.RETAINED],
        "holders": len(coordinator.holders.of(partition)),
        "shadows": [_shadow(shadow) for shadow in coordinator.copying.followed.get(partition, ())],
    }


def _shadow(shadow: Follower) -> dict[str, Any]:
    return {**shown_peer(shadow.peer), "in_step": not shadow.behind}


def _publishing(engine: PartitionedEngine, now: float) -> dict[str, Any]:
    """`peers` of a topic is None while there is no plan, or an old one."""
    publisher = engine.publisher
    sources = list(publisher.holdings)
    return {
        "topics_total": len(publisher),
        "topics": [
            {
                "topic": short(name),
                **shown_choice(publisher.choice_for(name) if plan is None else plan.choice),
                "peers": None if plan is None else len(plan.peers),
                "groups": 0 if plan is None else len(plan.groups),
                "waiting": waiting,
                "trusted_s": _left(publisher.trusted_until(name), now),
            }
            for name, plan, waiting in islice(publisher.topics(), MAX_SHOWN)
        ],
        "held": sum(len(source.begun) for source in sources),
        "trusted": publisher.trusted_partitions(),
        "routes": publisher.filters,
        "coordinators_total": len(sources),
        "coordinators": [
            {
                **shown_peer(source.peer),
                "partitions": len(source.begun),
                "all": source.all,
                "trusted_s": _left(source.lease.until, now),
            }
            for source in sources[:MAX_SHOWN]
        ],
    }


def _client_ids(enrolments: Enrolments) -> dict[str, int]:
    moves = enrolments.moves
    moving = {"leaving": moves.leaving, "coming": moves.coming}
    return {"total": len(enrolments), "unanswered": enrolments.unanswered, **moving}


def _left(until: float, now: float) -> float:
    return round(max(0.0, until - now), 3)


def _subscribing(engine: PartitionedEngine) -> dict[str, Any]:
    """`stages` and `total` count filters of clients; `wide` those that this peer registered by itself."""
    stages = Counter(own.stage for own in engine.subscriber if not isinstance(own, WideEntry))
    return {
        "total": len(engine.subscriber),
        "wide": engine.subscriber.wide,
        "stages": {stage.name.lower(): stages[stage] for stage in FilterStage if stage not in FINAL},
        "filters": [
            {
                "filter": short(own.filter),
                "stage": own.stage.name.lower(),
                "coordinator": id_of(own.partition.coordinator),
                "wide": isinstance(own, WideEntry),
                "served_by": own.partition.entry.filter if isinstance(own.partition, WideFilter) else None,
            }
            for own in islice(engine.subscriber, MAX_SHOWN)
        ],
    }
