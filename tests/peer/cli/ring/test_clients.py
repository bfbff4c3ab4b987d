"""`ringmq clients`, `ringmq sessions` and `ringmq kick`, from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ringmq.mqtt_front.codec.packets import Disconnect, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.queries import ask_ring
from ringmq.peer.administration.requests import Request, Subject, encode_request
from ringmq.peer.settings.addresses import parse_address
from tests.peer.cli.ring.mqtt_clients import PlainClient
from tests.peer.rings import Ring, Start


class Served:
    """A ring with a client at each peer."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        versions = (Version.V5, Version.V311, Version.V31)
        self.clients = [
            PlainClient(address, f"sensor-{number}", version)
            for number, (address, version) in enumerate(zip(ring.mqtt, versions, strict=True))
        ]
        self.clients[0].subscribe("hall/+/door", "roof")
        self.clients[1].subscribe("$share/workers/hall/#")

    def close(self) -> None:
        for client in self.clients:
            client.close()


@pytest.fixture
def served(ring: Ring) -> Iterator[Served]:
    made = Served(ring)
    yield made
    made.close()


def listed(ringmq: Start, *words: str) -> dict[str, dict[str, Any]]:
    done = ringmq(*words, "--json")
    assert done.err == ""
    return {row["client"]: row for row in json.loads(done.out)["rows"]}


def test_clients_of_all_peers_are_listed(served: Served, ringmq: Start) -> None:
    rows = listed(ringmq, "clients", "--via", served.ring.overlay[2])
    assert set(rows) == {"sensor-0", "sensor-1", "sensor-2"}
    assert [rows[f"sensor-{number}"]["peer"] for number in range(3)] == served.ring.ids
    assert [rows[f"sensor-{number}"]["version"] for number in range(3)] == ["5.0", "3.1.1", "3.1"]
    assert [rows[f"sensor-{number}"]["subscriptions"] for number in range(3)] == [2, 1, 0]
    for number, client in enumerate(served.clients):
        host, port = client.wire.getsockname()
        assert rows[f"sensor-{number}"]["address"] == f"{host}:{port}"
    lines = ringmq("clients", "--via", served.ring.overlay[2]).out.splitlines()
    assert lines[0].split()[:4] == ["client", "user", "peer", "from"]
    assert [line.split()[0] for line in lines[1:]] == ["sensor-0", "sensor-1", "sensor-2"]
    assert [line.split()[2] for line in lines[1:]] == served.ring.overlay


def test_clients_are_chosen_by_topic_and_peer(served: Served, ringmq: Start) -> None:
    via = ("clients", "--via", served.ring.overlay[0])
    assert set(listed(ringmq, *via, "--topic", "hall/7/door")) == {"sensor-0", "sensor-1"}
    assert set(listed(ringmq, *via, "--topic", "roof")) == {"sensor-0"}
    assert set(listed(ringmq, *via, "--topic", "cellar")) == set()
    assert set(listed(ringmq, *via, "--peer", served.ring.overlay[1])) == {"sensor-1"}
    assert set(listed(ringmq, *via, "--peer", served.ring.ids[2][:8])) == {"sensor-2"}
    assert set(listed(ringmq, *via, "--user", "alice")) == set()
    done = ringmq(*via, "--topic", "hall/#")
    assert done.popen.returncode == 2
    assert done.err == "ringmq: topic name 'hall/#' has a wildcard\n"


def test_a_list_says_what_it_leaves_out(served: Served, ringmq: Start) -> None:
    lines = ringmq("clients", "--via", served.ring.overlay[0], "--limit", "1").out.splitlines()
    assert len(lines) == 3
    assert lines[-1] == "and 2 more: see --limit"


async def test_a_kicked_client_is_told_and_gone_within_a_fifth_of_a_second(served: Served) -> None:
    """Asked as the command does, without the start of a process."""
    request = encode_request(Request(about=Subject.KICK, client="sensor-0"))
    began = time.monotonic()
    await ask_ring(parse_address(served.ring.overlay[1]), request)
    packet = served.clients[0].read()
    assert time.monotonic() - began < 0.2
    assert isinstance(packet, Disconnect)
    assert packet.reason is Reason.ADMINISTRATIVE_ACTION
    assert packet.properties.reason_string == "ended by an administrator"
    assert served.clients[0].read() is None


def test_a_client_of_mqtt_3_is_cut_off_without_a_word(served: Served, ringmq: Start) -> None:
    done = ringmq("kick", "sensor-1", "--via", served.ring.overlay[0])
    assert done.out == f"sensor-1 at {served.ring.overlay[1]}: disconnected\n"
    assert done.popen.returncode == 0
    assert served.clients[1].read() is None
    assert "client kicked" in served.ring.processes[1].err
    again = ringmq("kick", "sensor-1", "--via", served.ring.overlay[0])
    assert again.popen.returncode == 1
    assert again.err == "ringmq: no client with the id 'sensor-1' is connected\n"


def test_sessions_without_a_client_are_listed_and_ended(served: Served, ringmq: Start) -> None:
    away = PlainClient(served.ring.mqtt[1], "away", expiry_s=3600)
    away.subscribe("hall/#")
    away.close()
    rows = listed(ringmq, "sessions", "--via", served.ring.overlay[0])
    while rows["away"]["connected"]:
        rows = listed(ringmq, "sessions", "--via", served.ring.overlay[0])
    assert 3500 < rows["away"]["ends_in_s"] <= 3600
    assert rows["away"]["subscriptions"] == 1
    assert [rows[f"sensor-{number}"]["connected"] for number in range(3)] == [True] * 3
    assert "away" not in listed(ringmq, "clients", "--via", served.ring.overlay[0])
    # There is no connection to end, but a session.
    assert ringmq("kick", "away", "--via", served.ring.overlay[0]).popen.returncode == 1
    done = ringmq("kick", "away", "--session", "--via", served.ring.overlay[0])
    assert done.out == f"away at {served.ring.overlay[1]}: session ended\n"
    assert "away" not in listed(ringmq, "sessions", "--via", served.ring.overlay[0])


def test_names_that_clients_choose_do_not_steer_the_terminal(served: Served, ringmq: Start) -> None:
    evil = PlainClient(served.ring.mqtt[0], "\x1b[2Jevil" + "x" * 300)
    out = ringmq("clients", "--via", served.ring.overlay[0]).out
    assert "\x1b" not in out
    assert "evil" in out
    evil.close()
