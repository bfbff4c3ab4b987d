"""A sample in the text format 0.0.4 of Prometheus.

Knows the names of the metrics and their meanings, and no HTTP. Names end in their unit, and counters in `_total`.
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
    """The metrics that share a name, and their values by labels."""

    name: str
    kind: str
    help: str
    values: Sequence[tuple[Labels, Number]]


def exposition(sample: Sample, counters: Mapping[str, Number], *, insecure: bool = False) -> str:
    """The whole text. `counters` are further counters, by the names of the events that they count."""
    events = [({"event": name}, value) for name, value in counters.items()]
    families = [
        *_peer(sample),
        *_traffic("mqtt", "with MQTT clients, except on topics of records; bytes count all packets", sample.mqtt),
        *_traffic("overlay", "with other peers", sample.overlay),
        *_traffic("log", "with MQTT clients on topics of records; bytes count payloads only", sample.log),
        *_links(sample.links),
        Family("ringmq_insecure", "gauge", "1: whoever reaches the overlay can join.", [(_NONE, int(insecure))]),
        Family("ringmq_events_total", "counter", "Other counters of the peer, by event.", events),
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
    # The texts of a sample are labels of a gauge that is always 1: Prometheus stores numbers only.
    yield Family("ringmq_peer_info", "gauge", "Identity of this peer; always 1.", [(about, 1)])
    listeners = [({"listener": name, "address": address}, 1) for name, address in sample.listeners.items()]
    yield Family("ringmq_listener_info", "gauge", "Addresses for MQTT clients; always 1.", listeners)
    for name, help_text, value in (
        ("uptime_seconds", "Time since the start of the peer.", sample.uptime_s),
        ("memory_bytes", "Resident memory.", sample.memory_bytes),
        ("clients", "Connected MQTT clients.", sample.clients),
        ("subscriptions", "Subscriptions of its clients.", sample.subscriptions),
        ("topics", "Topics that its clients publish to.", sample.topics),
        ("places_coordinated", "Partitions with records that this peer coordinates.", sample.coordinated),
        ("places_copied", "Partitions with records that this peer has a copy of.", sample.copied),
        ("filters", "Filters that this peer subscribes to in the ring.", sample.filters),
        ("topics_publishing", "Topics whose subscribers this peer knows.", sample.publishing),
        ("waiting_bytes", "Bytes of messages queued for other peers.", sample.waiting_bytes),
        ("unacknowledged_messages", "Messages that other peers have not acknowledged.", sample.unacknowledged),
    ):
        yield Family(f"ringmq_{name}", "gauge", help_text, [(_NONE, value)])
    yield Family("ringmq_cpu_seconds_total", "counter", "Processor time.", [(_NONE, sample.cpu_s)])
    unrecorded = "Records dropped because the buffer was full."
    yield Family("ringmq_unrecorded_total", "counter", unrecorded, [(_NONE, sample.unrecorded)])


def _traffic(name: str, scope: str, traffic: Traffic) -> Iterator[Family]:
    for unit, received, sent in (
        ("bytes", traffic.bytes_in, traffic.bytes_out),
        ("messages", traffic.messages_in, traffic.messages_out),
    ):
        values = [({"direction": "in"}, received), ({"direction": "out"}, sent)]
        yield Family(f"ringmq_{name}_{unit}_total", "counter", f"{unit.capitalize()} {scope}.", values)
    help_text = f"Messages dropped because a limit was reached, {scope}."
    yield Family(f"ringmq_{name}_dropped_total", "counter", help_text, [(_NONE, traffic.dropped)])


def _links(links: Iterable[LinkTraffic]) -> Iterator[Family]:
    """Traffic and round trips, added up for each peer."""
    # While two peers dial each other at once there are two links, and no series may occur twice in an exposition.
    transferred: dict[tuple[str, str], int] = {}
    queued: dict[str, int] = {}
    round_trips: dict[str, float] = {}
    for link in links:
        for direction, size in (("in", link.bytes_in), ("out", link.bytes_out)):
            transferred[link.peer, direction] = transferred.get((link.peer, direction), 0) + size
        queued[link.peer] = queued.get(link.peer, 0) + link.queued_bytes
        if link.rtt_s is not None:
            round_trips[link.peer] = link.rtt_s
    by_direction = [({"peer": peer, "direction": direction}, size) for (peer, direction), size in transferred.items()]
    yield Family("ringmq_link_bytes_total", "counter", "Bytes of the present link to a peer.", by_direction)
    by_peer = [({"peer": peer}, size) for peer, size in queued.items()]
    yield Family("ringmq_link_queued_bytes", "gauge", "Bytes queued on the link to a peer.", by_peer)
    help_text = "Round trip of the link to a peer, where it is known."
    seconds = [({"peer": peer}, round_trip_s) for peer, round_trip_s in round_trips.items()]
    yield Family("ringmq_link_round_trip_seconds", "gauge", help_text, seconds)


def _lines(family: Family) -> Iterator[str]:
    """The lines of a family: its header, if it has values, and a line for each value."""
    if family.values:
        yield f"# HELP {family.name} {family.help}"
        yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.values:
        inside = ",".join([f'{name}="{_escaped(text)}"' for name, text in labels.items()])
        yield f"{family.name}{{{inside}}} {value}" if inside else f"{family.name} {value}"


def _escaped(text: str) -> str:
    # The backslash comes first, as the other two escapes add backslashes.
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
