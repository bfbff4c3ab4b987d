"""`ringmq peers`, from outside: the whole ring from any of its peers, and whether all is well."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from ringmq import __version__
from ringmq.overlay.config import show
from tests.peer.rings import Eventually, Ring, Start


def told(ringmq: Start, via: str) -> tuple[dict[str, Any], int]:
    done = ringmq("peers", "--via", via, "--json")
    assert done.err == ""
    return json.loads(done.out), done.popen.returncode


def test_any_peer_tells_about_all(ring: Ring, ringmq: Start) -> None:
    answers = [told(ringmq, via) for via in ring.overlay]
    for answer, status in answers:
        assert (answer["well"], answer["missing"], status) == (True, [], 0)
        rows = {row["peer"]: row for row in answer["rows"]}
        assert set(rows) == set(ring.ids)
        assert {row["address"] for row in rows.values()} == set(ring.overlay)
        assert {row["state"] for row in rows.values()} == {"active"}
        assert {row["version"] for row in rows.values()} == {__version__}
        assert {row["listeners"]["mqtt"] for row in rows.values()} == set(ring.mqtt)
        assert sum(row["coordinates"] for row in rows.values()) == 4096
        # Each is the neighbour of its neighbours.
        assert all(rows[row["after"]["id"]]["before"]["id"] == peer for peer, row in rows.items())


def test_the_table_for_people(ring: Ring, ringmq: Start) -> None:
    done = ringmq("peers", "--via", ring.overlay[1])
    assert done.popen.returncode == 0
    heads, *rows = done.out.splitlines()
    assert heads.split()[:5] == ["peer", "address", "state", "version", "up"]
    assert {row.split()[1] for row in rows[:3]} == set(ring.overlay)
    assert rows[-1] == "3 peers, 0 clients, 0.0 messages/s from clients"


def test_a_silent_peer_is_missing_and_a_dead_one_dead(ring: Ring, ringmq: Start, eventually: Eventually) -> None:
    victim = ring.processes[2]
    victim.send(signal.SIGSTOP)
    began = time.monotonic()
    answer, status = told(ringmq, ring.overlay[0])
    took_s = time.monotonic() - began
    victim.send(signal.SIGCONT)
    assert status == 3
    assert answer["took_ms"] < 3000
    assert took_s < 6, "with the start of a process"
    silent = [missing["address"] for missing in answer["missing"]]
    dead = [gone["address"] for row in answer["rows"] for gone in row["gone"]]
    assert ring.overlay[2] in {*silent, *dead}
    assert not answer["well"] or silent

    victim.end(signal.SIGKILL)

    def all_know() -> bool:
        answer, status = told(ringmq, ring.overlay[0])
        gone = [gone for row in answer["rows"] for gone in row["gone"]]
        return status == 3 and not answer["missing"] and {one["address"] for one in gone} == {ring.overlay[2]}

    eventually(all_know, 20.0)
    lines = ringmq("peers", "--via", ring.overlay[0]).out.splitlines()
    assert [line.split()[2] for line in lines if ring.overlay[2] in line] == ["dead"]


def test_a_peer_that_was_stopped_in_order_has_left_and_all_is_well(
    ring: Ring, ringmq: Start, eventually: Eventually
) -> None:
    assert ring.processes[1].end(signal.SIGTERM) == 0

    def is_well() -> bool:
        answer, status = told(ringmq, ring.overlay[0])
        return status == 0 and len(answer["rows"]) == 2

    eventually(is_well, 20.0)
    lines = ringmq("peers", "--via", ring.overlay[0]).out.splitlines()
    assert [line.split()[2] for line in lines if ring.overlay[1] in line] == ["left"]


def test_a_peer_that_waits_for_its_ring_is_joining(
    start: Start, ringmq: Start, closed_port: int, eventually: Eventually
) -> None:
    peer = start("peer", "--overlay", "127.0.0.1:0", "--no-discovery", "--join", f"127.0.0.1:{closed_port}")
    address = eventually(lambda: next((word[8:] for word in peer.err.split() if word.startswith("overlay=")), ""))
    answer, status = told(ringmq, address)
    assert status == 3
    assert [row["state"] for row in answer["rows"]] == ["joining"]
    assert "no ring found" in answer["rows"][0]["warnings"][0]
    assert ringmq("status", "--peer", address).popen.returncode == 3


def test_the_next_peer_is_asked_if_one_is_down(ring: Ring, ringmq: Start, closed_port: int) -> None:
    down = show(("127.0.0.1", closed_port))
    done = ringmq("peers", "--via", down, "--via", ring.overlay[0], "--json")
    assert done.popen.returncode == 0
    assert len(json.loads(done.out)["rows"]) == 3
    alone = ringmq("peers", "--via", down)
    assert alone.popen.returncode == 1
    assert alone.err == f"ringmq: {down}: connection refused\n"


def test_watching_goes_on_until_ctrl_c(ring: Ring, start: Start, eventually: Eventually) -> None:
    command = start("peers", "--via", ring.overlay[0], "--watch", "--json")
    eventually(lambda: command.out.count("\n") >= 2, 20.0)
    assert command.end(signal.SIGINT) == 130
    assert all(len(json.loads(line)["rows"]) == 3 for line in command.out.splitlines())


@pytest.mark.parametrize("via", ["nowhere", "127.0.0.1", ""])
def test_a_wrong_address_is_one_line(ringmq: Start, via: str) -> None:
    done = ringmq("peers", "--via", via)
    assert done.popen.returncode == 2
    assert done.err == f"ringmq: --via must be HOST:PORT, such as 127.0.0.1:4883, got {via!r}\n"
