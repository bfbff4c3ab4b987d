"""Messages as they are printed: bytes as they came, JSON, and the formats of mosquitto_sub."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from ringmq.mqtt_front.client.events import Arrived
from ringmq.mqtt_front.codec.packets import Properties
from ringmq.peer.cli.clients.message_format import (
    FormatError,
    Printed,
    as_json,
    for_terminal,
    formatted,
    json_of,
    plain,
)

BINARY = bytes(range(256))
AT_NS = 1_470_818_943_786_368_637
PROPERTIES = Properties(
    content_type="text/plain",
    response_topic="re/ply",
    correlation_data=b"\xff1",
    message_expiry_s=10,
    payload_format=1,
    subscription_ids=(3, 4),
    user_properties=(("a", "1"), ("b", "2"), ("a", "3")),
)
MESSAGE = Printed(Arrived("hall/7/dóor", b'{"t":1}', 1, True, False, 9, PROPERTIES), AT_NS)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def message(payload: bytes, topic: str = "a") -> Printed:
    return Printed(Arrived(topic, payload), AT_NS)


def test_payloads_are_printed_as_they_came() -> None:
    assert plain(False, b"\n")(message(BINARY)) == BINARY + b"\n"
    assert plain(False, b"")(message(BINARY)) == BINARY
    assert plain(True, b"\n")(message(BINARY, "é/b")) == "é/b ".encode() + BINARY + b"\n"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t: %p", 'hall/7/dóor: {"t":1}'),
        ("%q %r %m %l", "1 1 9 7"),
        ("%x %X", "7b2274223a317d 7B2274223A317D"),
        ("%C %R %E %F %S", "text/plain re/ply 10 1 3 4"),
        ("%P", "a:1 b:2 a:3"),
        ("[%A]", "[]"),
        ("100%% @@ \\\\", "100% @ \\"),
        ("\\0\\a\\e\\n\\r\\t\\v", "\0\a\x1b\n\r\t\v"),
        ("%I", "2016-08-10T14:19:03+0530"),
        ("%U", "1470818943.786368637"),
        ("@Y-@m-@d @H:@M:@S.@N", "2016-08-10 14:19:03.786368637"),
        ("[%5l] [%-5l] [%05l] [%-05l]", "[    7] [7    ] [00007] [7    ]"),
        ("[%3.4t]", "[hall]"),
        ("[%10.4t]", "[      hall]"),
        ("plain é", "plain é"),
        ("", ""),
    ],
)
def test_a_format_of_mosquitto_sub_is_obeyed(text: str, printed: str) -> None:
    assert formatted(text, b"")(MESSAGE) == printed.encode()


def test_a_format_keeps_bytes_as_they_are() -> None:
    assert formatted("%p|%D", b"\n")(Printed(Arrived("a", BINARY, properties=PROPERTIES), 0)) == BINARY + b"|\xff1\n"
    assert formatted("\udcff", b"")(MESSAGE) == b"\xff"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("%y", "a format has % and one of A C D E F I J P R S U X j l m p q r t x, got '%y'"),
        ("%", "a format must not end with '%': write %%"),
        ("%10", "a format has % and one of"),
        ("a@", "a format must not end with '@': write @@"),
        ("\\", r"a format must not end with '\\': write \\"),
        ("\\q", r"a format has \ and one of \ 0 a e n r t v, got '\\q'"),
        ("%99999t", "a width must be at most 10000, got 99999"),
    ],
)
def test_what_is_no_format_is_refused(text: str, says: str) -> None:
    with pytest.raises(FormatError) as caught:
        formatted(text, b"")
    assert sorted(str(caught.value)) == sorted(says) or str(caught.value).startswith(says)


def test_json_has_the_names_of_mosquitto_sub() -> None:
    line = as_json(b"\n")(MESSAGE)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "tst": "2016-08-10T14:19:03.786368+0530",
        "topic": "hall/7/dóor",
        "qos": 1,
        "retain": 1,
        "payloadlen": 7,
        "mid": 9,
        "properties": {
            "user-properties": {"a": ["1", "3"], "b": "2"},
            "content-type": "text/plain",
            "response-topic": "re/ply",
            "correlation-data": "\N{REPLACEMENT CHARACTER}1",
            "payload-format-indicator": 1,
            "message-expiry-interval": 10,
            "subscription-identifier": [3, 4],
        },
        "payload": '{"t":1}',
    }


def test_json_is_one_line_of_utf_8_for_any_payload() -> None:
    for payload in (BINARY, b"a\nb", b'"\\', b"\xff\xfe", b""):
        line = as_json(b"")(message(payload))
        assert b"\n" not in line
        found = json.loads(line.decode())
        assert "properties" not in found
        assert "mid" not in found
        assert found["payloadlen"] == len(payload)
    assert json.loads(json_of(message(b"\xff\xfe")))["payload_base64"] == "//4="
    assert json.loads(json_of(message(b"a\nb")))["payload"] == "a\nb"


def test_a_payload_of_json_can_stand_in_the_json_as_such() -> None:
    assert json.loads(formatted("%J", b"")(MESSAGE))["payload"] == {"t": 1}
    for text in (b"no json", b"NaN", b"[" * 100_000, b""):
        assert json.loads(json_of(message(text), raw=True))["payload"] == text.decode()


def test_a_terminal_gets_no_characters_that_steer_it() -> None:
    payload = b"\x1b]0;evil\x07 \xff\x9b31m tab\tand\nline " + "é".encode()
    shown = for_terminal(plain(True, b"\n"))(message(payload, "to\x1bpic")).decode()
    assert shown.replace("\N{REPLACEMENT CHARACTER}", "?") == "to?pic ?]0;evil? ??31m tab\tand\nline é\n"
