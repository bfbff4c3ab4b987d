"""The phases of a connection: every pair of a phase and an event."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.cluster import Enrolment, Settled, Standalone, Standing
from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.connection.phase import TRANSITIONS, Event, Phase, after

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import World

NEXT = {
    (Phase.NEW, Event.CONNECT_RECEIVED): Phase.DECIDING,
    (Phase.NEW, Event.ENDED): Phase.CLOSED,
    (Phase.DECIDING, Event.ADMITTED): Phase.ENROLLING,
    (Phase.DECIDING, Event.ENDED): Phase.CLOSED,
    (Phase.ENROLLING, Event.SETTLED): Phase.OPEN,
    (Phase.ENROLLING, Event.ENDED): Phase.CLOSED,
    (Phase.OPEN, Event.ENDED): Phase.CLOSED,
}


@pytest.mark.parametrize(("phase", "event"), list(product(Phase, Event)))
def test_each_event_leads_to_its_phase_or_is_impossible(phase: Phase, event: Event) -> None:
    if (phase, event) in NEXT:
        assert after(phase, event) is NEXT[phase, event]
    else:
        with pytest.raises(KeyError):
            after(phase, event)


def test_every_phase_is_reached_and_has_its_row() -> None:
    assert set(TRANSITIONS) == set(Phase)
    assert {Phase.NEW, *NEXT.values()} == set(Phase)


def test_a_connection_goes_through_all_phases(make_world: type[World]) -> None:
    answers: list[Settled] = []

    class Asking(Standalone):
        def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
            answers.append(settled)

    world = make_world(defer=True, cluster=Asking())
    client = world.client()
    phases = [client.connection.phase]
    client.send(Connect(Version.V5, "c", True, 0))
    phases.append(client.connection.phase)
    world.decide_next()
    phases.append(client.connection.phase)
    answers[0](Standing.CURRENT)
    world.turn()
    phases.append(client.connection.phase)
    client.drop()
    assert [*phases, client.connection.phase] == list(Phase)


@pytest.mark.parametrize("steps", range(3))
def test_a_connection_ends_once_in_any_phase(make_world: type[World], steps: int) -> None:
    world = make_world(defer=True)
    client = world.client()
    if steps:
        client.send(Connect(Version.V5, "c", True, 0))
    if steps == 2:
        world.decide_next()
    for _ in range(2):
        client.drop()
        assert client.connection.phase is Phase.CLOSED
