"""A message in a tree: to the clients, to the children, and the word back."""

from __future__ import annotations

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.codec import encode_tree, unwrap
from ringmq.peer.engines.scribe.messages import Arrived, Beat, Branch, Gone, Join, Leave, Reached, RootFetched
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Publication, encode, encode_control
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.replication.record import RecordKind, SharedRecord
from tests.peer.engines.scribe.alone import Lone, peer_at
from tests.peer.engines.scribe.conftest import Ringed

ROOT, CHILD, OTHER, PUBLISHER = (peer_at(point) for point in (1, 11, 12, 13))


def member(lone: Lone, *filters: str, children: tuple[Peer, ...] = (), place: str = "a/#") -> None:
    """Let it be in a tree, below the root."""

    for name in filters:
        lone.core.subscribe(name, lambda _: None)
    for child in children:
        lone.core.forward(key_of_place(place), encode_tree(Join(place, child, False)), ROOT)
    lone.hears(ROOT, Beat((Branch(place, (ROOT.id,)),)))
    lone.sent.clear()


def message(number: int, topic: str = "a/b", qos: int = 1, *, retain: bool = False) -> Publication:
    return Publication(0, number, qos, topic, b"x", retain=retain, stamp=number if retain else 0)


def test_it_goes_to_the_clients_and_to_all_children(lone: Lone) -> None:
    member(lone, "a/+", children=(CHILD, OTHER))
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    assert lone.given == [message(1)]
    copies = [(peer, unwrap(envelope.body)) for peer, envelope in lone.told(Publication)]
    assert {peer for peer, _ in copies} == {CHILD, OTHER}
    assert all(way.origin == PUBLISHER and not way.up and one == message(1) for _, (way, one) in copies)
    assert lone.core.counters.forwarded == 2


def test_the_word_goes_back_when_all_below_have_it(lone: Lone) -> None:
    member(lone, children=(CHILD, OTHER))
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    number = lone.sent[0][1].seq  # type: ignore[union-attr]
    assert isinstance(lone.sent[-1][1], Held), "it holds the message"
    assert lone.told(Reached) == [], "but not all below do"
    lone.hears(CHILD, Reached(0, (Arrived(number, False),)))
    assert lone.told(Reached) == []
    lone.hears(OTHER, Reached(0, (Arrived(number, True),)))
    assert lone.told(Reached) == [(ROOT, Reached(0, (Arrived(1, True),)))]
    assert len(lone.core.spread) == 0


def test_a_leaf_answers_at_once_and_says_whether_it_wanted_it(lone: Lone) -> None:
    member(lone, "a/+")
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    lone.takes_in(ROOT, "a/#", message(2, "a/b/c"), 2, origin=PUBLISHER)
    assert [reached.items for _, reached in lone.told(Reached)] == [(Arrived(1, True),), (Arrived(2, False),)]
    assert lone.given == [message(1)]


def test_a_shell_may_acknowledge_later(lone: Lone) -> None:
    member(lone, "a/#")
    lone.core.acknowledges_later = True
    lone.takes_in(ROOT, "a/#", message(1), 1)
    assert lone.sent == []
    assert lone.core.owes
    lone.core.acknowledge()
    assert not lone.core.owes
    assert [type(sent).__name__ for _, sent in lone.sent] == ["Held", "Reached"]


def test_a_second_copy_goes_nowhere(lone: Lone) -> None:
    member(lone, "a/#", children=(CHILD,))
    lone.takes_in(ROOT, "a/#", message(2, qos=0), 1, origin=PUBLISHER)
    lone.takes_in(ROOT, "a/#", message(2, qos=0), 2, origin=PUBLISHER)
    lone.takes_in(ROOT, "a/#", message(1, qos=0), 3, origin=PUBLISHER)
    assert lone.given == [message(2, qos=0)]
    assert len(lone.told(Publication)) == 1
    assert lone.core.counters.duplicates == 2


def test_a_second_copy_is_reported_with_the_first(lone: Lone) -> None:
    member(lone, children=(CHILD,))
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    lone.takes_in(OTHER, "a/#", message(1), 1, origin=PUBLISHER)
    number = lone.sent[0][1].seq  # type: ignore[union-attr]
    assert [peer for peer, _ in lone.told(Leave)] == [OTHER], "another sends what only the parent should"
    lone.hears(CHILD, Reached(0, (Arrived(number, True),)))
    assert {peer for peer, _ in lone.told(Reached)} == {ROOT, OTHER}


