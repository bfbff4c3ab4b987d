"""The state of a session as one front gives it to another."""

from __future__ import annotations

from typing import Final, NamedTuple

from ringmq.mqtt_front.codec.packets import Subscription
from ringmq.mqtt_front.sessions.queue import Delivery

Origin = tuple[int, int, int]
"""The id and the boot of the publisher's peer, and the number of its publication: the same message has the same origin
at all fronts."""
NO_ORIGIN: Final[Origin] = (0, 0, 0)
Carried = tuple[Delivery, Origin | None]
"""A message on its way. It has an origin if it came while the session was leaving."""


class MovingSession(NamedTuple):
    """What a front must have of a session before it can serve its client."""

    subscriptions: list[tuple[Subscription, int | None]]
    inflight: list[Delivery]
    """In the order in which they were sent."""
    incoming: list[int]
    """Identifiers of QoS 2 messages that the client has not released."""
    last_id: int
    """The last packet identifier that was used."""
