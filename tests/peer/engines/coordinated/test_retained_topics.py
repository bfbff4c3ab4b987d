"""A wildcard place knows which topics below it have something retained, and does not forget it while that is so."""

from __future__ import annotations

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import AppendAck, Control, Kind, Note, Noted, Record
from ringmq.peer.engines.coordinated.retained_topics import RetainedTopics
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import key_of_place, noting_places_of
from ringmq.peer.messaging.publication import Publication, decode, encode_control
from tests.peer.conftest import Net


def kept(topic: str, stamp: int = 1) -> Record:
    return Record(Kind.RETAINED, topic, None, (stamp, 7), False, body=b"x")


def note(topic: str, stamp: int = 1) -> Record:
    return Record(Kind.NOTE, topic, None, (stamp, 7), False)


def end(topic: str, stamp: int) -> Record:
    return Record(Kind.NOTE, topic, None, (stamp, 7), True, True)


def told_by(state: MessagingContext) -> list[object]:
    """Since it was asked last."""
    state.flush()
    queue = state.overlay.net.queue  # type: ignore[attr-defined]
    told: list[object] = [decode(payload) for _, _, payload in queue]
    queue.clear()
    return told


def test_all_places_are_told_until_they_answer(state: MessagingContext) -> None:
    notes, done = RetainedTopics(state), []
    notes.ensure(kept("a/b/c"), 1, lambda: done.append(1))
    notes.ensure(kept("a/b/c", 2), 2, lambda: done.append(2))
    assert {one.place for one in told_by(state) if isinstance(one, Note)} == {"a/b/#", "a/#", "#"}
    for place in ("a/b/#", "a/#"):
        notes.noted(Noted(place, (note("a/b/c"),)))
    assert done == []
    state.clock.now = 1.0
    state.timers.run(1.0)
    assert told_by(state) == [Note("#", (note("a/b/c"),))]
    notes.noted(Noted("#", (note("a/b/c"), note("unasked"))))
    assert done == [1, 2]
    notes.ensure(kept("a/b/c", 3), 3, lambda: done.append(3))
    assert done == [1, 2, 3], "they know it"
    assert told_by(state) == []


def test_only_what_is_kept_is_told_again(state: MessagingContext) -> None:
    notes = RetainedTopics(state)
    for topic in ("a", "b"):
        notes.ensure(kept(topic), None, lambda: None)
        notes.noted(Noted("#", (note(topic),)))
    told_by(state)
    notes.renew(kept)
    assert told_by(state) == []
    state.clock.now = state.config.note_s / 2
    notes.renew(lambda topic: kept(topic, 5) if topic == "a" else None)
    assert told_by(state) == [Note("#", (note("a", 5),))], "as it is now"


def test_an_end_is_told_until_it_is_known(state: MessagingContext) -> None:
    notes, done = RetainedTopics(state), []
    notes.ensure(kept("a/b"), 1, lambda: done.append(1))
    notes.noted(Noted("#", (note("a/b"),)))
    told_by(state)
    notes.end(Record(Kind.RETAINED, "a/b", None, (5, 7), True))
    assert told_by(state) == [Note("#", (end("a/b", 5),)), Note("a/#", (end("a/b", 5),))]
    notes.noted(Noted("a/#", (note("a/b"),)))
    notes.noted(Noted("#", (end("a/b", 6),)))
    state.clock.now = 1.0
    state.timers.run(1.0)
    assert told_by(state) == [Note("a/#", (end("a/b", 5),))], "that was an answer to what was told before"
    notes.noted(Noted("a/#", (end("a/b", 5),)))
    assert done == [1], "who waited for the note need not wait any more"
    state.clock.now = 9.0
    state.timers.run(9.0)
    assert told_by(state) == []
    notes.renew(kept)
    state.clock.now = state.config.note_s
    notes.renew(kept)
    assert told_by(state) == []


