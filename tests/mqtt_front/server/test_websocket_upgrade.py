"""The opening of a WebSocket: the request of RFC 6455 §1.3, everything that may be wrong with one, and any chunking."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.server.websocket_upgrade import MAX_HEADERS, MAX_REQUEST_BYTES, Upgrade, UpgradeError, answer

HEADERS = {
    "Host": "server.example.com",
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "mqtt",
    "Sec-WebSocket-Version": "13",
}


def request(first: str = "GET /mqtt HTTP/1.1", **changed: str | None) -> str:
    """With headers changed, added, or with None left out; `_` stands for `-`."""
    headers: dict[str, str | None] = dict(HEADERS)
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return "\r\n".join([first, *(f"{name}: {value}" for name, value in headers.items() if value is not None)])


WHOLE = request().encode() + b"\r\n\r\n"


def refusal(text: str) -> UpgradeError:
    with pytest.raises(UpgradeError) as caught:
        answer(text)
    return caught.value


def test_the_example_of_the_specification() -> None:
    assert answer(request()).decode().split("\r\n") == [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "Sec-WebSocket-Protocol: mqtt",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ({}, "mqtt"),
        ({"Sec_WebSocket_Protocol": "chat,  mqttv3.1 , mqtt"}, "mqtt"),
        ({"Sec_WebSocket_Protocol": "mqttv3.1"}, "mqttv3.1"),
        ({"Connection": "keep-alive, UPGRADE", "Upgrade": "WebSocket"}, "mqtt"),
        ({"Origin": "https://elsewhere.example", "Cookie": "a=b"}, "mqtt"),
        ({"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"}, "mqtt"),
        ({"Content_Length": "0"}, "mqtt"),
        ({"first": "GET /any/path?and=query HTTP/1.1"}, "mqtt"),
        ({"X": "", "Y": "ünï: côdé"}, "mqtt"),
    ],
)
def test_valid_request_is_accepted(changed: dict[str, str], chosen: str) -> None:
    """[MQTT-6.0.0-4]; no extension is ever agreed to."""
    head = answer(request(**changed)).decode()
    assert f"Sec-WebSocket-Protocol: {chosen}\r\n" in head
    assert "extensions" not in head.lower()


def test_a_repeated_header_is_one_list() -> None:
    text = request(Sec_WebSocket_Protocol="chat") + "\r\nsec-websocket-protocol: mqtt"
    assert b"Sec-WebSocket-Protocol: mqtt\r\n" in answer(text)


@pytest.mark.parametrize(
    ("status", "changed"),
    [
        (400, {"Sec_WebSocket_Protocol": None}),
        (400, {"Sec_WebSocket_Protocol": "MQTT"}),
        (400, {"Sec_WebSocket_Protocol": "chat, mqtt5"}),
        (400, {"Sec_WebSocket_Key": None}),
        (400, {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25j"}),
        (400, {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="[:-1]}),
        (400, {"Sec_WebSocket_Key": "é" * 24}),
        (400, {"Host": None}),
        (400, {"Content_Length": "5"}),
        (400, {"Transfer_Encoding": "chunked"}),
        (400, {"first": "GET"}),
        (400, {"first": "GET / HTTP/1.1 more"}),
        (400, {"first": "\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0"}),
        (405, {"first": "POST /mqtt HTTP/1.1"}),
        (426, {"Upgrade": None}),
        (426, {"Upgrade": "h2c"}),
        (426, {"Connection": "keep-alive"}),
        (426, {"Sec_WebSocket_Version": "8"}),
        (426, {"Sec_WebSocket_Version": None}),
        (505, {"first": "GET /mqtt HTTP/1.0"}),
        (505, {"first": "GET /mqtt HTTP/2"}),
        (400, {"X y": "z"}),
        (400, {"": "z"}),
        (400, {"X": "a\rb"}),
        (400, {"X": "a\0b"}),
        (400, {"X": "a\r\n folded"}),
        (431, {f"X{number}": "y" for number in range(MAX_HEADERS)}),
    ],
)
def test_invalid_request_is_refused(status: int, changed: dict[str, str | None]) -> None:
    error = refusal(request(**changed))
    head, _, body = error.response.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert f"Content-Length: {len(body)}".encode() in head
    assert b"Connection: close" in head
    assert body == f"{error}\n".encode()


def test_repeated_key_is_refused() -> None:
    again = f"Sec-WebSocket-Key: {HEADERS['Sec-WebSocket-Key']}"
    assert refusal(f"{request()}\r\n{again}").response.startswith(b"HTTP/1.1 400 ")


def test_refusal_of_a_version_names_the_supported_version() -> None:
    assert b"\r\nSec-WebSocket-Version: 13\r\n" in refusal(request(Sec_WebSocket_Version="7")).response


@given(st.lists(st.integers(1, 40), max_size=30), st.binary(max_size=20))
def test_any_chunking_gives_the_same(sizes: list[int], frames: bytes) -> None:
    upgrade, data = Upgrade(), WHOLE + frames
    for size in sizes:
        piece, data = data[:size], data[size:]
        opened = upgrade.feed(piece)
        if opened is not None:
            break
    else:
        opened = upgrade.feed(data)
        data = b""
    assert opened is not None
    assert opened[0] == answer(request())
    assert opened[1] + data == frames


@given(st.binary(max_size=400))
def test_garbage_gives_only_its_error(garbage: bytes) -> None:
    with pytest.raises(UpgradeError):
        Upgrade().feed(garbage + b"\r\n\r\n")


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_request_without_end_is_refused(end: bytes) -> None:
    upgrade = Upgrade()
    line = b"X: " + b"y" * 997
    assert upgrade.feed(b"GET / HTTP/1.1\r\n" + line * (MAX_REQUEST_BYTES // 1000)) is None
    with pytest.raises(UpgradeError) as caught:
        upgrade.feed(line + end)
    assert caught.value.response.startswith(b"HTTP/1.1 431 ")


def test_a_request_as_long_as_may_be() -> None:
    head = request(X="y" * (MAX_REQUEST_BYTES - len(request(X=""))))
    assert len(head) == MAX_REQUEST_BYTES
    assert Upgrade().feed(head.encode() + b"\r\n\r\nrest") == (answer(request()), b"rest")
