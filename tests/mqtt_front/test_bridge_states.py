"""Bridges of Mosquitto tell their state below `$SYS`, as they do with their default settings: they are let in, and
nobody hears of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.packets import Connack, Puback, Pubcomp, Pubrec, Pubrel, Version, Will
from ringmq.mqtt_front.codec.reasons import Reason

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import SlowPorts, World

V5 = Version.V5
STATE = "$SYS/broker/connection/host.name/state"
NOBODY = Reason.NO_MATCHING_SUBSCRIBERS


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("rights", [True, False])
def test_the_will_of_a_bridge_is_accepted_and_not_published(
    make_world: type[World], slow_ports: SlowPorts, version: Version, rights: bool
) -> None:
    world = make_world(cluster=slow_ports)
    if not rights:
        world.rights["bridge"] = Rights(write=["t"])
    watcher = world.connect("watcher")
    watcher.send_subscribe("$SYS/#")
    watcher.take()
    kept = {"session_expiry_s": 60} if version is V5 else {}
    bridge = world.connect("bridge", version, clean=False, will=Will(STATE, b"0", 1, True), **kept)
    bridge.drop()
    world.pass_time(1000)
    assert watcher.take() == []
    assert slow_ports.messages == []
    assert len(world.broker.retained) == 0
    assert world.broker.counters.unauthorized == 0


@pytest.mark.parametrize("version", [Version.V311, V5])
@pytest.mark.parametrize(
    "topic", ["$SYS/broker/uptime", "$SYS/broker/connection/a/b/state", "$SYS/broker/connection//state"]
)
def test_other_wills_below_the_topics_of_the_server_are_refused(world: World, version: Version, topic: str) -> None:
    client = world.client(version)
    client.connect("c", will=Will(topic, b"0", 1, True))
    assert client.only(Connack).reason is Reason.NOT_AUTHORIZED
    assert client.closed


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("rights", [True, False])
def test_what_a_bridge_says_of_its_state_is_acknowledged_and_goes_nowhere(
    make_world: type[World], slow_ports: SlowPorts, version: Version, rights: bool
) -> None:
    world = make_world(cluster=slow_ports)
    if not rights:
        world.rights["bridge"] = Rights(write=["t"])
    watcher = world.connect("watcher")
    watcher.send_subscribe("$SYS/#")
    watcher.take()
    bridge = world.connect("bridge", version)
    for qos in (0, 1, 2):
        bridge.publish(STATE, b"1", qos, packet_id=qos or None, retain=True)
    reason = NOBODY if version is V5 else Reason.SUCCESS
    assert bridge.take() == [Puback(1, reason), Pubrec(2, reason)]
    bridge.send(Pubrel(2))
    assert bridge.take() == [Pubcomp(2)]
    assert watcher.take() == []
    assert slow_ports.messages == []
    assert len(world.broker.retained) == 0
    assert world.broker.counters.unauthorized == 0
