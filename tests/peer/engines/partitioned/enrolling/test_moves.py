"""Kept sessions between members: silent and dead homes, clients that want nothing from before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringmq.mqtt_front.codec.packets import Connack, Puback, Publish, Suback
from ringmq.peer.engines.partitioned.enrolling.enrolments import YIELD_S
from ringmq.peer.engines.partitioned.enrolling.messages import Moved, Part
from ringmq.peer.engines.partitioned.enrolling.moves import SILENT_S, STUCK_S
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition
from tests.mqtt_front.conftest import Client
from tests.peer.conftest import Net, parts_of
from tests.peer.engines.partitioned.enrolling.whole_fronts import WholeFront

CLIENT = "c"
WAITING = 200
"""Messages of a kilobyte: several pieces."""


class Scene:
    """A client with a kept session at the first front, where messages wait for it."""

    def __init__(self, net: Net) -> None:
        self.net = net
        owners = net.owners(key_of_partition(partition_of(CLIENT)), net.config.shadows + 1)
        apart = [member for member in net.members.values() if member.me not in owners]
        self.fronts = [WholeFront(member) for member in net.members.values()]
        self.old, self.new, self.third, *_ = [front for front in self.fronts if front.member in apart]
        self.publisher = self.third.client()
        self.publisher.connect("")
        self.came: list[bytes] = []
        self.client = self.connect(self.old)
        self.run()
        self.client.send_subscribe("a", qos=1)
        self.run()
        assert any(isinstance(packet, Suback) for packet in self.read())
        self.client.leave()
        self.sent = 0
        self.publish(WAITING)
        self.run()

    def connect(self, front: WholeFront, clean: bool = False) -> Client:
        self.client = front.client()
        self.client.connect(CLIENT, clean=clean, session_expiry_s=1000)
        return self.client

    def publish(self, count: int) -> None:
        for _ in range(count):
            self.publisher.publish("a", b"%d" % self.sent + b"." * 1000, qos=1)
            self.sent += 1

    def run(self, span_s: float = 0.0) -> None:
        for _ in range(20):
            self.net.run(span_s / 20)
            for front in self.fronts:
                front.follow()
                front.member.settle()

    def read(self) -> list[object]:
        packets = self.client.take()
        for packet in packets:
            if isinstance(packet, Publish):
                self.came.append(bytes(packet.payload).rstrip(b"."))
                self.client.send(Puback(packet.packet_id))
        return [*packets]

    def is_present(self) -> bool:
        connack = self.read()[0]
        assert isinstance(connack, Connack)
        return connack.session_present

    def everything(self) -> list[bytes]:
        """What comes in some seconds."""
        for _ in range(10):
            self.read()
            self.run(0.5)
        return self.came


@pytest.fixture
def scene(net: Net) -> Scene:
    return Scene(net)


def all_of(scene: Scene) -> list[bytes]:
    return [b"%d" % number for number in range(scene.sent)]


def losing(scene: Scene, wanted: Callable[[object], bool]) -> None:
    scene.net.lost = lambda sender, receiver, message: any(wanted(part) for part in parts_of(message))


def test_a_long_queue_comes_in_pieces_each_of_which_waits_for_the_one_before(scene: Scene) -> None:
    scene.net.seen.clear()
    scene.connect(scene.new)
    scene.run(0.1)
    assert scene.is_present()
    scene.publish(10)
    assert scene.everything() == all_of(scene)
    pieces = [part for _, _, message in scene.net.seen for part in parts_of(message) if isinstance(part, Moved)]
    assert max(len(piece.queued) for piece in pieces) < WAITING / 2
    assert [piece.index for piece in pieces] == sorted({piece.index for piece in pieces})
    assert scene.old.broker.sessions == {}


def test_a_silent_home_gives_what_waits_when_it_can_be_reached_again(scene: Scene) -> None:
    old = scene.old.member.me
    scene.net.lost = lambda sender, receiver, message: old in (sender, receiver)
    scene.connect(scene.new)
    scene.run(YIELD_S + 0.5)
    assert not scene.is_present(), "the client is not kept waiting"
    scene.net.lost = lambda sender, receiver, message: False
    assert sorted(scene.everything()) == sorted(all_of(scene))
    assert scene.old.broker.sessions == {}


def test_a_home_that_falls_silent_during_the_move_holds_up_nothing_for_long(scene: Scene) -> None:
    losing(scene, lambda part: isinstance(part, Moved) and part.part is Part.QUEUE)
    scene.connect(scene.new)
    scene.run(0.1)
    assert scene.is_present()
    scene.net.doubted.add(scene.old.member.me.id)
    scene.publish(1)
    scene.run(SILENT_S)
    scene.read()
    assert scene.came == [b"%d" % WAITING]
    scene.net.doubted.clear()
    scene.net.lost = lambda sender, receiver, message: False
    assert sorted(scene.everything()) == sorted(all_of(scene))


def test_a_session_that_nobody_has_taken_goes_to_the_next_home_when_the_new_one_dies(scene: Scene) -> None:
    losing(scene, lambda part: isinstance(part, Moved))
    scene.connect(scene.new)
    scene.run(0.1)
    scene.net.lost = lambda sender, receiver, message: False
    scene.fronts.remove(scene.new)
    scene.net.crash(scene.new.member)
    scene.run(STUCK_S + 20.0)
    scene.connect(scene.third)
    scene.run(YIELD_S + 0.5)
    assert scene.is_present()
    assert scene.everything() == all_of(scene)


def test_a_clean_start_during_a_move_gets_nothing_of_it(scene: Scene) -> None:
    losing(scene, lambda part: isinstance(part, Moved) and part.part is Part.QUEUE)
    scene.connect(scene.new)
    scene.run(0.1)
    assert scene.is_present()
    scene.connect(scene.new, clean=True)
    scene.net.lost = lambda sender, receiver, message: False
    scene.run(10.0)
    assert not scene.is_present()
    assert scene.everything() == []
    assert scene.old.broker.sessions == {}
    assert scene.old.broker.router.statistics().subscriptions == 0


def test_a_client_that_is_not_served_leaves_its_session_where_it_is(scene: Scene) -> None:
    losing(scene, lambda part: isinstance(part, Moved))
    scene.connect(scene.new)
    scene.client.drop()
    scene.net.lost = lambda sender, receiver, message: False
    scene.run(10.0)
    assert CLIENT in scene.old.broker.sessions
    scene.connect(scene.third)
    scene.run(0.5)
    assert scene.is_present()
    assert scene.everything() == all_of(scene)
