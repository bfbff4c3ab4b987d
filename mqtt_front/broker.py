"""The front's core: its sessions, and the way of a message from its publisher to its receivers.

Knows clients by their sessions and writers, and the rest of the world by `Cluster`; no socket and no ring. The shell
sets the clock before each call. Writers put bytes into their outboxes and themselves on `dirty`.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.access.acl import ALL_RIGHTS, Rights
from ringmq.mqtt_front.cluster import UNDELIVERED, Cluster, Done, Enrolment, Settled, Standalone, Standing
from ringmq.mqtt_front.codec.packets import Subscription, Will
from ringmq.mqtt_front.codec.properties import encode_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.admission import Admission
from ringmq.mqtt_front.connection.budget import Work
from ringmq.mqtt_front.connection.delivery_plans import Plans, TopicNames
from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.iteration import Clock, StillClock
from ringmq.mqtt_front.matching.receivers import Receiver, SharedGroup
from ringmq.mqtt_front.matching.router import Router, RouterLimits
from ringmq.mqtt_front.matching.topics import is_of_the_server, parse_shared
from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.sessions.journal import NO_JOURNAL, Journal
from ringmq.mqtt_front.sessions.lasting_filters import LastingFilters
from ringmq.mqtt_front.sessions.moves import Moves
from ringmq.mqtt_front.sessions.moving_session import MovingSession
from ringmq.mqtt_front.sessions.pending_wills import PendingWills
from ringmq.mqtt_front.sessions.retained import Retained
from ringmq.mqtt_front.sessions.rivals import Rivals
from ringmq.mqtt_front.sessions.session import Session, SessionWriter

if TYPE_CHECKING:
    from ringmq.mqtt_front.connection.writer import Encoded

MOST_STALE: Final = 1000
"""Stale entries that the heap of due times may hold, beside two for each session."""
MOST_WITHDRAWN: Final = 500
"""Filters that the cluster is told of as gone in one iteration, some 5 ms. When a machine with a thousand clients goes
down, their sessions end together, and everybody else would wait for all of their filters."""


class Broker:
    """One per front. The connections call it; it calls the sessions, the router and the cluster."""

    def __init__(
        self,
        config: FrontConfig,
        cluster: Cluster | None = None,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config
        self.cluster: Cluster = cluster or Standalone()
        self.journal: Journal = journal or NO_JOURNAL
        self.clock: Clock = clock or StillClock()
        limits = RouterLimits(subscriptions_per_session=config.max_subscriptions)
        self.router: Router[Session] = Router(limits, is_of_the_log)
        self.retained = Retained(config.max_retained, config.max_retained_bytes)
        self.sessions: dict[str, Session] = {}
        self.counters = FrontCounters()
        self.dirty: list[SessionWriter] = []
        """Writers with bytes in their outboxes; the shell empties the list at the end of an iteration."""
        self.iteration = 0
        """The number of the event loop's iteration; the shell counts it."""
        self.work = Work()
        self.admission = Admission(self.work)
        self.encoded: Encoded | None = None
        """Encodings of the message that is being delivered."""
        self.alone = cluster is None
        """Whether there is no cluster that hears of publications."""
        self._plans = Plans(self.router, self.cluster.serves_groups)
        self.topic_names = TopicNames()
        """Topic names by their bytes in the packet. Raises PacketError."""
        self.plan = self._plans.of
        """The plan of the fast path for a topic. Raises PacketError."""
        self._due: list[tuple[float, int, str]] = []
        self._entries = 0
        self._announced: dict[str, list[Done]] = {}
        self.withdrawing: dict[str, None] = {}
        """Filters that are gone, and that the cluster is told of in later iterations: the shell calls `withdraw`."""
        self._withdrawals_left = MOST_WITHDRAWN
        self._lasting = LastingFilters()
        self.wills = PendingWills()
        """Wills on their way."""
        self.moves = Moves(self)
        self.rivals = Rivals()
        self.enrolling: dict[str, SessionWriter] = {}
        """Connections that wait until their client ids are this front's alone."""
        self._slowed: list[tuple[float, int]] = []
        """When the CONNECTs of clients that throw each other out may go on."""
        self._asks: dict[int, Callable[[], None]] = {}
        """How they go on."""

    def take_dirty(self) -> list[SessionWriter]:
        """The list `dirty`, which is empty from now on: the caller flushes these writers."""
        dirty, self.dirty = self.dirty, []
        return dirty

    def end_iteration(self) -> None:
        """The outboxes are about to be sent. Connections take a new share of the budget after this."""
        # The message would be kept as long as nothing else is delivered: up to `max_packet_bytes`, and its encodings.
        self.encoded = None
        self.iteration += 1
        self._withdrawals_left = MOST_WITHDRAWN

    def close_journal(self) -> None:
        """Record nothing any more; changes that are not committed are lost."""
        self.journal.close()
        self.journal = NO_JOURNAL

    def refresh(self) -> None:
        """Forget the receivers of all topics, since many are not in use any more. The next use finds them again."""
        self.router.forget_answers()
        self.topic_names.clear()

    def has_room_for(self, client_id: str) -> bool:
        return client_id in self.sessions or len(self.sessions) < self.config.max_sessions

    def begin(
        self,
        client_id: str,
        clean: bool,
        rights: Rights,
        user: str | None,
        expiry_s: int,
        will: Will | None,
    ) -> tuple[Session, bool]:
        """The session of a client that connects, and whether it was there before. A session is one user's alone."""
        # The earlier connection with a client id must be closed ([MQTT-3.1.4-3]; 3.1.1 [MQTT-3.1.4-2]).
        self.close_earlier(client_id)
        # The end of the old connection may have ended the session, too.
        session = self.sessions.get(client_id)
        if session is not None and (clean or session.user != user):
            # Messages queued for one user must not reach another who connects with the same client id.
            self.end(session)
            session = None
        present = session is not None
        if session is None:
            session = Session(client_id, self.config, rights, self.counters, user)
            self.sessions[client_id] = session
        elif session.rights is not rights:
            self.restrict(session, rights)
        lasted = session.lasts
        session.begin(expiry_s, will, self.journal)
        if present and lasted != session.lasts:
            for topic_filter, receiver in self.router.filters(session).items():
                if self._lasting.change(topic_filter, lasted and receiver.qos > 0, session.lasts and receiver.qos > 0):
                    self.announce(topic_filter, _nobody_waits)
        return session, present

    def enrol(self, enrolment: Enrolment, writer: SessionWriter, settled: Settled) -> None:
        """A client is admitted, with an id of its own: `settled` is called when nobody else has the id. Of several that
        wait here, the last one gets it."""
        client_id, now = enrolment.client_id, self.clock.now
        earlier = self.enrolling.get(client_id)
        self.enrolling[client_id] = writer
        if earlier is not None:
            self._take_over(client_id, earlier)
        ask = partial(self._ask, enrolment, writer, settled)
        wait_s = self.rivals.wait_s(client_id, now)
        if wait_s:
            self.counters.slowed += 1
            self._entries += 1
            self._asks[self._entries] = ask
            heappush(self._slowed, (now + wait_s, self._entries))
        else:
            ask()

    def _ask(self, enrolment: Enrolment, writer: SessionWriter, settled: Settled) -> None:
        # It may have gone, or been replaced, while it had to wait.
        if self.enrolling.get(enrolment.client_id) is writer:
            self.cluster.enrol(enrolment, settled)

    def end_enrolling(self, client_id: str, writer: SessionWriter) -> None:
        """A connection has a session now, or has ended."""
        if self.enrolling.get(client_id) is writer:
            del self.enrolling[client_id]
            self._discharge(client_id)

    def _discharge(self, client_id: str) -> None:
        """Give up a client id, unless a session here has it, or a connection waits for it."""
        if client_id not in self.sessions and client_id not in self.enrolling:
            self.cluster.discharge(client_id)

    def close_earlier(self, client_id: str) -> None:
        """Close the connection of a client id, if there is one, as another client has connected with it."""
        session = self.sessions.get(client_id)
        if session is not None and session.writer is not None:
            self._take_over(client_id, session.writer)

    def _take_over(self, client_id: str, writer: SessionWriter) -> None:
        self.counters.taken_over += 1
        self.rivals.taken_over(client_id, self.clock.now)
        writer.fail(Reason.SESSION_TAKEN_OVER, "another client has connected with this id")

    def oust(self, client_id: str, standing: Standing) -> None:
        """The client id is another front's or another user's from now on, as the cluster says."""
        session = self.sessions.get(client_id)
        # A connection that waits is later than all of this, or the cluster refuses it in its answer.
        if session is None or session.writer is None:
            return
        if standing is Standing.FOREIGN:
            session.writer.fail(Reason.NOT_AUTHORIZED, "the client id belongs to another user")
        else:
            self._take_over(client_id, session.writer)

    def give_up(self, client_id: str, user: str | None, clean: bool) -> MovingSession | None:
        """A client connects at another front, with this user name. `clean`: it wants no session from before. Returns
        its kept session otherwise, which is leaving from now on."""
        self.oust(client_id, Standing.SUPERSEDED)
        session = self.sessions.get(client_id)
        return None if session is None else self.moves.give_up(session, user, clean)

    def forget(self, session: Session) -> None:
        """A session is not that of its client any more, and still takes messages."""
        del self.sessions[session.client_id]

    def adopt(self, session: Session) -> None:
        """Add a session of an earlier process, without its client. If the client was there then, call `gone` next."""
        self.sessions[session.client_id] = session
        for due in (session.will_at, session.expires_at):
            if due is not None:
                self._wake_at(due, session)

    def restrict(self, session: Session, rights: Rights) -> None:
        """Change the rights of a session. Subscriptions that they do not allow any more are dropped."""
        self._plans.forget()
        for topic_filter in session.restrict(rights, self.router.filters(session)):
            self.unsubscribe(session, topic_filter)

    def end(self, session: Session) -> None:
        """End a session; a will that is still delayed is published now (5.0 §3.1.3.2.2)."""
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self._discharge(session.client_id)
        kept = self.router.filters(session).items() if session.lasts else ()
        changed = [name for name, receiver in kept if self._lasting.change(name, receiver.qos > 0, False)]
        removed = dict.fromkeys(self.router.forget(session))
        for topic_filter in removed:
            self._withdraw(topic_filter)
        for topic_filter in changed:
            if topic_filter not in removed:
                self.announce(topic_filter, _nobody_waits)
        session.end()
        self.moves.ended(session)
        if session.will_at is not None:
            self._publish_will(session)

    def gone(self, session: Session, will: bool) -> None:
        """The client of a session is not connected any more; `will` says whether its will must be published."""
        session.detach(will, self.clock.now)
        if session.will_at is not None:
            if session.will_at <= self.clock.now:
                self._publish_will(session)
            else:
                self._wake_at(session.will_at, session)
        if session.expiry_s == 0:
            self.end(session)
            return
        if session.expires_at is not None:
            self._wake_at(session.expires_at, session)
        session.journal.session(session)

    def _wake_at(self, due: float, session: Session) -> None:
        self._entries += 1
        heappush(self._due, (due, self._entries, session.client_id))
        if len(self._due) > 2 * len(self.sessions) + MOST_STALE:
            self._forget_stale()

    def _forget_stale(self) -> None:
        """Rebuild the heap: clients that come and go leave stale entries behind."""
        waiting = [session for session in self.sessions.values() if session.writer is None]
        dues = [(due, session) for session in waiting for due in (session.will_at, session.expires_at)]
        self._due = [(due, number, session.client_id) for number, (due, session) in enumerate(dues) if due is not None]
        self._entries = len(dues)
        heapify(self._due)

    def deadline(self) -> float:
        slowed_until = self._slowed[0][0] if self._slowed else inf
        return min(self._due[0][0] if self._due else inf, self.retained.deadline(), self.wills.again_at, slowed_until)

    def tick(self) -> None:
        """Publish wills whose delay has passed; drop sessions and retained messages that have expired."""
        for topic in self.retained.expire(self.clock.now):
            self.journal.unretained(topic)
        for will in self.wills.failed(self.clock.now):
            self.publish_again(will)
        while self._slowed and self._slowed[0][0] <= self.clock.now:
            self._asks.pop(heappop(self._slowed)[1])()
        while self._due and self._due[0][0] <= self.clock.now:
            # Changed times have entries of their own. The session's present state shows whether an entry is stale.
            session = self.sessions.get(heappop(self._due)[2])
            if session is None or session.writer is not None:
                continue
            if session.will_at is not None and session.will_at <= self.clock.now:
                self._publish_will(session)
            if session.expires_at is not None and session.expires_at <= self.clock.now:
                self.counters.expired_sessions += 1
                self.end(session)

    def _publish_will(self, session: Session) -> None:
        will = session.take_will()
        if will is None:
            return
        # The rights may have changed since the CONNECT, at which they were checked first.
        if not self.counters.authorized(session.rights.may_write(will.topic)):
            return
        message = message_of_will(will, session.client_id, self.clock.now)
        if message.qos:
            onward, done = self.wills.begin(message, self.clock, self.journal)
            self.publish(message, done, onward)
        else:
            self.publish(message, None)

    def publish_again(self, will: WillMessage) -> None:
        """Publish a will again that others have not got, or a will of an earlier process, which cannot know who has it.
        Sessions here have it: it was committed with their deliveries.
        """
        if will.expired(self.clock.now):
            self.wills.drop(will, self.journal)
        else:
            self.cluster.published(will, 0, self.wills.again(will, self.clock, self.journal))

    def subscribe(self, session: Session, subscription: Subscription, identifier: int | None) -> tuple[bool, bool]:
        """Add a subscription; returns whether it is new to the session, and whether the caller must announce its
        filter, as it is new here or has become lasting.

        Raises PacketError.
        """
        before = self._counts_as_lasting(session, subscription.filter)
        added = self.router.subscribe(
            session,
            subscription.filter,
            subscription.qos,
            subscription.no_local,
            subscription.retain_as_published,
            identifier,
        )
        session.journal.subscribed(session, subscription, identifier)
        after = session.lasts and subscription.qos > 0
        changed = self._lasting.change(subscription.filter, before, after)
        if changed and not after and not added.first:
            self.announce(subscription.filter, _nobody_waits)
        return not added.replaced, added.first or (changed and after)

    def _counts_as_lasting(self, session: Session, topic_filter: str) -> bool:
        receiver = self.router.filters(session).get(topic_filter) if session.lasts else None
        return receiver is not None and receiver.qos > 0

    def announce(self, topic_filter: str, done: Done) -> None:
        """Announce a filter to the cluster: it is new here, was refused, is lasting from now on, or is so no more.

        `done` is called with SUCCESS when that is in force everywhere, or with a failure: then the caller must remove
        the subscription that waits.
        """
        if not _concerns_others(topic_filter):
            done(Reason.SUCCESS)
            return
        if topic_filter in self.withdrawing:
            del self.withdrawing[topic_filter]
            self.cluster.filter_removed(topic_filter)
        waiting = self._announced[topic_filter] = [done]

        def answered(reason: Reason) -> None:
            # The filter may have been withdrawn and announced again meanwhile, with other callbacks.
            if self._announced.get(topic_filter) is waiting:
                del self._announced[topic_filter]
            for callback in waiting:
                callback(reason)

        self.cluster.filter_added(topic_filter, answered, topic_filter in self._lasting)

    def being_announced(self, topic_filter: str) -> list[Done] | None:
        """Callbacks of a filter that is not in force everywhere yet; the caller adds its own. None: nobody waits."""
        return self._announced.get(topic_filter)

    def _withdraw(self, topic_filter: str) -> None:
        if not _concerns_others(topic_filter):
            return
        if self._withdrawals_left:
            self._withdrawals_left -= 1
            self.cluster.filter_removed(topic_filter)
        else:
            self.withdrawing[topic_filter] = None

    def withdraw(self) -> None:
        """Tell the cluster of some more filters that are gone."""
        for topic_filter in list(islice(self.withdrawing, MOST_WITHDRAWN)):
            del self.withdrawing[topic_filter]
            self.cluster.filter_removed(topic_filter)

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        counted = self._counts_as_lasting(session, topic_filter)
        removed = self.router.unsubscribe(session, topic_filter)
        if removed.existed:
            session.journal.unsubscribed(session, topic_filter)
        changed = self._lasting.change(topic_filter, counted, False)
        if removed.last:
            self._withdraw(topic_filter)
        elif changed:
            self.announce(topic_filter, _nobody_waits)
        return removed.existed

    def publish(self, message: Message, done: Done | None, onward: Message | None = None) -> None:
        """Deliver a message of a client or of the server itself, and pass it to the cluster, which may get the same
        message in another form, `onward`."""
        if message.retain and not self.cluster.keeps_retained and not self._retain(message) and done is not None:
            done = partial(_report_not_retained, done)
        give = self.distribute_unshared if self.cluster.serves_groups else self.distribute
        self.cluster.published(onward or message, give(message), done)

    def _retain(self, message: Message) -> bool:
        if self.retained.set(message):
            self.journal.retained(message)
            return True
        # Over the bound of bytes `set` has removed the earlier message, which must not return from the disk either.
        self.counters.not_retained += 1
        self.journal.unretained(message.topic)
        return False

    def distribute(self, message: Message) -> int:
        """Deliver a message to its receivers here; returns their number."""
        count = self.distribute_unshared(message)
        for group in self.router.receivers(message.topic).groups:
            count += self._give_one_of(group, message)
        return count

    def distribute_unshared(self, message: Message) -> int:
        """`distribute` without shared subscriptions."""
        count = 0
        for receiver in self.router.receivers(message.topic).each:
            count += self._give(receiver, message, message.retain)
        return count

    def distribute_shared(self, message: Message, shared_filters: Container[str]) -> int:
        """Deliver a message to one member of each of these groups, named by filters such as `$share/name/a/b`."""
        count = 0
        for group in self.router.receivers(message.topic).groups:
            if f"$share/{group.name}/{group.filter}" in shared_filters:
                count += self._give_one_of(group, message)
        return count

    def _give(self, receiver: Receiver[Session], message: Message, noting: bool) -> int:
        """`noting`: note the message, so that a replay of retained messages leaves it out."""
        session = receiver.session
        if (receiver.no_local or receiver.own) and message.origin == session.client_id:  # [MQTT-3.8.3-3]
            if receiver.own is None:
                return 0
            receiver = receiver.own
        # A subscription is allowed although `deny` excludes a part of its filter. That part is left out here.
        if session.rights is not ALL_RIGHTS and not session.rights.may_read(message.topic):
            return 0
        retain = message.retain and receiver.retain_as_published
        given = self.deliver(session, message, min(message.qos, receiver.qos), retain, receiver.subscription_ids)
        if noting and given and session.live is not None:
            session.live.note(message)
        return 1

    def deliver(self, session: Session, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> bool:
        """Deliver a message to a session, after expired messages have made room. False: it had to be dropped."""
        if session.queue.expiry <= self.clock.now:
            session.drop_expired(self.clock.now)
        return session.deliver(message, qos, retain, ids)

    def _give_one_of(self, group: SharedGroup[Session], message: Message) -> int:
        """Prefer a member that takes the message at once, then a connected member with room in its queue, then any."""
        room = partial(_has_room, message)
        # A message with QoS 0 is not queued, so only a client that reads can get it.
        choices = (_ready, partial(_here_with_room, message), room, _anybody) if message.qos else (_reads, _anybody)
        for available in choices:
            member = group.next_member(available)
            if member is not None:
                # Not noted: this is the copy of the group, and a replay for a filter of the session sends another.
                return self._give(member, message, False)
        return 0


def _nobody_waits(reason: Reason) -> None:
    """A filter that the cluster refuses stays in its session: the cluster tries again until it has room."""


def _concerns_others(topic_filter: str) -> bool:
    """Whether other peers may have messages for a filter. The server's own topics stay within its own clients."""
    shared = parse_shared(topic_filter)
    return not is_of_the_server(shared[1] if shared else topic_filter)


def _report_not_retained(done: Done, reason: Reason) -> None:
    """The message was delivered, but a success would promise that it is retained [MQTT-3.3.1-5]."""
    done(reason if reason is UNDELIVERED else Reason.QUOTA_EXCEEDED)


def _ready(session: Session) -> bool:
    writer = session.writer
    return writer is not None and not session.queue and len(session.inflight) < writer.quota


def _has_room(message: Message, session: Session) -> bool:
    return session.has_room_for(message)


def _reads(session: Session) -> bool:
    return session.writer is not None and session.writer.reads


def _here_with_room(message: Message, session: Session) -> bool:
    return session.writer is not None and session.has_room_for(message)


def _anybody(session: Session) -> bool:
    return True


def message_of_will(will: Will, client_id: str, now: float) -> Message:
    """The message of a will, published for a client that has gone. The delay is not passed on (5.0 §3.1.3.2.2)."""
    expiry_s = will.properties.message_expiry_s
    forwarded = encode_properties(replace(will.properties, will_delay_s=None, message_expiry_s=None))
    expires_at = None if expiry_s is None else now + expiry_s
    return Message(will.topic, will.payload, will.qos, will.retain, forwarded, expires_at, client_id)
