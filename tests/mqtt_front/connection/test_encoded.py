"""The encodings of one message: the right bytes, made once for all who share them."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import Properties, Publish, Version
from ringmq.mqtt_front.codec.properties import encode_properties
from ringmq.mqtt_front.connection.encoded import Encoded
from ringmq.mqtt_front.message import Message

PROPERTIES = Properties(content_type="text", user_properties=(("b", "1"), ("a", "2")))


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 300])
def test_the_bytes_are_those_of_a_publish(version: Version, retain: bool, payload: bytes) -> None:
    encoded = Encoded(Message("t/ü", payload, properties=encode_properties(PROPERTIES)))
    assert encoded.whole(version, retain) == encode(version, Publish("t/ü", payload, 0, retain, properties=PROPERTIES))
    for qos in (1, 2):
        head, tail = encoded.parts(version, qos, retain)
        wanted = encode(version, Publish("t/ü", payload, qos, retain, packet_id=0x1234, properties=PROPERTIES))
        assert head + b"\x12\x34" + tail == wanted


def test_each_is_made_once() -> None:
    encoded = Encoded(Message("t", b"x"))
    assert encoded.whole(Version.V5, False) is encoded.whole(Version.V5, False)
    assert encoded.parts(Version.V311, 1, True) is encoded.parts(Version.V311, 1, True)
    assert encoded.whole(Version.V5, False) != encoded.whole(Version.V5, True)
    assert encoded.parts(Version.V311, 1, True) != encoded.parts(Version.V311, 2, True)


def test_it_knows_what_is_of_the_log() -> None:
    assert Encoded(Message("ringmq/log/a", b"x")).of_the_log
    assert not Encoded(Message("ringmq/logs", b"x")).of_the_log
