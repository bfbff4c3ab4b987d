"""The status of the coordinated engine: a snapshot for `ringmq status`, bounded in size.

Reads the core and changes nothing. How it is shown to people is not its business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_topic_name, matches
from ringmq.overlay.config import show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.filter_stage import FINAL, FilterStage
from ringmq.peer.engines.coordinated.messages import Epoch, Kind
from ringmq.peer.engines.coordinated.subscriber import LocalFilter
from ringmq.peer.engines.coordinated.subscriber_lists import Registration
from ringmq.peer.engines.coordinated.topic import Topic
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.partitions import inner_of, key_of_place, places_of
from ringmq.peer.messaging.send_window import SendWindow
from ringmq.peer.replication.replica import Replica, Role

if TYPE_CHECKING:
    from ringmq.peer.engines.coordinated.engine import CoordinatedEngine

MAX_SHOWN: Final = 100
"""Entries shown for each of places, topics, lists, filters and peers; their total is always shown. They take less than
half of the size of a status, as its links may need the other half."""
MAX_NAME_CHARS: Final = 100
"""Characters shown of a topic or filter, whose 65,535 bytes would fill a status."""


def describe(core: CoordinatedEngine, now: float, counted: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A JSON-able snapshot. `counted` has further counters, of the shell."""
    return {
        "settings": _settings(core.config),
        "places": _places(core),
        "publishing": _publishing(core, now),
        "subscribing": _subscribing(core, now),
        "queues": _queues(core),
        "counters": {**core.counters.as_dict(), **(counted or {})},
    }


def describe_topic(core: CoordinatedEngine, topic: str, towards: Callable[[Id], Peer | None]) -> dict[str, Any] | None:
    """The status of one topic: for each place where it may have subscribers, the next peer towards its coordinator.

    `towards` computes that peer from the key of a place; None: this peer is the nearest. JSON-able; None for an
    invalid topic.
    """
    try:
        check_topic_name(topic)
    except PacketError:
        return None
    # All places share one bound: a topic has as many wildcard places as levels, and the status has a maximal size.
    room = MAX_SHOWN
    told = []
    for place in places_of(topic):
        nearer = towards(key_of_place(place))
        replica = core.replicas.get(place)
        shown_place = {"place": _short(place), "nearer": None if nearer is None else _peer(nearer), "held": None}
        if replica is not None:
            subscribers = _subscribers(replica, topic)
            shown, total = subscribers[:room], len(subscribers)
            shown_place["held"] = _place(replica) | {"subscribers_total": total, "subscribers": shown}
            room -= len(shown)
        told.append(shown_place)
    return {"topic": _short(topic), "places": told}


def _subscribers(replica: Replica, topic: str) -> list[dict[str, str]]:
    return [
        {"filter": _short(record.name), **_peer(record.peer)}
        for record in replica.book
        if record.kind is Kind.ENTRY and not record.gone and record.peer is not None
        if matches(inner_of(record.name), topic)
    ]


def _settings(config: PubSubConfig) -> dict[str, Any]:
    return {
        **_choice(config.dispatch),
        "rules": len(config.rules),
        "shadows": config.shadows,
        "lease_s": config.lease_s,
        "entry_s": config.entry_s,
    }


def _places(core: CoordinatedEngine) -> dict[str, Any]:
    """Those that this peer coordinates come first."""
    every = list(core.replicas)
    roles = Counter(replica.role for replica in every)
    own = (replica for replica in every if replica.coordinates)
    others = (replica for replica in every if not replica.coordinates)
    return {
        "total": len(every),
        "coordinated": roles[Role.COORDINATOR],
        "gathering": roles[Role.GATHERING],
        "copied": roles[Role.HOLDER],
        "shown": [_place(replica) for replica in islice(chain(own, others), MAX_SHOWN)],
    }


