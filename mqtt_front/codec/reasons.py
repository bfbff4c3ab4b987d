"""The reason codes of MQTT 5.0 (§2.4), and the corresponding codes of MQTT 3."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """The meaning of a code depends on its packet: 0 is also "Normal disconnection" and "Granted QoS 0"."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


def words_of(reason: Reason) -> str:
    """The reason as words in a sentence: "not authorized"."""
    return reason.name.replace("_", " ").lower().replace("qos", "QoS")


CONNACK_3: Final[dict[Reason, int]] = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.SERVER_SHUTTING_DOWN: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
"""Return codes of CONNACK in 3.1 and 3.1.1 (§3.2.2.3). For any other reason the connection closes without one."""

SUBACK_3_FAILURE: Final = 0x80
"""The only failure code in a SUBACK of 3.1.1 (§3.9.3)."""


def _known(codes: bytes) -> dict[int, Reason]:
    # A dict, since calling the enum to look up a member takes ten times as long.
    return {code: Reason(code) for code in codes}


CONNACK_REASONS: Final = _known(bytes.fromhex("00 80 81 82 83 84 85 86 87 88 89 8A 8C 90 95 97 99 9A 9B 9C 9D 9F"))
"""The codes that a CONNACK may have in 5.0 (§3.2.2.2)."""
PUBACK_REASONS: Final = _known(bytes.fromhex("00 10 80 83 87 90 91 97 99"))
"""The codes of PUBACK and PUBREC (§3.4.2.1, §3.5.2.1)."""
PUBREL_REASONS: Final = _known(bytes.fromhex("00 92"))
"""The codes of PUBREL and PUBCOMP (§3.6.2.1, §3.7.2.1)."""
SUBACK_REASONS: Final = _known(bytes.fromhex("00 01 02 80 83 87 8F 91 97 9E A1 A2"))
UNSUBACK_REASONS: Final = _known(bytes.fromhex("00 11 80 83 87 8F 91"))
DISCONNECT_REASONS: Final = _known(
    bytes.fromhex("00 04 80 81 82 83 87 89 8B 8C 8D 8E 8F 90 93 94 95 96 97 98 99 9A 9B 9C 9D 9E 9F A0 A1 A2")
)
"""0x8C is missing from the table of §3.14.2.1, but §2.4 has it."""
AUTH_REASONS: Final = _known(bytes.fromhex("00 18 19"))

SUBACK_3: Final = _known(bytes.fromhex("00 01 02 80"))
"""The codes of a SUBACK in 3.1.1 (§3.9.3)."""
