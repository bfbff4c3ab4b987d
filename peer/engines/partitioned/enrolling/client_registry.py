"""The registry of client ids at their coordinator: one home at a time has each, in the whole ring.

A record lives in the partition of the hash of its client id, and is copied and handed over as all records are. Each
enrolment gets a number above all earlier ones of its client id, by a hybrid clock: of the homes that two parts of a
split ring have enrolled, the later one stays. Knows neither connections nor sessions.
"""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Final

from msgspec.structs import replace

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.quota import MAX_RECORDS
from ringmq.peer.engines.partitioned.coordinating.retaining import Requests
from ringmq.peer.engines.partitioned.enrolling.member import Member, decode_member, encode_member
from ringmq.peer.engines.partitioned.enrolling.messages import (
    MOST_FORMER,
    Enrol,
    Enrolled,
    Superseded,
    Verdict,
)
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.engines.partitioned.truth import Truth
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.record import MOST, Number, RecordKind, SharedRecord

REPEAT_S: Final = 600.0
"""How often homes repeat what they have enrolled, some hundred bytes each: a coordinator that began without copies, or
missed an end, is right again after that."""
SILENT_S: Final = 3 * REPEAT_S
"""The record of a home that has not been heard for so long ends, unless it has kept the session: otherwise nobody but
its user could ever use the client id again."""
AWAY_S: Final = 7 * 86_400.0
"""The same for kept sessions, as long as lasting entries are kept."""