def _place(replica: Replica) -> dict[str, Any]:
    """A shadow has the version of its coordinator, 0 if it is no copy of a known one."""
    kinds = Counter(record.kind for record in replica.book if not record.gone)
    position = replica.book.position
    return {
        "place": _short(replica.place),
        "role": replica.role.name.lower(),
        **_version(replica.epoch, position if replica.coordinates else replica.synced),
        "entries": kinds[Kind.ENTRY],
        "publishers": kinds[Kind.PUBLISHER],
        "retained": kinds[Kind.RETAINED],
        "waiting": len(replica.waiters) + len(replica.stash),
        "shadows": [
            {"id": shadow.peer.id.hex(), "in_sync": shadow.acked >= position} for shadow in replica.shadows.values()
        ],
    }


def _publishing(core: CoordinatedEngine, now: float) -> dict[str, Any]:
    return {
        "topics_total": len(core.publisher),
        "topics": [_topic(topic, now) for topic in islice(core.publisher, MAX_SHOWN)],
        "lists_total": len(core.subscriber_lists),
        "lists_trusted": sum(registration.until > now for registration in core.subscriber_lists),
        "lists": [_list(registration, now) for registration in islice(core.subscriber_lists, MAX_SHOWN)],
    }


def _topic(topic: Topic, now: float) -> dict[str, Any]:
    """`peers` is None while there is no plan."""
    return {
        "topic": _short(topic.name),
        **_choice(topic.choice),
        "peers": None if topic.peers is None else len(topic.peers),
        "groups": len(topic.groups),
        "waiting": len(topic.queue),
        "trusted_s": _left(min(registration.until for registration in topic.lists), now),
    }


def _list(registration: Registration, now: float) -> dict[str, Any]:
    return {
        "place": _short(registration.place),
        "coordinator": _id(registration.coordinator),
        **_version(registration.epoch, registration.position),
        "entries": len(registration.entries),
        "trusted_s": _left(registration.until, now),
    }


def _subscribing(core: CoordinatedEngine, now: float) -> dict[str, Any]:
    stages = Counter(own.stage for own in core.subscriber)
    return {
        "total": len(core.subscriber),
        "stages": {stage.name.lower(): stages[stage] for stage in FilterStage if stage not in FINAL},
        "filters": [_filter(own, now) for own in islice(core.subscriber, MAX_SHOWN)],
    }


def _filter(own: LocalFilter, now: float) -> dict[str, Any]:
    return {
        "filter": _short(own.filter),
        "stage": own.stage.name.lower(),
        "coordinator": _id(own.coordinator),
        "heard_s": None if own.coordinator is None else round(now - own.heard_at, 3),
    }


def _queues(core: CoordinatedEngine) -> dict[str, Any]:
    return {
        "waiting_bytes": core.waiting_bytes,
        "unacknowledged": core.send_windows.waiting,
        "peers_total": len(core.send_windows),
        "peers": [_queue(send_window) for send_window in islice(core.send_windows, MAX_SHOWN)],
    }


def _queue(send_window: SendWindow) -> dict[str, Any]:
    return {
        **_peer(send_window.peer),
        "on_their_way": len(send_window.in_flight),
        "behind": len(send_window.waiting),
        "tries": send_window.tries,
    }


def _choice(choice: Choice) -> dict[str, Any]:
    return {"dispatch": choice.name, "fanout": None if choice.fanout == UNBOUNDED else choice.fanout}


def _version(epoch: Epoch | None, position: int) -> dict[str, Any]:
    """Which state of a list: the reign's number and coordinator, and how many changes it has had."""
    return {
        "reign": 0 if epoch is None else epoch.number,
        "reigning": None if epoch is None else epoch.coordinator.hex(),
        "position": position,
    }


def _peer(peer: Peer) -> dict[str, str]:
    return {"id": peer.id.hex(), "address": show((peer.host, peer.port))}


def _id(peer: Peer | None) -> str | None:
    return None if peer is None else peer.id.hex()


def _left(until: float, now: float) -> float:
    return round(max(0.0, until - now), 3)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else name[:MAX_NAME_CHARS] + "…"
