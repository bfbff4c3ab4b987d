"""Machines with peers: what a process has committed outlives a crash at any step, and nothing outlives a lost disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ringmq.experiments.simulator.machines.peer_machine import MachineSettings, PeerMachine, address_of
from ringmq.experiments.simulator.machines.streams import SimulatedNetwork
from ringmq.experiments.simulator.machines.virtual_time import VirtualTime
from ringmq.mqtt_front.codec.packets import Subscription
from ringmq.peer.mqtt_service import STORE

READY_S = 10.0
EXPIRY_S = 1000


def later(clock: VirtualTime, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
    passed: list[bool] = []
    clock.after(seconds, passed.append, True)
    clock.run(lambda: bool(passed) or done())


@pytest.fixture
def machine(tmp_path: Path) -> PeerMachine:
    network = SimulatedNetwork(VirtualTime(1))
    return PeerMachine(0, network, tmp_path, MachineSettings(seeds=(address_of(0),)))


def begin_session(machine: PeerMachine, client_id: str) -> None:
    """As a CONNECT of a client with a kept session and a SUBSCRIBE would."""
    assert machine.parts is not None
    front = machine.parts.front
    front.iteration.begin()
    session, _ = front.broker.begin(client_id, False, front.access.rights_of(None, client_id), None, EXPIRY_S, None)
    front.broker.subscribe(session, Subscription(f"t/{client_id}", 1), None)
    front.send_soon()


def sessions_of(machine: PeerMachine) -> set[str]:
    with closing(sqlite3.connect(machine.data / STORE)) as database:
        return {client for (client,) in database.execute("SELECT client FROM sessions")}


def run(machine: PeerMachine) -> None:
    machine.start()
    later(machine.clock, READY_S, lambda: machine.ring_members is not None)
    assert machine.ring_members is not None, machine.clock.faults or machine.clock.last()


def test_a_peer_alone_founds_a_ring_and_comes_back_with_its_sessions(machine: PeerMachine) -> None:
    run(machine)
    machine.loop.call_soon(begin_session, machine, "one")
    later(machine.clock, 0.1)
    machine.kill()
    assert machine.ring_members is None
    run(machine)
    assert machine.parts is not None
    assert list(machine.parts.front.broker.sessions) == ["one"]
    assert machine.clock.faults == []
    machine.close()


def test_a_crash_before_the_commit_loses_the_changes_and_one_after_it_keeps_them(machine: PeerMachine) -> None:
    steps: dict[str, bool] = {}
    for number in range(1, 8):
        run(machine)
        ended: list[str] = []
        machine.on_end = lambda _, step, ended=ended: ended.append(step)
        machine.loop.call_soon(begin_session, machine, f"client-{number}")
        machine.crash_in(number + 1)
        later(machine.clock, 5.0, lambda ended=ended: bool(ended))
        (step,) = ended
        steps[step] = f"client-{number}" in sessions_of(machine)
        assert not machine.is_running
    assert steps["within changes of the clients"] is False
    assert steps["before the commit of the clients"] is False
    assert steps["after the commit of the clients"] is True
    machine.close()


def test_sigterm_ends_a_process_by_itself(machine: PeerMachine) -> None:
    run(machine)
    machine.stop()
    later(machine.clock, 10.0, lambda: not machine.is_running)
    assert not machine.is_running
    assert machine.clock.faults == []
    machine.close()


def test_an_empty_disk_has_another_id_and_no_session(machine: PeerMachine) -> None:
    run(machine)
    machine.loop.call_soon(begin_session, machine, "one")
    later(machine.clock, 0.1)
    before = machine.ring_members
    machine.kill()
    machine.lose_disk()
    run(machine)
    assert machine.ring_members != before
    assert machine.parts is not None
    assert machine.parts.front.broker.sessions == {}
    machine.close()