class ClientRegistry:
    """One per coordinator."""

    __slots__ = ("_names", "_requests", "_state", "_streams", "_took_over_at", "_truth")

    def __init__(self, state: MessagingContext, streams: ItemStreams, requests: Requests) -> None:
        self._state = state
        self._streams = streams
        self._requests = requests
        self._truth = Truth(state)
        self._names = NameHash(state.config.hash_seed)
        self._took_over_at = -inf
        """When this peer became the coordinator of some partition: it may not have heard their homes before."""

    def enrol(self, sender: Peer, message: Enrol) -> None:
        """A home has a connection or a session, repeats that it has one, or has none any more."""
        partition = self._names.partition_of(message.client_id)
        if not self._truth.accepts_client_id(partition, message.client_id, message.number):
            return
        if not self._requests.serving(partition, sender, partial(self.enrol, sender, message)):
            return
        known = self._requests.copying.store.get(partition, (RecordKind.CLIENT_ID, message.client_id, 0))
        if message.gone:
            self._end(partition, sender, message, known)
        elif message.number[0] and self._confirms(partition, sender, message, known):
            return
        else:
            self._claim(partition, sender, message, known)

    def _end(self, partition: int, sender: Peer, message: Enrol, known: SharedRecord | None) -> None:
        """End a record, if it is of this home and of no later connection."""
        if known is None or known.gone or known.home is None or known.home.id != sender.id:
            return
        member = decode_member(known.body)
        if known.number != message.number and member.token != message.token:
            return
        if not member.former or message.number[0]:
            # Nobody waits for it.
            self._requests.copying.put(partition, known.ended(), soon=False)
            return
        # The home has served no client: what the home before has kept of the session is the current one again.
        home, *further = member.former
        back = replace(message, gone=False, token=0, kept=member.kept)
        self._put(partition, home, back, self._number(home, known), tuple(further))

    def _confirms(self, partition: int, sender: Peer, message: Enrol, known: SharedRecord | None) -> bool:
        """Whether an enrolment with a number is taken note of; otherwise it needs a new number."""
        if known is None or known.number < message.number:
            self._put(partition, sender, message, message.number, ())
            return True
        if known.number == message.number and not known.gone:
            if message.alone:
                self._put(partition, sender, message, message.number, ())
            return True
        if known.gone or known.home is None or known.home.id == sender.id:
            # The record has lapsed while the home was not heard.
            return False
        self._streams.send(sender, Superseded(message.client_id, known.number))
        return True

    def _claim(self, partition: int, sender: Peer, message: Enrol, known: SharedRecord | None) -> None:
        """Give a client id to a home, and answer when the shadows know it."""
        member = None if known is None or known.gone else decode_member(known.body)
        home = None if member is None or known is None else known.home
        if member is not None and known is not None and home == sender and member.token == message.token:
            # The home has asked again, as this peer has succeeded another coordinator, or the answer is on its way.
            answer = Enrolled(message.client_id, message.token, Verdict.GRANTED, known.number, member.former)
            self._answer(partition, sender, answer)
            return
        elsewhere = home is not None and home.id != sender.id
        verdict = Verdict.GRANTED
        if member is not None and member.user not in (None, message.user):
            verdict = Verdict.FOREIGN
        elif elsewhere and message.restored:
            # What waits in the session goes to the present home, unless that has another user's.
            verdict = Verdict.SUPERSEDED if member is not None and member.user == message.user else Verdict.FOREIGN
        elif known is None and len(self._requests.copying.store.records(partition)) >= MAX_RECORDS:
            verdict = Verdict.FULL
        if verdict is not Verdict.GRANTED:
            there = (known.number, (home,)) if known is not None and home is not None else ()
            self._streams.send(sender, Enrolled(message.client_id, message.token, verdict, *there))
            return
        number = self._number(sender, known)
        before = () if member is None or home is None else (home, *member.former)
        # The sender may be among them: then its session has not been given to those after it.
        former = tuple([*dict.fromkeys(before)][:MOST_FORMER]) if any(peer.id != sender.id for peer in before) else ()
        # Of a session that ends with its connection nothing is lost with this peer: its home repeats the enrolment. So
        # its copies can wait for others that go with them, and its client need not wait for the copies.
        soon = message.kept or bool(former)
        self._put(partition, sender, message, number, former)
        answer = Enrolled(message.client_id, message.token, Verdict.GRANTED, number, former)
        if soon:
            self._answer(partition, sender, answer)
        else:
            self._streams.send(sender, answer)

    def _number(self, home: Peer, known: SharedRecord | None) -> Number:
        """A number above that of every earlier enrolment of the client id."""
        before = 0 if known is None else known.number[0]
        return min(max(self._state.stamp(), before + 1), MOST), home.id & MOST

    def _put(self, partition: int, home: Peer, message: Enrol, number: Number, former: tuple[Peer, ...]) -> None:
        body = encode_member(Member(message.token, message.user, message.kept, former))
        name, alone = message.client_id, message.alone
        record = SharedRecord(RecordKind.CLIENT_ID, name, home, number, False, confirmed=alone, body=body)
        self._requests.copying.put(partition, record, soon=message.kept or bool(former))

    def _answer(self, partition: int, home: Peer, answer: Enrolled) -> None:
        if home.id == self._state.me.id:
            # The enrolment ends with this peer, so no copy of it is needed before the client is served.
            self._streams.send(home, answer)
            return
        otherwise = partial(self._requests.refer, home, (partition,))
        self._requests.copying.wait(partition, partial(self._streams.send, home, answer), otherwise)

    def changed(self, partition: int, before: SharedRecord | None, after: SharedRecord | None) -> None:
        """A record has changed here, by a claim or because copies were merged: notify the home that has lost its
        client. Shadows leave that to their coordinator."""
        if after is not None:
            # The next number here must be above it.
            self._state.observe(after.number[0])
        if before is None or after is None or before.gone or after.gone or before.home is None or after.home is None:
            return
        if before.home.id != after.home.id and self._requests.decides(partition):
            self._streams.send(before.home, Superseded(before.name, after.number))

    def took_over(self) -> None:
        """This peer coordinates further partitions."""
        self._took_over_at = self._state.clock.now

    def forget_silent(self, partition: int) -> None:
        """End the records of homes that were not heard for too long. Call it now and then for each partition."""
        store, now = self._requests.copying.store, self._state.clock.now
        if not store.acting[partition] or now < self._took_over_at + SILENT_S:
            return
        for record in list(store.records(partition).values()):
            if record.kind is RecordKind.CLIENT_ID and not record.gone and self._is_silent(record, now):
                self._requests.copying.put(partition, record.ended(), soon=False)

    def _is_silent(self, record: SharedRecord, now: float) -> bool:
        assert record.home is not None, "client ids have homes"
        if record.home.id == self._state.me.id:
            return record.home.boot != self._state.me.boot
        limit_s = AWAY_S if decode_member(record.body).kept else SILENT_S
        return max(self._took_over_at, self._streams.heard_at(record.home)) + limit_s < now
