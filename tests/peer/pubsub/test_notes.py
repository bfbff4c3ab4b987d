"""A wildcard place knows which topics below it have something retained, and does not forget it while that is so."""

from __future__ import annotations

from overlay.messages import Peer
from peer.pubsub.messages import Control, Kind, Note, Noted
from peer.pubsub.notes import Notes
from peer.pubsub.places import wild_places_of
from peer.pubsub.state import State
from peer.pubsub.wire import Publication, decode
from tests.peer.pubsub.conftest import Net


def test_all_places_are_told_until_they_answer(state: State) -> None:
    notes, done = Notes(state), []
    queue = state.overlay.net.queue  # type: ignore[attr-defined]
    notes.ensure("a/b", 1, lambda: done.append(1))
    notes.ensure("a/b", 2, lambda: done.append(2))
    told = [decode(payload) for _, _, payload in queue]
    assert {one.place for one in told if isinstance(one, Note)} == set(wild_places_of("a/b"))
    for place in ("a/b/#", "a/#"):
        notes.noted(Noted(place, ("a/b",)))
    assert done == []
    queue.clear()
    state.now = 1.0
    state.agenda.run(1.0)
    assert [decode(payload) for _, _, payload in queue] == [Note("#", ("a/b",))]
    notes.noted(Noted("#", ("a/b", "unasked")))
    assert done == [1, 2]
    notes.ensure("a/b", 3, lambda: done.append(3))
    assert done == [1, 2, 3], "they know it"


def test_only_what_is_kept_is_told_again(state: State) -> None:
    notes = Notes(state)
    for topic in ("a", "b"):
        notes.ensure(topic, None, lambda: None)
        notes.noted(Noted(f"{topic}/#", (topic,)))
        notes.noted(Noted("#", (topic,)))
    queue = state.overlay.net.queue  # type: ignore[attr-defined]
    queue.clear()
    notes.renew(lambda topic: True)
    assert not queue
    state.now = state.config.note_s / 2
    notes.renew(lambda topic: topic == "a")
    told = [decode(payload) for _, _, payload in queue]
    assert told == [Note("#", ("a",)), Note("a/#", ("a",))]


def test_notes_outlive_their_lease_as_long_as_they_are_true(net: Net) -> None:
    publisher = net.others("a/b", "a/#", "#")[0]
    publisher.publish("a/b", b"kept", retain=True)
    net.run(3 * net.config.note_s)
    late = net.others("a/b", "a/#", "#")[-1]
    late.subscribe("a/+")
    net.run(1.0)
    assert late.kept == {"a/b": b"kept"}
    publisher.publish("a/b", b"", retain=True)
    net.run(3 * net.config.note_s)
    holding = net.holders("a/#")[0].core.holdings.get("a/#")
    assert holding is None or not [record for record in holding.book if record.kind is Kind.NOTE and not record.gone]


def test_a_message_is_stored_when_the_places_know(net: Net) -> None:
    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return isinstance(message, Note)

    publisher = net.others("a")[0]
    net.lost = lost
    publisher.publish("a", b"kept", retain=True)
    net.run(2.0)
    assert publisher.reasons == []
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert len(publisher.reasons) == 1
