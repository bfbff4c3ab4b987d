"""Servers start on their core, become ready, and end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ringmq.experiments.load.raw_clients import BenchError, connected
from ringmq.experiments.processes import servers
from ringmq.experiments.processes.servers import cores, pinned, running, why_not

CORE = min(os.sched_getaffinity(0))


@pytest.mark.parametrize("name", servers.COMMANDS)
def test_server_runs_on_its_core_until_the_context_ends(name: str) -> None:
    reason = why_not(name)
    if reason:
        pytest.skip(reason)
    with running(name, CORE) as server:
        assert os.sched_getaffinity(server.pid) == {CORE}
        connected(server.address, "a").close()
    assert not Path(f"/proc/{server.pid}").exists()


def test_server_can_be_killed() -> None:
    with running("ringmq", CORE) as server:
        assert server.runs
        server.kill()
        server.wait()
        assert not server.runs


def test_server_that_ends_at_once_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.COMMANDS, "ringmq", lambda port, folder: (sys.executable, "-c", "pass"))
    with pytest.raises(BenchError, match="ringmq does not accept"), running("ringmq", CORE):
        pass


def test_missing_executable_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(servers.COMMANDS, "ringmq", lambda port, folder: ("./no-such-server",))
    with pytest.raises(BenchError, match="cannot start ringmq"), running("ringmq", CORE):
        pass


def test_why_not_names_servers_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert why_not("ringmq") is None
    assert "mosquitto" in (why_not("mosquitto") or "")
    assert "amqtt" in (why_not("amqtt") or "")


def test_benchmark_needs_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3, 5, 7})
    assert cores() == (3, 5)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {3})
    with pytest.raises(BenchError, match="two cores"):
        cores()


def test_pinned_process_gets_its_cores_back() -> None:
    before = os.sched_getaffinity(0)
    with pinned(CORE):
        assert os.sched_getaffinity(0) == {CORE}
    assert os.sched_getaffinity(0) == before
