"""Whole peers with disks, and MQTT clients with sessions, on virtual time: promises hold under each trouble, and a seed
shows what is broken without a cure.
"""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.sessions.scene import sessions
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.mqtt_front.sessions.session import Session
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.overlay.core.liveness.detours import Detours
from ringmq.peer.engines.partitioned.publishing.assembly import Assembly

SPAN_S = 8.0
GUIDED = Choice("guided", 3)
HELD = [
    ("calm", 4, 1),
    ("crashes", 5, 2),
    ("starting", 4, 3),
    ("disks", 5, 4),
    ("slow", 5, 5),
    ("breaks", 4, 6),
    ("everything", 5, 7),
    ("pauses", 5, 8),
    ("power", 5, 9),
    ("rolling", 4, 10),
    ("cuts", 5, 11),
    ("pair", 5, 13),
]


@pytest.mark.parametrize(("trouble", "nodes", "seed"), HELD)
def test_promises_hold(trouble: str, nodes: int, seed: int) -> None:
    figures = sessions(nodes, seed, span_s=SPAN_S, trouble=trouble, dispatch=GUIDED if seed % 2 else None)
    assert figures.trouble == trouble
    assert figures.acknowledged > 200
    assert figures.deliveries > 1000
    assert bool(figures.faults) is (trouble not in ("calm", "breaks"))


def test_the_same_seed_gives_the_same_traffic_and_faults() -> None:
    """Not each event: peers draw random numbers of their own."""
    first, again = (sessions(4, 3, span_s=3.0, trouble="crashes") for _ in range(2))
    assert (first.messages, first.faults) == (again.messages, again.faults)


def broken(trouble: str, nodes: int, seed: int, span_s: float) -> InvariantBrokenError:
    with pytest.raises(InvariantBrokenError) as caught:
        sessions(nodes, seed, span_s=span_s, trouble=trouble)
    return caught.value


def test_wills_that_are_not_on_the_disk_are_lost_in_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "will_begins", lambda store, will: None)
    error = broken("crashes", 4, 1, 12.0)
    assert "of will" in str(error)
    notes = "\n".join(error.__notes__)
    assert "seed 1, trouble crashes, 4 peers" in str(error)
    assert "did not reach kept session" in notes
    assert '"the wills of connected clients are published when the peer is back" (docs/durability.md)' in notes
    assert "the last events:" in notes


def test_messages_are_lost_after_a_power_cut_if_nobody_waits_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Assembly, "begin", lambda assembly: False)
    assert "of power" in str(broken("power", 5, 2, 12.0))


def test_messages_come_twice_if_a_peer_does_not_know_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "accept", lambda session, packet_id: session.incoming.add(packet_id) is None)
    assert "of once" in str(broken("breaks", 4, 1, SPAN_S))


def test_a_broken_pair_stops_topics_without_detours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Detours, "begin", lambda detours, target, via: None)
    assert "of puback" in str(broken("pair", 5, 1, 20.0))
