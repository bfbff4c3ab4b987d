"""Two fronts that give sessions to each other: what is in flight, what waits, what comes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringmq.mqtt_front.cluster import Done, Enrolment, Settled, Standing
from ringmq.mqtt_front.codec.packets import Connack, Puback, Publish, Pubrec, Pubrel, Subscription
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.moves import MOST_NOTED
from ringmq.mqtt_front.sessions.moving_session import Carried, MovingSession, Origin
from tests.mqtt_front.conftest import Client, QuickPorts, World

PIECE_BYTES = 1000
CLIENT = "c"


class Side(QuickPorts):
    """The layer above one of the fronts: it knows the session that the other gives."""

    def __init__(self, peer: int) -> None:
        super().__init__()
        self.peer = peer
        self.moving: MovingSession | None = None
        self.has_arrived: list[str] = []
        self.late: list[tuple[str, Done]] | None = None
        """Filters that are not in force yet."""

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        moving, self.moving = self.moving, None
        settled(Standing.CURRENT if moving is None else Standing.STALE, moving)

    def arrived(self, client_id: str) -> None:
        self.has_arrived.append(client_id)

    def next_origin(self) -> Origin:
        return self.peer, 1, len(self.messages) + 1

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        if self.late is None:
            super().filter_added(topic_filter, done, lasting)
        else:
            self.late.append((topic_filter, done))


class Pair:
    """An old front with a kept session, and a new one."""

    def __init__(self) -> None:
        self.sides = Side(1), Side(2)
        self.old, self.new = [World(cluster=side) for side in self.sides]
        self.client = self.connect(self.old)
        self.received = 0

    def connect(self, world: World, clean: bool = False) -> Client:
        client = world.client()
        client.connect(CLIENT, clean=clean, session_expiry_s=600)
        return client

    def move(self) -> Client:
        """The client connects at the new front. Nothing of what waits has left the old one."""
        self.sides[1].moving = self.old.broker.give_up(CLIENT, None, False)
        return self.connect(self.new)

    def carry(self) -> Iterator[list[Carried]]:
        """Each piece that is on its way, until nothing waits at the old front."""
        while piece := self.old.broker.moves.next_piece(CLIENT, PIECE_BYTES):
            self.new.broker.moves.arrive(CLIENT, piece, last=False)
            yield piece

    def finish(self) -> None:
        for _ in self.carry():
            pass
        self.new.broker.moves.arrive(CLIENT, (), last=True)
        self.old.broker.moves.let_go(CLIENT)
        for _ in self.carry():
            pass
        self.new.broker.moves.over(CLIENT)
        self.old.broker.moves.gone(CLIENT)

    def ring(self, world: World, payload: bytes, number: int, qos: int = 1) -> None:
        """A message of a third peer comes to a front."""
        moves = world.broker.moves
        moves.comes((3, 1, number), "a")
        world.broker.distribute(Message("a", payload, qos))
        moves.came()

    def both(self, payload: bytes, number: int) -> None:
        for world in (self.old, self.new):
            self.ring(world, payload, number)


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.client.take()
    made.client.subscribe("a", qos=2, ids=(7,))
    return made


def test_the_session_is_present_and_what_was_in_flight_is_repeated_first(pair: Pair) -> None:
    for number in range(3):
        pair.ring(pair.old, b"%d" % number, number, qos=1 + number % 2)
    first, second, third = pair.client.messages()
    pair.client.send(Pubrec(second.packet_id))
    pair.client.take()
    pair.client.drop()
    for number in range(3, 6):
        pair.ring(pair.old, b"%d" % number, number)
    client = pair.move()
    connack, *packets = client.take()
    assert isinstance(connack, Connack)
    assert connack.session_present
    again = [(packet.packet_id, getattr(packet, "dup", None)) for packet in packets]
    assert again == [(second.packet_id, None), (first.packet_id, True), (third.packet_id, True)]
    assert isinstance(packets[0], Pubrel)
    pair.finish()
    assert client.payloads() == [b"3", b"4", b"5"]
    assert pair.old.broker.moves.leaving == {}
    assert pair.old.broker.router.statistics().subscriptions == 0
    assert pair.new.broker.moves.coming == {}


def test_subscriptions_come_with_their_options_and_are_announced(pair: Pair) -> None:
    pair.client.subscribe(Subscription("b", 1, no_local=True, retain_as_published=True), ids=(9,))
    pair.client.drop()
    pair.sides[1].late = []
    client = pair.move()
    client.take()
    session = pair.new.session(CLIENT)
    receivers = pair.new.broker.router.filters(session)
    assert (receivers["a"].qos, receivers["a"].subscription_ids) == (2, (7,))
    b = receivers["b"]
    assert (b.qos, b.no_local, b.retain_as_published, b.subscription_ids) == (1, True, True, (9,))
    assert pair.sides[1].has_arrived == []
    for _, done in pair.sides[1].late:
        assert pair.sides[1].has_arrived == []
        done(Reason.SUCCESS)
    assert pair.sides[1].has_arrived == [CLIENT]


def test_what_comes_here_waits_for_what_waits_there(pair: Pair) -> None:
    pair.client.drop()
    for number in range(10):
        pair.ring(pair.old, b"%d" % number, number)
    client = pair.move()
    client.take()
    pair.ring(pair.new, b"new", 100)
    assert client.messages() == []
    for _ in pair.carry():
        pass
    assert client.payloads() == [b"%d" % number for number in range(10)]
    pair.finish()
    assert client.payloads() == [b"new"]
    pair.ring(pair.new, b"newer", 101)
    assert client.payloads() == [b"newer"]


def test_a_message_that_comes_both_ways_is_delivered_once(pair: Pair) -> None:
    pair.client.drop()
    pair.ring(pair.old, b"waits", 1)
    client = pair.move()
    client.take()
    pair.ring(pair.old, b"there alone", 2)
    pair.both(b"both", 3)
    pair.ring(pair.new, b"here alone", 4)
    pair.finish()
    assert client.payloads() == [b"waits", b"there alone", b"both", b"here alone"]


def test_a_message_of_a_client_here_is_known_when_it_comes_from_the_other_front(pair: Pair) -> None:
    client = pair.move()
    client.take()
    publisher = pair.new.connect("publisher")
    publisher.publish("a", b"local", qos=1)
    # The front passes it on, and the other front takes it for the session, too.
    moves = pair.old.broker.moves
    moves.comes((2, 1, 1), "a")
    pair.old.broker.distribute(Message("a", b"local", 1))
    moves.came()
    pair.finish()
    assert client.payloads() == [b"local"]


def test_a_session_that_leaves_before_it_has_come_takes_everything_along(pair: Pair) -> None:
    pair.client.drop()
    for number in range(30):
        pair.ring(pair.old, b"x" * 100 + b"%d" % number, number)
    first = pair.move()
    first.take()
    pieces = pair.carry()
    next(pieces)
    assert len(first.messages()) < 30
    # The client goes on to a third front, while the first one has more.
    third_side = Side(4)
    third = World(cluster=third_side)
    pair.ring(pair.new, b"here", 200)
    third_side.moving = pair.new.broker.give_up(CLIENT, None, False)
    second = pair.connect(third)
    _, *in_flight = second.take()
    assert not pair.new.broker.moves.is_whole(CLIENT)
    pair.finish()
    assert pair.new.broker.moves.is_whole(CLIENT)
    while piece := pair.new.broker.moves.next_piece(CLIENT, PIECE_BYTES):
        third.broker.moves.arrive(CLIENT, piece, last=False)
    third.broker.moves.over(CLIENT)
    pair.new.broker.moves.gone(CLIENT)
    # What the client had not acknowledged at the second front has come with the session, in flight.
    payloads = [message.payload for message in in_flight if isinstance(message, Publish)] + second.payloads()
    assert payloads == [b"x" * 100 + b"%d" % number for number in range(30)] + [b"here"]
    assert pair.new.broker.moves.leaving == {}


def test_a_session_of_another_user_is_not_given_away(pair: Pair) -> None:
    assert pair.old.broker.give_up(CLIENT, "somebody", False) is None
    assert CLIENT not in pair.old.broker.sessions


def test_what_nobody_takes_stays(pair: Pair) -> None:
    pair.client.drop()
    for number in range(5):
        pair.ring(pair.old, b"%d" % number, number)
    pair.old.broker.give_up(CLIENT, None, False)
    pair.old.broker.moves.next_piece(CLIENT, 1)
    pair.ring(pair.old, b"5", 5)
    assert CLIENT not in pair.old.broker.sessions
    pair.old.broker.moves.keep(CLIENT)
    client = pair.connect(pair.old)
    connack, *messages = client.take()
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert [getattr(message, "payload", None) for message in messages] == [b"%d" % number for number in range(6)]


def test_a_client_that_comes_back_gets_what_has_not_left(pair: Pair) -> None:
    pair.client.drop()
    for number in range(5):
        pair.ring(pair.old, b"%d" % number, number)
    pair.old.broker.give_up(CLIENT, None, False)
    client = pair.connect(pair.old)
    connack, *messages = client.take()
    assert isinstance(connack, Connack)
    assert [getattr(message, "payload", None) for message in messages] == [b"%d" % number for number in range(5)]
    assert pair.old.broker.moves.leaving == {}


def test_a_clean_start_wants_nothing_of_all_that(pair: Pair) -> None:
    pair.client.drop()
    pair.ring(pair.old, b"old", 1)
    pair.old.broker.give_up(CLIENT, None, False)
    client = pair.connect(pair.old, clean=True)
    assert len(client.take()) == 1
    client.subscribe("a", qos=1)
    pair.ring(pair.old, b"new", 2)
    message = client.message()
    assert message.payload == b"new"
    client.send(Puback(message.packet_id))


def test_the_memory_of_messages_is_bounded(pair: Pair) -> None:
    pair.move()
    moves = pair.new.broker.moves
    for number in range(MOST_NOTED + 10):
        moves.comes((3, 1, number), "b")
        moves.came()
    assert len(moves._noted) == MOST_NOTED
    pair.finish()
    assert moves._noted == {}
