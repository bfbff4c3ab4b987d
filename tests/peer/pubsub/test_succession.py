"""The role goes with the ring: to newcomers, from the dead, and together again."""

from __future__ import annotations

import pytest

from overlay.ids import SPACE
from peer.pubsub.messages import Gather
from peer.pubsub.places import key_of_place
from tests.peer.pubsub.conftest import Net


def test_a_newcomer_takes_over_with_all_that_was_acknowledged(net: Net) -> None:
    done = net.others("a")[0].subscribe("a")
    net.run(0.5)
    assert done == ["a"]
    before = net.holders("a")
    newcomer = net.add(key_of_place("a") + 1)
    net.run(3.0)
    holding = newcomer.core.holdings.get("a")
    assert holding is not None
    assert holding.coordinates
    assert net.holders("a")[0] is newcomer
    assert len({member.core.holdings.get("a").present() for member in net.holders("a")}) == 1  # type: ignore[union-attr]
    assert before[-1].core.holdings.get("a") is None, "who has no part in it any more forgets it"
    assert before[-1].core.counters.handed_over == 1


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_shadow_takes_over(net: Net, deaths: int) -> None:
    one, publisher, late = net.others("a", "a/#", "#")[:3]
    one.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    for victim in net.holders("a")[:deaths]:
        net.crash(victim)
    done = late.subscribe("a")
    net.run(0.1)
    assert done == ["a"]
    publisher.publish("a", b"after")
    net.run(0.5)
    assert ("a", b"after") in one.got
    assert ("a", b"after") in late.got


def test_the_newest_of_several_newcomers_coordinates(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    for step in (9, 7, 5, 3):
        net.add((key_of_place("a") + step) % SPACE)
    net.run(3.0)
    holding = net.holders("a")[0].core.holdings.get("a")
    assert holding is not None
    assert [record.name for record in holding.book if not record.gone] == ["a"]
    holders = [member for member in net.members.values() if member.core.holdings.get("a") is not None]
    assert len(holders) == net.config.shadows + 1


def test_nobody_reigns_before_all_have_answered(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    silent = net.holders("a")[1].me
    net.lost = lambda sender, receiver, message: receiver == silent and isinstance(message, Gather)
    newcomer = net.add(key_of_place("a") + 1)
    net.run(3.0)
    holding = newcomer.core.holdings.get("a")
    assert holding is not None
    assert not holding.coordinates
    net.crash(net.members[silent.id])
    net.run(2.0)
    assert holding.coordinates


def test_who_stopped_serving_gathers_again(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    coordinator = net.holders("a")[0]
    holding = coordinator.core.holdings.get("a")
    assert holding is not None
    reign = holding.reign
    coordinator.active = False
    coordinator.core.activity_changed(False)
    assert not holding.coordinates
    net.run(0.1)
    coordinator.active = True
    coordinator.core.activity_changed(True)
    net.run(0.5)
    assert holding.coordinates
    assert holding.reign > reign


def test_what_nobody_wants_any_more_is_forgotten(net: Net) -> None:
    one = net.others("a")[0]
    one.subscribe("a")
    net.run(0.5)
    one.core.unsubscribe("a")
    net.run(net.config.tomb_s + 5)
    assert not any(len(member.core.holdings) for member in net.members.values())
