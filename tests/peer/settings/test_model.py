"""The configuration of a peer: its listeners by name, and the pub/sub settings derived from it."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import ALGORITHMS, Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.peer.messaging.config import LAN, MAX_SHADOWS, WAN
from ringmq.peer.settings.load import load
from ringmq.peer.settings.model import FANOUT, LISTENERS, PeerConfig


def test_listeners_are_listed_by_the_names_of_their_settings() -> None:
    assert PeerConfig().listeners == {}
    assert load(None, {"mqtt_ws": "127.0.0.1:0"}).listeners == {"mqtt_ws": ("127.0.0.1", 0)}
    addresses = {name: ("127.0.0.1", 1883 + number) for number, name in enumerate(LISTENERS)}
    config = PeerConfig(
        mqtt=addresses["mqtt"],
        mqtt_tls=addresses["mqtt_tls"],
        mqtt_ws=addresses["mqtt_ws"],
        mqtt_wss=addresses["mqtt_wss"],
    )
    assert list(config.listeners.items()) == list(addresses.items())


def test_pubsub_defaults_depend_on_the_timing() -> None:
    assert PeerConfig().roles == LAN
    assert PeerConfig(timing="wan").roles == WAN


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("shadows", [0, MAX_SHADOWS])
def test_shadows_and_dispatch_reach_the_pubsub_settings(name: str, shadows: int) -> None:
    roles = PeerConfig(shadows=shadows, dispatch=name).roles
    assert (roles.shadows, roles.dispatch.name, roles.rules) == (shadows, name, ())


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        ({}, Choice("direct", UNBOUNDED)),
        ({"dispatch": "guided"}, Choice("guided", FANOUT)),
        ({"dispatch": "guided", "fanout": 1}, Choice("guided", 1)),
        ({"dispatch": "guided", "fanout": UNBOUNDED}, Choice("guided", UNBOUNDED)),
    ],
)
def test_tree_without_fanout_gets_the_default(line: dict[str, object], choice: Choice) -> None:
    assert load(None, line).roles.dispatch == choice
