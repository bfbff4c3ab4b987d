"""The coordinator of a place answers its subscribers and publishers (Table 2.1: Sub, UnSub, SubReq).

SUBACK is strict: an entry is granted when all shadows have it, and every publisher has it too or can trust no older
list any more. So every message published anywhere after a SUBACK is sent to that subscriber too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from msgspec.structs import replace

from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import (
    Control,
    Drop,
    Elsewhere,
    Fetch,
    Fetched,
    Granted,
    Kind,
    Note,
    Noted,
    Record,
    Records,
    Renewed,
    Retain,
    Retained,
    Sub,
    SubAck,
    SubReq,
    Wanted,
)
from ringmq.peer.engines.coordinated.retained_topics import RetainedTopics
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import inner_of, is_shared, is_wild, place_of, prefix_of
from ringmq.peer.messaging.pending import Countdown
from ringmq.peer.replication.replica import Follower, Replica, Role, Waiter
from ringmq.peer.replication.takeover import Takeover
from ringmq.peer.replication.tombstones import Tombstones

RETAINED: Final = "retained"
CLEARED: Final = "cleared"


class Coordinator:
    """One per engine: answers the requests to this peer as the coordinator of places."""

    __slots__ = ("_notes", "_replicas", "_replication", "_state", "takeover")

    def __init__(self, state: MessagingContext, cleared: Tombstones, answer: Callable[[Peer, Control], None]) -> None:
        """`answer` is called again with each request that waited until this peer was the coordinator."""
        self._state = state
        self.takeover = Takeover(state, cleared, answer, self._took_over, self._retained_ended)
        self._replicas = self.takeover.replicas
        self._replication = self.takeover.replication
        self._notes = RetainedTopics(state)

    def _serving(self, place: str, sender: Peer, message: Control) -> Replica | None:
        """The replica of a place that this peer coordinates. None: the request waits, or is refused."""
        replica = self._replicas.get(place)
        if replica is not None and replica.coordinates:
            return replica
        known = replica is not None
        if replica is None:
            replica = self._replicas.open(place)
        # Only an open replica has owners to compare; a request to the wrong peer must not leave one behind.
        if not self._replicas.first(replica):
            if not known:
                self._replicas.close(replica)
            self._state.send(sender, Elsewhere((place,)))
            return None
        if len(replica.stash) < self._state.config.max_stashed:
            replica.stash += ((sender, message),)
        if replica.role is Role.HOLDER:
            self.takeover.review(replica)
        return None

    def sub(self, sender: Peer, message: Sub) -> None:
        granted = []
        for entry in message.entries:
            # Copies of an entry merge by its number, so nobody but the subscriber peer may give numbers.
            if entry.kind is not Kind.ENTRY or entry.peer is None or entry.peer.id != sender.id:
                continue
            # Each entry has its own place, which may be in a takeover: it waits and is answered by itself.
            alone = Sub((entry,), message.wants)
            replica = self._serving(place_of(entry.name), sender, alone)
            if replica is not None:
                known = self._admit(replica, entry, sender, message.wants)
                if known is not None:
                    granted.append(known)
        if granted:
            self._state.send(sender, SubAck(tuple(granted)))

    def _admit(self, replica: Replica, entry: Record, sender: Peer, wants: bool) -> Granted | None:
        """Store an entry or renew its lease. Returns the answer if it need not wait for any peer."""
        book, key = replica.book, entry.key
        known = book.get(key)
        if known is not None and (known.number, known.gone) > (entry.number, entry.gone):
            return Granted(entry.name, known.number, True, (), None)
        if known is None or (known.number, known.gone) < (entry.number, entry.gone):
            self._replication.take(replica, entry)
            self._replication.spread(replica)
        elif not entry.gone:
            replica.expires[key] = self._state.clock.now + self._state.config.entry_s
            # A renewal changes no record, so no other peer must acknowledge it.
            if known.confirmed and not wants:
                return Granted(entry.name, entry.number, False, (), None)
        # An end does not wait for the publishers: the subscriber peer drops or refuses messages sent by an older list.
        listed = not entry.gone
        deadline = self._state.clock.now + self._state.config.void_s
        waiting = replica.waiters.get(key)
        # A subscriber repeats its request while it waits; that must not extend the wait for a silent publisher.
        if waiting is not None and waiting.position == book.position_of(key):
            deadline = waiting.deadline
        then = partial(self._grant, replica, entry, sender, wants)
        self._replication.wait(replica, key, Waiter(book.position_of(key), then, listed, deadline))
        return None

    def _grant(self, replica: Replica, entry: Record, sender: Peer, wants: bool) -> None:
        """Every shadow and publisher has acknowledged the entry: send the SUBACK."""
        record = replica.book.get(entry.key)
        if record is None or record.number != entry.number:
            return
        topics: tuple[str, ...] = ()
        retained = None
        if not entry.gone:
            # The shadows copy the confirmation, so that a successor can answer renewals at once.
            confirmed = Record(record.kind, record.name, record.peer, record.number, False, True)
            if self._replication.take(replica, confirmed):
                self._replication.spread(replica)
            # MQTT 5.0, 3.3.1.3: only a new non-shared subscription gets the retained messages.
            if wants and not is_shared(entry.name):
                topics, retained = self._retained_for(replica, inner_of(entry.name))
        answer = Granted(entry.name, entry.number, entry.gone, topics, retained)
        self._state.send(sender, SubAck((answer,)))

    def _retained_for(self, replica: Replica, topic_filter: str) -> tuple[tuple[str, ...], Record | None]:
        """The topics that a wildcard filter must fetch: the noted topics, and the topic named like the place, which has
        no note."""
        if not is_wild(replica.place):
            return (), replica.retained(self._state.clock.now)
        noted = [record.name for record in replica.book if record.kind is Kind.NOTE and not record.gone]
        prefix = prefix_of(replica.place)
        topics = [prefix, *noted] if prefix else noted
        return tuple([topic for topic in topics if matches(topic_filter, topic)]), None

    def sub_req(self, sender: Peer, message: SubReq) -> None:
        renewed = []
        until = self._state.clock.now + self._state.config.void_s
        for item in message.items:
            alone = SubReq((item,), message.asked_at)
            replica = self._serving(item.place, sender, alone)
            if replica is None:
                continue
            publisher = replica.publishers.get(sender.id)
            if publisher is not None and self._unchanged(replica, item, publisher, sender):
                publisher.until = until
                renewed.append(item)
            else:
                self._register(replica, item, sender, message.asked_at)
        if renewed:
            self._state.send(sender, Renewed(tuple(renewed), message.asked_at))

    def _unchanged(self, replica: Replica, item: Wanted, publisher: Follower, sender: Peer) -> bool:
        """Whether a publisher has the whole list, and all shadows know that it uses it."""
        book = replica.book
        if publisher.peer.boot != sender.boot or item.epoch != replica.epoch:
            return False
        # A publisher uses a new list before its acknowledgement: its retained messages by older lists are stored first.
        if min(item.position, publisher.acked) < book.listed:
            return False
        return book.position_of((Kind.PUBLISHER, "", sender.id)) <= self._replication.copied_up_to(replica)

    def _register(self, replica: Replica, item: Wanted, sender: Peer, asked_at: float) -> None:
        """Send a publisher the list once the shadows know the publisher: a successor must notify it of changes."""
        if item.epoch is not None and item.epoch > replica.epoch:
            # No peer is left that knows the later epochs: gather again, and continue above them.
            replica.epoch = item.epoch
            replica.end()
            self._serving(item.place, sender, SubReq((item,), asked_at))
            return
        key = (Kind.PUBLISHER, "", sender.id)
        known = replica.publishers.get(sender.id)
        # A publisher that restarted has lost its lists, so it registers like a new publisher.
        if known is None or known.peer.boot != sender.boot:
            record = replica.book.get(key)
            number = 1 if record is None else record.number[0] + 1
            self._replication.take(replica, Record(Kind.PUBLISHER, "", sender, (number, 0), False))
            known = replica.publishers[sender.id]
            known.sent = replica.book.position  # `_answer` sends these records
            self._replication.spread(replica)
        then = partial(self._answer, replica, known, item, asked_at)
        self._replication.wait(replica, ("list", sender.id), Waiter(replica.book.position_of(key), then))

    def _answer(self, replica: Replica, publisher: Follower, item: Wanted, asked_at: float) -> None:
        same = item.epoch == replica.epoch
        publisher.until = self._state.clock.now + self._state.config.void_s
        publisher.sent = replica.book.position
        since = item.position if same else 0
        self._state.send(publisher.peer, self._replication.list_for(replica, since, asked_at))
        if publisher.acked < replica.book.listed:
            self._replication.expect(replica, publisher)

    def drop(self, sender: Peer, message: Drop) -> None:
        """A publisher does not use these lists any more."""
        for place in message.places:
            replica = self._replicas.get(place)
            if replica is None or not replica.coordinates or sender.id not in replica.publishers:
                continue
            record = replica.book.get((Kind.PUBLISHER, "", sender.id))
            del replica.publishers[sender.id]
            if record is not None:
                number = (record.number[0] + 1, 0)
                self._replication.take(replica, Record(Kind.PUBLISHER, "", sender, number, True))
            self._replication.spread(replica)

    def retain(self, sender: Peer, message: Retain) -> None:
        """Store a message; answer when the shadows have it too, and the wildcard places know its topic.

        The places are notified at once: a client that subscribes while a shadow is silent must find the topic there,
        as nobody sends it the message live.
        """
        record = message.record
        replica = self._serving(record.name, sender, message)
        if replica is None or record.kind is not Kind.RETAINED:
            return
        if self._replication.take(replica, record):
            self._replication.spread(replica)
        # A known message is answered too: the publisher repeats it until it has an answer.
        answer = Retained(record.name, record.number, self._state.hybrid_clock)
        # The publisher acknowledges its client after this answer, so it waits for the commit here.
        send = partial(self._state.promise, sender, answer)
        who = (RETAINED, sender.id, record.number)
        both = Countdown(2, send)
        self._note(record.name, who, both.down)
        self._replication.wait(replica, who, Waiter(replica.book.position_of(record.key), both.down))

    def _note(self, topic: str, who: Hashable, then: Callable[[], None]) -> None:
        """Call back when the wildcard places know the topic, or at once if no message is retained."""
        record = self.kept(topic)
        if record is None:
            then()
        else:
            self._notes.ensure(record, who, then)

    def _retained_ended(self, replica: Replica, record: Record) -> None:
        """Remove the topic from the wildcard places once the shadows know the end too."""
        self._replication.wait(replica, CLEARED, Waiter(replica.book.position, partial(self._end_note, record)))

    def _end_note(self, record: Record) -> None:
        # Another message may have been retained while the shadows were waited for.
        if self.kept(record.name) is None:
            self._notes.end(record)

    def _took_over(self, replica: Replica) -> None:
        """This peer now renews the notes about the retained message of the place."""
        if not is_wild(replica.place):
            record = replica.last_retained
            if record is not None and record.gone:
                # The former coordinator may have died before all wildcard places knew of the end.
                self._notes.end(record)
            elif record is not None:
                self._notes.ensure(record, None, lambda: None)

    def kept(self, topic: str) -> Record | None:
        """The retained message of a topic, if this peer coordinates it."""
        replica = self._replicas.get(topic)
        record = replica.last_retained if replica is not None and replica.coordinates else None
        return None if record is None or record.gone else record

    def note(self, sender: Peer, message: Note) -> None:
        replica = self._serving(message.place, sender, message)
        if replica is None:
            return
        position = 0
        for record in message.notes:
            if record.kind is Kind.NOTE:
                self._take_note(replica, record)
                position = max(position, replica.book.position_of(record.key))
        self._replication.spread(replica)
        answer = partial(self._say_noted, replica, message.notes, sender)
        self._replication.wait(replica, ("note", sender.id, message.notes), Waiter(position, answer))

    def _say_noted(self, replica: Replica, notes: Records, sender: Peer) -> None:
        known = tuple([replica.book.get(record.key) or record for record in notes])
        # A client has its PUBACK after all notes of its message are known, so they must outlive a crash of this peer.
        self._state.promise(sender, Noted(replica.place, known))

    def _take_note(self, replica: Replica, record: Record) -> None:
        """Merge it, or renew its lease."""
        key = record.key
        known = replica.book.get(key)
        if known is not None and known.gone and not (known.confirmed or record.gone) and known.number > record.number:
            # The note expired here without a renewal; no coordinator has reported that the topic was cleared.
            record = replace(record, number=(known.number[0] + 1, known.number[1]))
        # The disk does not store the publisher of a noted message, so equal stamps are the same message.
        if known is None or known.gone != record.gone or known.number[0] < record.number[0]:
            self._replication.take(replica, record)
        if key in replica.expires:
            replica.expires[key] = self._state.clock.now + self._state.config.note_s

    def noted(self, sender: Peer, message: Noted) -> None:
        self._notes.noted(message)

    def fetch(self, sender: Peer, message: Fetch) -> None:
        replica = self._serving(message.topic, sender, message)
        if replica is not None:
            self._state.send(sender, Fetched(message.topic, replica.retained(self._state.clock.now)))

    def tick(self) -> None:
        """Renew the notes about the topics retained here."""
        self._notes.renew(self.kept)