def test_a_new_message_takes_the_place_of_the_end(state: MessagingContext) -> None:
    notes, done = RetainedTopics(state), []
    notes.end(Record(Kind.RETAINED, "a", None, (5, 7), True))
    notes.ensure(kept("a", 6), 1, lambda: done.append(1))
    assert told_by(state) == [Note("#", (end("a", 5),)), Note("#", (note("a", 6),))]
    notes.noted(Noted("#", (end("a", 5),)))
    assert done == []
    notes.noted(Noted("#", (note("a", 6),)))
    assert done == [1]


def test_who_was_told_of_a_later_end_is_told_of_the_next_message(state: MessagingContext) -> None:
    notes, done = RetainedTopics(state), []
    notes.ensure(kept("a/b", 5), 1, lambda: done.append(1))
    notes.noted(Noted("#", (end("a/b", 9),)))
    notes.noted(Noted("a/#", (note("a/b", 5),)))
    assert done == [1]
    told_by(state)
    notes.ensure(kept("a/b", 10), 2, lambda: done.append(2))
    assert told_by(state) == [Note(place, (note("a/b", 10),)) for place in ("#", "a/#")]
    for place in noting_places_of("a/b"):
        notes.noted(Noted(place, (note("a/b", 10),)))
    assert done == [1, 2]
    notes.noted(Noted("#", (end("a/b", 11),)))
    notes.renew(lambda topic: kept(topic, 12))
    assert told_by(state) == [Note(place, (note("a/b", 12),)) for place in ("#", "a/#")]


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
    replica = net.holders("a/#")[0].core.replicas.get("a/#")
    assert replica is None or not [record for record in replica.book if record.kind is Kind.NOTE and not record.gone]


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


def noted_at(net: Net, place: str) -> list[set[str]]:
    """The topics that are noted at each of those who hold a place."""
    found = []
    for member in net.holders(place):
        replica = member.core.replicas.get(place)
        records = [] if replica is None else list(replica.book)
        found.append({record.name for record in records if record.kind is Kind.NOTE and not record.gone})
    return found


