"""Peers that cannot be of one ring refuse each other, with one line on both sides."""

from __future__ import annotations

import socket
from threading import Thread

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.frames import Kind, header
from ringmq.overlay.links.handshake import VERSION, Hello, Reason, encode_goodbye, encode_hello
from ringmq.peer.settings.addresses import parse_address
from tests.peer.rings import Eventually, Start

LINE = ("peer", "--overlay", "127.0.0.1:0", "--timing", "local", "--no-discovery")


def _hello(version: int, port: int = 9) -> bytes:
    hello = encode_hello(Hello("ringmq", Peer(Id(7), "127.0.0.1", port, 1), True, None))
    return _frame(Kind.HELLO, bytes([version]) + hello[1:])


def _frame(kind: Kind, body: bytes) -> bytes:
    return header(kind, len(body)) + body


def test_another_hash_of_names_is_refused_on_both_sides(start: Start, eventually: Eventually) -> None:
    first = start(*LINE)
    address = first.says("active: ").rpartition(" ")[2]
    second = start(*LINE, "--join", address, "--hash-seed", "11")
    eventually(lambda: "other terms: timing local, hash_seed 11, need timing local" in first.out + first.err)
    eventually(lambda: "refuses: other terms" in second.out + second.err)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_peer_of_another_version_that_dials_is_refused_with_one_line(
    start: Start, eventually: Eventually, version: int
) -> None:
    peer = start(*LINE)
    address = parse_address(peer.says("active: ").rpartition(" ")[2])
    for _ in range(3):
        with socket.create_connection(address, 10) as old:
            old.sendall(_hello(version))
            assert Reason.VERSION.encode() in old.recv(4096)
    eventually(lambda: Reason.VERSION in peer.out + peer.err)
    said = [line for line in (peer.out + peer.err).splitlines() if Reason.VERSION in line]
    assert len(said) == 1


def test_a_peer_that_is_refused_by_an_older_one_says_so(start: Start, eventually: Eventually) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()[:2]
        answering = Thread(target=_refuse, args=(listener,), daemon=True)
        answering.start()
        peer = start(*LINE, "--join", f"{host}:{port}")
        eventually(lambda: f"{host}:{port} refuses: {Reason.VERSION}" in peer.out + peer.err)


def _refuse(listener: socket.socket) -> None:
    """An older peer: it answers each HELLO of this version by a GOODBYE."""
    try:
        while True:
            client, _ = listener.accept()
            with client:
                client.recv(4096)
                client.sendall(_frame(Kind.GOODBYE, encode_goodbye(Reason.VERSION)))
    except OSError:
        """The test has ended."""
