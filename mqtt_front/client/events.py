"""The events of a client's connection: what the server's packets mean to the user of the connection."""

from __future__ import annotations

import msgspec

from ringmq.mqtt_front.client.session_state import Publication
from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Properties, Subscription
from ringmq.mqtt_front.codec.reasons import Reason


class Opened(msgspec.Struct, frozen=True):
    """The server accepted the CONNECT. Subscribe now, unless the session was present and is subscribed already."""

    session_present: bool
    properties: Properties = NO_PROPERTIES
    discarded: tuple[Publication, ...] = ()
    """Publications of an earlier connection that the server may or may not have, as it has no session any more
    [MQTT-3.2.2-5]. Whoever publishes them again may deliver them twice."""


class Refused(msgspec.Struct, frozen=True):
    """The server refused the CONNECT: close the socket."""

    reason: Reason
    properties: Properties = NO_PROPERTIES


class Arrived(msgspec.Struct, frozen=True):
    """A message. With `automatic=False` pass it to `acknowledge` when it has been processed."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class Acknowledged(msgspec.Struct, frozen=True):
    """The server answered a publication: it has it, or refused it if the reason is 0x80 or more. Comes once each."""

    publication: Publication
    reason: Reason


class Completed(msgspec.Struct, frozen=True):
    """The exchange about a publication is over, after PUBACK, PUBCOMP or a refusal; comes after Acknowledged."""

    publication: Publication


class Subscribed(msgspec.Struct, frozen=True):
    """The answer to a SUBSCRIBE: a reason for each subscription, in order."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    reasons: tuple[Reason, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribed(msgspec.Struct, frozen=True):
    """The answer to an UNSUBSCRIBE. MQTT 3 has no reasons: then all are SUCCESS."""

    packet_id: int
    filters: tuple[str, ...]
    reasons: tuple[Reason, ...]
    properties: Properties = NO_PROPERTIES


class Ended(msgspec.Struct, frozen=True):
    """The server ends the connection (5.0): close the socket."""

    reason: Reason
    properties: Properties = NO_PROPERTIES


class Ponged(msgspec.Struct, frozen=True):
    """The server answered a `ping`: it has read everything that was sent before."""


ClientEvent = Opened | Refused | Arrived | Acknowledged | Completed | Subscribed | Unsubscribed | Ended | Ponged
