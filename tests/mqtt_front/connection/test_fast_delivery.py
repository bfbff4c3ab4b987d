"""Plain messages from elsewhere reach the same clients, with the same content, as by the general way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.codec.packets import Subscription, Version
from ringmq.mqtt_front.connection.fast_delivery import give_plain
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.message import Message

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World


def audience(world: World) -> dict[str, Client]:
    """One client of each kind that the short way must know."""
    clients = {version.name: world.connect(version.name, version) for version in Version}
    for client in clients.values():
        client.subscribe("a/#", qos=1)
    clients["narrow"] = world.connect("narrow", maximum_packet_size=100)
    clients["narrow"].subscribe("a/b")
    clients["away"] = world.connect("away", session_expiry_s=60)
    clients["away"].subscribe("a/b", qos=2)
    clients["away"].drop()
    clients["shared"] = world.connect("shared")
    clients["shared"].subscribe("$share/g/a/b")
    clients["elsewhere"] = world.connect("elsewhere")
    clients["elsewhere"].subscribe("c")
    return clients


@pytest.mark.parametrize("special", [False, True])
def test_as_by_the_general_way(make_world: type[World], special: bool) -> None:
    got = []
    for plain in (True, False):
        world = make_world()
        clients = audience(world)
        if special:  # then all of them take the general way
            clients["numbered"] = world.connect("numbered")
            clients["numbered"].subscribe(Subscription("a/b", 0), ids=(7,))
        if plain:
            count = give_plain(world.broker, b"a/b", b"\xffx")
        else:
            count = world.broker.distribute_plain(Message("a/b", b"\xffx"))
        sent = {name: client.take() for name, client in clients.items() if name != "away"}
        got.append((count, sent, world.broker.counters.publish_sent, world.broker.counters.messages_sent))
    assert got[0] == got[1]
    assert [len(packets) for packets in got[0][1].values()] == [1, 1, 1, 1, 0, 0] + [1] * special


def test_what_is_no_topic(world: World) -> None:
    with pytest.raises(PacketError):
        give_plain(world.broker, b"a/#", b"x")
