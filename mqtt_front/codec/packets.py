"""The control packets of MQTT 3.1, 3.1.1 and 5.0 as values, without their encoding.

One set of types for all versions: fields that a version does not have keep their defaults. The types are untracked by
the garbage collector (`gc=False`), since they contain no cycles and each packet makes one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from ringmq.mqtt_front.codec.reasons import Reason

Buffer = bytes | memoryview


class Version(IntEnum):
    """The protocol level of a CONNECT."""

    V31 = 3
    V311 = 4
    V5 = 5


class Kind(IntEnum):
    """Packet types: the high half of the first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class RetainHandling(IntEnum):
    """When a subscription gets the retained messages (5.0 §3.8.3.1)."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


class Properties(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All properties of 5.0 (§2.2.2.2); None is absent. The codec checks which packet may have which property."""

    payload_format: int | None = None
    message_expiry_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry_s: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


NO_PROPERTIES: Final = Properties()


class Will(msgspec.Struct, frozen=True, gc=False):
    """The message that the server publishes when the client goes without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = NO_PROPERTIES


class Connect(msgspec.Struct, frozen=True, gc=False):
    version: Version
    client_id: str
    clean_start: bool
    keep_alive_s: int
    will: Will | None = None
    user_name: str | None = None
    password: bytes | None = None
    properties: Properties = NO_PROPERTIES


class Connack(msgspec.Struct, frozen=True, gc=False):
    session_present: bool
    reason: Reason
    properties: Properties = NO_PROPERTIES


class Publish(msgspec.Struct, frozen=True, gc=False):
    """`payload` may be a view of the received bytes: copy it to keep it. `packet_id` is 0 for QoS 0."""

    topic: str
    payload: Buffer
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


class Puback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrec(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrel(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubcomp(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Subscription(msgspec.Struct, frozen=True, gc=False):
    """An entry of a SUBSCRIBE: the filter as sent, `$share/…` included, and its options."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: RetainHandling = RetainHandling.ALWAYS


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


class Suback(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    reasons: tuple[Reason, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(msgspec.Struct, frozen=True, gc=False):
    """`reasons` are sent in 5.0 only."""

    packet_id: int
    reasons: tuple[Reason, ...] = ()
    properties: Properties = NO_PROPERTIES


class Pingreq(msgspec.Struct, frozen=True, gc=False):
    pass


class Pingresp(msgspec.Struct, frozen=True, gc=False):
    pass


class Disconnect(msgspec.Struct, frozen=True, gc=False):
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


class Auth(msgspec.Struct, frozen=True, gc=False):
    """5.0 only."""

    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
