"""A real peer whose overlay port is held by thousands of connections that say nothing, or half of something."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
from collections.abc import Callable
from typing import Any

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import Hello, encode_hello
from ringmq.peer.settings.addresses import parse_address

Start = Callable[..., Any]
LINE = ("--timing", "local", "--no-discovery", "--overlay", "127.0.0.1:0")
CONNECTIONS = 2000
MOST_HELD_BYTES = 64 << 20


def test_2000_half_open_connections_leave_the_status_reachable(start: Start, ringmq: Start) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * CONNECTIONS)), hard))
    address = start("peer", *LINE).says("active: ").rpartition(" ")[2]
    with contextlib.ExitStack() as held:
        for number in range(CONNECTIONS):
            wire = held.enter_context(socket.create_connection(parse_address(address), 5))
            with contextlib.suppress(OSError):
                wire.sendall(b"\0\0\0" if number % 2 else b"")
        status = ringmq("status", "--peer", address)
        assert status.popen.returncode == 0, status.err
        other = start("peer", *LINE, "--join", address)
        other.says("active: ", 10)


def test_half_received_frames_take_no_more_than_64_mib(
    start: Start, usage: Callable[[int], Any], ringmq: Start
) -> None:
    peer = start("peer", *LINE)
    address = peer.says("active: ").rpartition(" ")[2]
    other = start("peer", *LINE, "--join", address)
    other.says("active: ")
    target = Id.parse(ringmq_id(ringmq, address))
    before = usage(peer.pid).resident_bytes
    began = frame(Kind.PARCEL, bytes(15 << 20))[: 14 << 20]
    most = 0
    with contextlib.ExitStack() as held:
        for number in range(20):
            wire = held.enter_context(socket.create_connection(parse_address(address), 5))
            wire.settimeout(5)
            hello = Hello("ringmq", Peer(Id(number + 1), "127.0.0.1", 1, 1), True, target, "timing local")
            wire.sendall(frame(Kind.HELLO, encode_hello(hello)))
            assert wire.recv(5)[4] == Kind.HELLO
            with contextlib.suppress(OSError):
                wire.sendall(began)
            most = max(most, usage(peer.pid).resident_bytes - before)
        assert "links_lost" not in other.err + other.out
        # An eighth more, as buffers grow, and one frame that is being read.
        assert most < MOST_HELD_BYTES * 9 / 8 + (16 << 20), f"{most >> 20} MiB"


def ringmq_id(ringmq: Start, address: str) -> str:
    return str(json.loads(ringmq("status", "--peer", address, "--json").out)["id"])