def test_what_is_cleared_is_not_noted_any_more(net: Net) -> None:
    publisher = net.others("a/b", "a/#", "#")[0]
    for topic in ("a/b", "a/c"):
        publisher.publish(topic, b"kept", retain=True)
    net.run(1.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [{"a/b", "a/c"}] * 3
    assert noted_at(net, "a/b/#") == [set()] * 3
    net.lost = lambda sender, receiver, message: isinstance(message, Note)
    publisher.publish("a/b", b"", retain=True)
    net.run(1.0)
    assert noted_at(net, "#") == [{"a/b", "a/c"}] * 3
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [{"a/c"}] * 3
    net.run(net.config.tomb_s + 5.0)
    replicas = [member.core.replicas.get("#") for member in net.holders("#")]
    assert not [record for replica in replicas if replica for record in replica.book if record.name == "a/b"]


def test_what_has_expired_is_not_noted_any_more(net: Net) -> None:
    body = encode_body(Message("a/b", b"x", expires_at=10), 0.0)
    net.others("a/b", "a/#", "#")[0].publish("a/b", body, retain=True)
    net.run(5.0)
    assert noted_at(net, "a/#") == [{"a/b"}] * 3
    net.run(7.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [set()] * 3


def test_a_late_end_does_not_remove_the_note_of_a_newer_message(net: Net) -> None:
    publisher, other = net.others("a/b", "a/#", "#")[:2]
    late: list[tuple[Peer, Note]] = []

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        if isinstance(message, Note) and message.notes[0].gone:
            late.append((receiver, message))
            return True
        return False

    publisher.publish("a/b", b"first", retain=True)
    net.run(1.0)
    net.lost = lost
    publisher.publish("a/b", b"", retain=True)
    net.run(0.5)
    net.crash(net.holders("a/b")[0])
    net.run(0.5)
    other.publish("a/b", b"second", retain=True)
    net.run(2.0)
    assert late
    net.lost = lambda sender, receiver, message: False
    for receiver, message in late:
        net.queue.append((publisher.me, receiver, encode_control(message)))
    net.run()
    assert noted_at(net, "a/#") == noted_at(net, "#") == [{"a/b"}] * 3


def test_what_is_retained_again_at_once_has_no_end(net: Net) -> None:
    publisher = net.others("a/b", "a/#", "#")[0]
    publisher.publish("a/b", b"first", retain=True)
    net.run(1.0)
    net.lost = lambda sender, receiver, message: isinstance(message, AppendAck)
    for body in (b"", b"second"):
        publisher.publish("a/b", body, retain=True)
        net.run(0.1)
    net.lost = lambda sender, receiver, message: False
    net.run(2.0)
    assert not [message for _, _, message in net.seen if isinstance(message, Note) and message.notes[0].gone]
    assert noted_at(net, "a/#") == [{"a/b"}] * 3


def test_a_late_renewal_does_not_bring_a_note_back(net: Net) -> None:
    publisher = net.others("a/b", "a/#", "#")[0]
    publisher.publish("a/b", b"first", retain=True)
    net.run(1.0)
    late = [(receiver, message) for _, receiver, message in net.seen if isinstance(message, Note)]
    publisher.publish("a/b", b"", retain=True)
    net.run(1.0)
    for receiver, message in late:
        net.queue.append((publisher.me, receiver, encode_control(message)))
    net.run(1.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [set()] * 3
    publisher.publish("a/b", b"second", retain=True)
    net.run(1.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [{"a/b"}] * 3


def test_the_end_is_told_by_who_comes_after(net: Net) -> None:
    """The coordinator dies with the word on its lips."""
    publisher = net.others("a/b", "a/#", "#")[0]
    publisher.publish("a/b", b"first", retain=True)
    net.run(1.0)
    net.lost = lambda sender, receiver, message: isinstance(message, Note)
    publisher.publish("a/b", b"", retain=True)
    net.run(1.0)
    net.crash(net.holders("a/b")[0])
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [set()] * 3


def test_a_note_that_lapsed_comes_back_with_the_next_word(net: Net) -> None:
    publisher = net.others("a/b", "a/#", "#")[0]
    publisher.publish("a/b", b"kept", retain=True)
    net.run(1.0)
    for _ in range(2):
        net.lost = lambda sender, receiver, message: isinstance(message, Note)
        net.run(net.config.note_s + 5.0)
        assert noted_at(net, "a/#") == noted_at(net, "#") == [set()] * 3
        word = Note("#", tuple([message.notes[0] for _, _, message in net.seen if isinstance(message, Note)][:1]))
        net.lost = lambda sender, receiver, message: False
        net.queue.append((publisher.me, net.owners(key_of_place("#"), 1)[0], encode_control(word)))
        net.run(1.0)
        assert noted_at(net, "#") == [{"a/b"}] * 3
        net.run(net.config.note_s)
        assert noted_at(net, "a/#") == noted_at(net, "#") == [{"a/b"}] * 3
    publisher.publish("a/b", b"", retain=True)
    net.run(1.0)
    assert noted_at(net, "a/#") == noted_at(net, "#") == [set()] * 3


def test_ends_outlive_the_process(lasting: Net) -> None:
    publisher = lasting.others("a/b", "a/#", "#")[0]
    for topic in ("a/b", "a/c"):
        publisher.publish(topic, b"kept", retain=True)
    lasting.run(1.0)
    publisher.publish("a/b", b"", retain=True)
    lasting.run(1.0)
    holders = lasting.holders("#")
    assert [holder.store.load().places["#"][0].name for holder in holders if holder.store] == ["a/c"] * 3
    lasting.seen.clear()
    lasting.restart(*lasting.members.values())
    lasting.run(10.0)
    lasting.seen.clear()
    lasting.run(10.0)
    assert lasting.count(Note) == 0, "what came back from the disk is an answer"
    assert noted_at(lasting, "a/#") == noted_at(lasting, "#") == [{"a/c"}] * 3
    publisher = lasting.others("a/b", "a/#", "#")[0]
    publisher.publish("a/c", b"", retain=True)
    lasting.run(1.0)
    assert noted_at(lasting, "a/#") == noted_at(lasting, "#") == [set()] * 3
