"""A sample as Prometheus reads it: the text format 0.0.4.

Knows the names and what they mean, and no HTTP. Names end in their unit; what only grows ends in `_total`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ringmq.logger.records import LinkTraffic, Sample, Traffic

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Number = int | float
_NONE: Final[Labels] = {}


class Family(NamedTuple):
    """What has one name, and its values by labels."""

    name: str
    kind: str
    help: str
    values: Sequence[tuple[Labels, Number]]


def exposition(sample: Sample, counters: Mapping[str, Number]) -> str:
    """The whole text. `counters` are further ones by the names of what they count; each only grows."""
    events = [({"event": name}, value) for name, value in counters.items()]
    families = [
        *_peer(sample),
        *_traffic("mqtt", "with MQTT clients, but for topics of records: bytes are all that crossed", sample.mqtt),
        *_traffic("overlay", "with other peers", sample.overlay),
        *_traffic("log", "with MQTT clients about topics of records: bytes of payloads", sample.log),
        *_links(sample.links),
        Family("ringmq_events_total", "counter", "What the peer counts otherwise, by what happened.", events),
    ]
    return "".join([line + "\n" for family in families for line in _lines(family)])


def _peer(sample: Sample) -> Iterator[Family]:
    about = {
        "id": sample.peer,
        "run": sample.run,
        "address": sample.address,
        "dispatching": sample.dispatching,
        "fanout": str(sample.fanout),
        "boot": str(sample.boot),
        "pid": str(sample.pid),
    }
    yield Family("ringmq_peer_info", "gauge", "Which peer this is; always 1.", [(about, 1)])
    listeners = [({"listener": name, "address": address}, 1) for name, address in sample.listeners.items()]
    yield Family("ringmq_listener_info", "gauge", "Where MQTT clients connect; always 1.", listeners)
    for name, help_text, value in (
        ("uptime_seconds", "Since the start of the peer.", sample.uptime_s),
        ("memory_bytes", "Resident memory.", sample.memory_bytes),
        ("clients", "MQTT clients that are connected.", sample.clients),
        ("subscriptions", "Subscriptions of its clients.", sample.subscriptions),
        ("topics", "Topics that its clients publish to.", sample.topics),
        ("places_coordinated", "Places whose list of subscribers this peer keeps.", sample.coordinated),
        ("places_copied", "Places of which it holds the copy of a shadow.", sample.copied),
        ("filters", "Filters that it subscribes to in the ring.", sample.filters),
        ("topics_publishing", "Topics of which it knows the subscribers.", sample.publishing),
        ("waiting_bytes", "Of messages that wait for other peers.", sample.waiting_bytes),
        ("unacknowledged_messages", "Messages that other peers have not acknowledged.", sample.unacknowledged),
    ):
        yield Family(f"ringmq_{name}", "gauge", help_text, [(_NONE, value)])
    yield Family("ringmq_cpu_seconds_total", "counter", "Processor time.", [(_NONE, sample.cpu_s)])
    lost = "Records that were given up for want of room."
    yield Family("ringmq_unrecorded_total", "counter", lost, [(_NONE, sample.unrecorded)])


def _traffic(name: str, what: str, traffic: Traffic) -> Iterator[Family]:
    for unit, received, sent in (
        ("bytes", traffic.bytes_in, traffic.bytes_out),
        ("messages", traffic.messages_in, traffic.messages_out),
    ):
        values = [({"direction": "in"}, received), ({"direction": "out"}, sent)]
        yield Family(f"ringmq_{name}_{unit}_total", "counter", f"{unit.capitalize()} {what}.", values)
    help_text = f"Messages dropped for want of room, {what}."
    yield Family(f"ringmq_{name}_dropped_total", "counter", help_text, [(_NONE, traffic.dropped)])


def _links(links: Iterable[LinkTraffic]) -> Iterator[Family]:
    """By peer: while two peers dial each other at once there are two links, and a series must not come twice."""
    crossed: dict[tuple[str, str], int] = {}
    queued: dict[str, int] = {}
    trips: dict[str, float] = {}
    for link in links:
        for direction, size in (("in", link.bytes_in), ("out", link.bytes_out)):
            crossed[link.peer, direction] = crossed.get((link.peer, direction), 0) + size
        queued[link.peer] = queued.get(link.peer, 0) + link.queued_bytes
        if link.rtt_s is not None:
            trips[link.peer] = link.rtt_s
    both = [({"peer": peer, "direction": direction}, size) for (peer, direction), size in crossed.items()]
    yield Family("ringmq_link_bytes_total", "counter", "Bytes of the present link to a peer.", both)
    waiting = "Bytes that wait on the link to a peer."
    yield Family(
        "ringmq_link_queued_bytes", "gauge", waiting, [({"peer": peer}, size) for peer, size in queued.items()]
    )
    trip = "Round trip of the link to a peer, where it is known."
    yield Family("ringmq_link_round_trip_seconds", "gauge", trip, [({"peer": peer}, s) for peer, s in trips.items()])


def _lines(family: Family) -> Iterator[str]:
    """Nothing for a family without values."""
    if family.values:
        yield f"# HELP {family.name} {family.help}"
        yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.values:
        inside = ",".join([f'{name}="{_escaped(text)}"' for name, text in labels.items()])
        yield f"{family.name}{{{inside}}} {value}" if inside else f"{family.name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
