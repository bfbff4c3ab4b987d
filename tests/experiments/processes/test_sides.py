"""Sides start on their core, are connected, and end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringmq.experiments.load import reachability
from ringmq.experiments.load.raw_clients import BenchError, connected
from ringmq.experiments.processes import peers
from ringmq.experiments.processes.sides import SIDES, joined, why_not

CORE = min(os.sched_getaffinity(0))


def skip_without(side: str) -> None:
    reason = why_not(side)
    if reason:
        pytest.skip(reason)


@pytest.mark.parametrize("side", SIDES)
def test_servers_of_a_side_run_on_one_core_until_the_context_ends(side: str) -> None:
    skip_without(side)
    with joined(side, 3, CORE) as servers:
        assert len(servers) == (1 if side == "mosquitto" else 3)
        assert len({server.pid for server in servers}) == len(servers)
        for server in servers:
            assert os.sched_getaffinity(server.pid) == {CORE}
            connected(server.address, "a").close()
    assert not any(Path(f"/proc/{server.pid}").exists() for server in servers)


@pytest.mark.parametrize("side", ["bridged", "nodelay"])
@pytest.mark.parametrize("count", [2, 5])
def test_bridges_deliver_each_message_once(side: str, count: int) -> None:
    skip_without(side)
    with joined(side, count, CORE) as servers:
        reachability.check([server.address for server in servers])


@pytest.mark.parametrize("count", [2, 5])
def test_ring_delivers_each_message_once(count: int) -> None:
    with joined("ringmq", count, CORE) as servers:
        reachability.check([server.address for server in servers])


def test_peers_that_do_not_become_one_ring_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "SETTLE_S", 0.05)
    monkeypatch.setattr(peers, "SETTLE_S_PER_PEER", 0.0)
    monkeypatch.setattr(peers, "is_settled", lambda status, ids: False)
    with pytest.raises(BenchError, match=r"2 peers were not one ring after 0.05 s"), joined("ringmq", 2, CORE):
        pass


def test_why_not_names_sides_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    found = {side: why_not(side) for side in SIDES}
    missing = "mosquitto is not installed"
    assert found == {"ringmq": None, "bridged": missing, "nodelay": missing, "mosquitto": missing}