def test_a_child_that_leaves_is_not_waited_for(lone: Lone) -> None:
    member(lone, "a/#", children=(CHILD,))
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    lone.sent.clear()
    lone.hears(CHILD, Leave(("a/#",)))
    assert lone.told(Reached) == [(ROOT, Reached(0, (Arrived(1, True),)))]


def test_its_own_message_is_passed_on_but_not_given_out(lone: Lone) -> None:
    member(lone, "a/#", children=(CHILD,))
    lone.takes_in(ROOT, "a/#", message(1, qos=0), 1, origin=lone.me)
    assert lone.given == []
    assert [peer for peer, _ in lone.told(Publication)] == [CHILD]


def test_two_trees_one_delivery(lone: Lone) -> None:
    member(lone, "a/b", place="a/b")
    member(lone, "a/#")
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    lone.takes_in(CHILD, "a/b", message(1), 1, origin=PUBLISHER)
    assert lone.given == [message(1)]


def test_who_is_in_no_tree_says_so(lone: Lone) -> None:
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    assert [type(sent) for _, sent in lone.sent] == [Leave, Held, Reached]
    lone.sent.clear()
    lone.takes_in(PUBLISHER, "a/#", message(1), 1, up=True)
    assert [type(sent) for _, sent in lone.sent] == [Gone, Held], "the publisher must find the root"


def test_a_root_sends_again_what_a_publisher_sends_again(lone: Lone) -> None:
    lone.reigns("a/#")
    lone.hears(CHILD, Join("a/#", CHILD, False))
    lone.takes_in(PUBLISHER, "a/#", message(1), 1, up=True)
    number = lone.told(Publication)[0][1].seq
    lone.core.receive(CHILD, encode_control(Held(0, 1, ())))
    lone.hears(CHILD, Reached(0, (Arrived(number, True),)))
    assert lone.told(Reached) == [(PUBLISHER, Reached(0, (Arrived(1, True),)))]
    lone.takes_in(PUBLISHER, "a/#", message(1), 2, up=True)
    assert len(lone.told(Publication)) == 1, "the root before it may have reached nobody"


def test_a_forwarder_without_room_passes_nothing_on() -> None:
    lone = Lone(PubSubConfig(max_waiting_bytes=0))
    member(lone, "a/#", children=(CHILD,))
    lone.takes_in(ROOT, "a/#", message(1), 1, origin=PUBLISHER)
    assert lone.given == [message(1)]
    assert lone.told(Publication) == []
    assert lone.core.counters.refused == 1


def test_a_retained_message_is_not_given_out_again_after_it_was_fetched(lone: Lone) -> None:
    member(lone, "a/b", place="a/b")

    record = SharedRecord(RecordKind.RETAINED, "a/b", None, stamp_of(1, PUBLISHER.id), False, body=b"x")
    lone.hears(ROOT, RootFetched("a/b", record))
    lone.takes_in(ROOT, "a/b", message(1, retain=True), 1, origin=PUBLISHER)
    assert lone.given == []
    lone.takes_in(ROOT, "a/b", message(2, retain=True), 2, origin=PUBLISHER)
    assert lone.given == [message(2, retain=True)]


def test_an_envelope_that_cannot_be_read_is_counted(lone: Lone) -> None:

    lone.core.receive(ROOT, encode(Publication(0, 1, 0, "a/#", b"\0\1")))
    assert lone.core.counters.unreadable == 1


def test_every_subscriber_gets_each_message_once(scribe_ring: Ringed) -> None:
    world = scribe_ring(100, 2)
    world.pass_time(0.5)
    exact, wild = world.peers()[::3], world.peers()[::5]
    for node in exact:
        world.subscribe(node, "a/b")
    for node in wild:
        world.subscribe(node, "a/#", "#")
    world.pass_time(2.0)
    publishers = world.peers()[1:30:7]
    sent = [(node, world.publish(node, "a/b", qos)) for node in publishers for qos in (0, 1, 2)]
    world.pass_time(1.0)
    assert all(len(node.reasons) == 3 for node in publishers)
    for node in world.peers():
        expected = {body for publisher, body in sent if node.filters and node is not publisher}
        assert set(node.bodies) == expected
        assert len(node.bodies) == len(expected)
