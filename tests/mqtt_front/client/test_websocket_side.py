"""The opening handshake of a WebSocket, from the client's side: with this project's server, and with wrong ones."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.websocket_side import MAX_ANSWER_BYTES, Opening
from ringmq.mqtt_front.errors import UpgradeRefusedError
from ringmq.mqtt_front.server.websocket_upgrade import Upgrade

KEY = bytes(range(16))
ADDRESS = ServerAddress("peer.example", 8083, path="/mqtt?a=b")


def answer_of_this_project() -> bytes:
    answered = Upgrade().feed(Opening(ADDRESS, KEY).request)
    assert answered is not None
    return answered[0]


def test_the_example_of_the_specification() -> None:
    """RFC 6455 §1.3."""
    opening = Opening(ADDRESS, b"the sample nonce")
    assert b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" in opening.request
    answer = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    assert opening.feed(answer + b"frames") == b"frames"


def test_the_request_names_host_and_path() -> None:
    lines = Opening(ADDRESS, KEY).request.decode().split("\r\n")
    assert lines[:2] == ["GET /mqtt?a=b HTTP/1.1", "Host: peer.example:8083"]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_may_come_in_pieces(size: int) -> None:
    answer = answer_of_this_project()
    opening = Opening(ADDRESS, KEY)
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    assert [opening.feed(piece) for piece in pieces] == [None] * (len(pieces) - 1) + [b""]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b"HTTP/1.1 101 Switching Protocols", b"HTTP/1.1 404 Not Found", "it answered 404 Not Found"),
        (b"HTTP/1.1 101 Switching Protocols", b"SSH-2.0-x", "its answer is not HTTP"),
        (b"Upgrade: websocket", b"Upgrade: h2c", "its answer does not change to WebSocket"),
        (b"Sec-WebSocket-Accept: ", b"Sec-WebSocket-Accept: x", "its answer does not belong to this request"),
        (b"Sec-WebSocket-Protocol: mqtt", b"X: y", "it does not speak MQTT there"),
        (b"Upgrade: websocket", b"Upgrade: websocket\r\nSec-WebSocket-Extensions: zip", "it wants an extension"),
        (b"Upgrade: websocket", b"Upgrade websocket", "its answer is not HTTP"),
    ],
)
def test_a_wrong_answer_is_refused(old: bytes, new: bytes, says: str) -> None:
    answer = answer_of_this_project()
    assert old in answer
    with pytest.raises(UpgradeRefusedError, match=f"^{says}"):
        Opening(ADDRESS, KEY).feed(answer.replace(old, new))


def test_an_answer_without_end_is_refused() -> None:
    with pytest.raises(UpgradeRefusedError, match="no end within 16,384 bytes"):
        Opening(ADDRESS, KEY).feed(b"x" * (MAX_ANSWER_BYTES + 1))
