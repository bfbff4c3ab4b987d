"""The errors of the front: each names the reason that 5.0 sends."""

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import (
    EncodeError,
    FrontError,
    MalformedPacketError,
    PacketError,
    ProtocolBreachError,
    UnsupportedVersionError,
)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MalformedPacketError("x"), Reason.MALFORMED_PACKET),
        (ProtocolBreachError("x"), Reason.PROTOCOL_ERROR),
        (UnsupportedVersionError(6), Reason.UNSUPPORTED_PROTOCOL_VERSION),
        (PacketError(Reason.PACKET_TOO_LARGE, "x"), Reason.PACKET_TOO_LARGE),
    ],
)
def test_what_a_client_does_wrong_has_a_reason_and_one_root(error: PacketError, reason: Reason) -> None:
    assert error.reason is reason
    assert isinstance(error, PacketError)
    assert str(error)


def test_our_own_mistakes_are_not_a_client_s() -> None:
    assert issubclass(EncodeError, FrontError)
    assert issubclass(PacketError, FrontError)
    assert not issubclass(EncodeError, PacketError)


def test_a_level_can_be_answered() -> None:
    assert UnsupportedVersionError(6).level == 6
