"""Sessions of the front as pieces of messages between homes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from ringmq.mqtt_front.codec.packets import Subscription
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_filter
from ringmq.mqtt_front.sessions.moves import DELIVERY_BYTES
from ringmq.mqtt_front.sessions.moving_session import Carried, MovingSession, Origin
from ringmq.mqtt_front.sessions.queue import Delivery
from ringmq.overlay.core.ids import Id
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.enrolling.messages import (
    Cargo,
    Filter,
    Moved,
    Part,
)
from ringmq.peer.messaging.body import decode_body, encode_body

FILTERS_A_PIECE: Final = 500
PIECE_BYTES: Final = 1 << 16
"""Bytes of messages in one piece; a single message may be larger."""


def packed(delivery: Delivery, now: float, origin: Origin | None = None) -> Cargo:
    message = delivery.message
    return Cargo(
        message.topic, encode_body(message, now), delivery.qos, delivery.retain, delivery.ids, delivery.packet_id,
        delivery.received, None if origin is None else (Id(origin[0]), *origin[1:]),
    )  # fmt: skip


def unpacked(cargo: Cargo, now: float) -> Delivery:
    """Raises ProtocolError."""
    message = decode_body(cargo.topic, cargo.body, None, False, now)
    return Delivery(message, cargo.qos, cargo.retain, cargo.ids, cargo.packet_id, cargo.received)


def unpacked_all(cargo: tuple[Cargo, ...], now: float) -> list[Carried]:
    """Those that can be read. Their sender has a fault, and nobody else has them."""
    carried: list[Carried] = []
    for item in cargo:
        with suppress(ProtocolError):
            carried.append((unpacked(item, now), item.origin))
    return carried


def head_pieces(moving: MovingSession, blank: Moved, now: float) -> Iterator[Moved]:
    """What the other front needs before it serves the client, in pieces of bounded size. The last one says so."""
    filters = [_filter(subscription, identifier) for subscription, identifier in moving.subscriptions]
    while len(filters) > FILTERS_A_PIECE:
        yield replace(blank, filters=tuple(filters[:FILTERS_A_PIECE]))
        filters = filters[FILTERS_A_PIECE:]
    inflight: list[Cargo] = []
    size_bytes = 0
    for delivery in moving.inflight:
        if size_bytes >= PIECE_BYTES:
            yield replace(blank, filters=tuple(filters), inflight=tuple(inflight))
            filters, inflight, size_bytes = [], [], 0
        inflight.append(packed(delivery, now))
        size_bytes += len(delivery.message.payload) + DELIVERY_BYTES
    incoming = tuple(moving.incoming)
    yield replace(
        blank, part=Part.HEAD_END, filters=tuple(filters), inflight=tuple(inflight), incoming=incoming,
        last_id=moving.last_id,
    )  # fmt: skip


def _filter(subscription: Subscription, identifier: int | None) -> Filter:
    options = subscription.qos, subscription.no_local, subscription.retain_as_published
    return Filter(subscription.filter, *options, identifier)


class Arriving:
    """The pieces that a front needs before it serves the client, as they come."""

    __slots__ = ("moving",)

    def __init__(self) -> None:
        self.moving = MovingSession([], [], [], 0)
        """All that has come by now."""

    def add(self, piece: Moved, now: float) -> MovingSession:
        """Returns all that has come by now."""
        moving = self.moving
        subscriptions = [
            (Subscription(each.filter, each.qos, each.no_local, each.as_published), each.identifier)
            for each in piece.filters
            if _is_filter(each.filter)
        ]
        self.moving = MovingSession(
            moving.subscriptions + subscriptions,
            moving.inflight + [delivery for delivery, _ in unpacked_all(piece.inflight, now)],
            moving.incoming + list(piece.incoming),
            piece.last_id,
        )
        return self.moving


def _is_filter(name: str) -> bool:
    try:
        check_filter(name)
    except PacketError:
        return False
    return True
