"""SUBSCRIBE and UNSUBSCRIBE: the result of each filter, and the answer when all filters are in force."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.encode import encode
from ringmq.mqtt_front.codec.fields import ends_early
from ringmq.mqtt_front.codec.packets import (
    Kind,
    RetainHandling,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.properties import section_at
from ringmq.mqtt_front.codec.reasons import SUBACK_3_FAILURE, Reason
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import parse_shared
from ringmq.mqtt_front.sessions.session import Session

PACKET_ID_BYTES: Final = 2
GRANTED: Final = (Reason.SUCCESS, Reason.GRANTED_QOS_1, Reason.GRANTED_QOS_2)
"""By QoS."""
SHORTEST_FILTER_BYTES: Final = 2
"""Its length alone; an empty one is refused when it is read."""


class Asker(Protocol):
    """The connection that sent the packet."""

    writer: Writer

    def expect_retained(self) -> int: ...
    def bring_retained(self, filters: list[str], mark: int) -> None: ...


class Subscribing:
    """One SUBSCRIBE. SUBACK goes out when every first subscription to a filter is known wherever it must be.

    Messages published from then on arrive. Retained messages follow the SUBACK, without messages already received live.
    """

    __slots__ = ("_asker", "_beyond", "_broker", "_mark", "_new", "_packet", "_pending", "_reasons", "_session")

    def __init__(self, broker: Broker, session: Session, asker: Asker, packet: Subscribe, beyond: int = 0) -> None:
        """`beyond`: the number of filters that exceed the limit; they are not in `packet`, and refused."""
        self._broker = broker
        self._session = session
        self._asker = asker
        self._packet = packet
        self._beyond = beyond
        self._reasons: list[Reason] = []
        self._new: list[bool] = []
        """Of each filter, whether the session did not have it before."""
        self._mark = 0
        self._pending = 1

    def start(self) -> None:
        identifiers = self._packet.properties.subscription_ids
        # This precedes the first filter in force: a retained message that is received live after that is not repeated.
        self._mark = self._asker.expect_retained()
        announced: dict[str, list[int]] = {}
        for index, subscription in enumerate(self._packet.subscriptions):
            reason, first = self._put_into_force(subscription, identifiers[0] if identifiers else None)
            self._reasons.append(reason)
            if reason > Reason.GRANTED_QOS_2:
                continue
            topic_filter = subscription.filter
            waiting = self._broker.being_announced(topic_filter)
            if first or topic_filter in announced:
                announced.setdefault(topic_filter, []).append(index)
            elif waiting is not None:
                # Other peers do not know the filter of an earlier subscription yet: this client would miss messages.
                self._pending += 1
                waiting.append(partial(self._answered, (index,)))
            elif self._broker.cluster.is_refused(topic_filter):
                # A restored session has it, for which the cluster had no room.
                announced[topic_filter] = [index]
        self._pending += len(announced)
        self._broker.admission.unanswered += len(announced)
        for topic_filter, indices in announced.items():
            self._broker.announce(topic_filter, partial(self._announced, indices))
        self._one_done()

    def _put_into_force(self, subscription: Subscription, identifier: int | None) -> tuple[Reason, bool]:
        session = self._session
        if not self._broker.counters.authorized(session.rights.may_subscribe(subscription.filter)):
            return self._refused(Reason.NOT_AUTHORIZED)
        try:
            # In MQTT 3 a filter such as `$share//a` is well-formed: it is refused like one that is not wanted.
            if parse_shared(subscription.filter) and not self._broker.cluster.serves(subscription.filter):
                return self._refused(Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
            new, first = self._broker.subscribe(session, subscription, identifier)
        except PacketError as error:
            return self._refused(error.reason)
        self._new.append(new)
        return GRANTED[subscription.qos], first

    def _refused(self, reason: Reason) -> tuple[Reason, bool]:
        self._new.append(False)
        return reason, False

    def _announced(self, indices: Sequence[int], reason: Reason) -> None:
        self._broker.admission.answered()
        self._answered(indices, reason)

    def _answered(self, indices: Sequence[int], reason: Reason) -> None:
        """The cluster has put a filter into force, or refused it."""
        if reason > Reason.GRANTED_QOS_2:
            # Also if the client has gone: its session must not keep a subscription without messages of other peers.
            self._broker.unsubscribe(self._session, self._packet.subscriptions[indices[0]].filter)
            for index in indices:
                self._reasons[index] = reason
        self._one_done()

    def _one_done(self) -> None:
        self._pending -= 1
        if self._pending or self._asker.writer.closing:
            return
        writer = self._asker.writer
        version, reasons = writer.version, (*self._reasons, *[Reason.QUOTA_EXCEEDED] * self._beyond)
        if version is not Version.V5:
            # 3.1.1 reserves all return codes but 0, 1, 2 and 0x80 [MQTT-3.9.3-2].
            reasons = tuple(reason if reason <= 2 else Reason(SUBACK_3_FAILURE) for reason in reasons)
        writer.send(encode(version, Suback(self._packet.packet_id, reasons)))
        filters = [
            subscription.filter
            for subscription, new, reason in zip(self._packet.subscriptions, self._new, self._reasons, strict=True)
            if reason <= Reason.GRANTED_QOS_2 and _wants_retained(subscription, new)
        ]
        self._asker.bring_retained(filters, self._mark)


def _wants_retained(subscription: Subscription, new: bool) -> bool:
    """Shared subscriptions never do (5.0 §4.8.2)."""
    handling = subscription.retain_handling
    if handling is RetainHandling.NEVER or (handling is RetainHandling.IF_NEW and not new):
        return False
    return parse_shared(subscription.filter) is None


def first_filters(version: Version, kind: int, body: memoryview, most: int) -> tuple[memoryview, int]:
    """The body of a SUBSCRIBE or UNSUBSCRIBE with `most` of its filters, and how many there are beyond.

    Those are counted without a look at what they are. Raises PacketError if the last does not end where it should.
    """
    options = int(kind == Kind.SUBSCRIBE)
    if len(body) <= most * (SHORTEST_FILTER_BYTES + options):
        return body, 0
    data = bytes(body)
    at = section_at(data, PACKET_ID_BYTES)[1] if version is Version.V5 else PACKET_ID_BYTES
    end, count, size = len(data), 0, len(data) - 1
    while at < size:
        if count == most:
            end = at
        count += 1
        at += 2 + (data[at] << 8 | data[at + 1]) + options
    if at != len(data):
        raise ends_early()
    return body[:end], max(0, count - most)


def unsubscribe(broker: Broker, session: Session, packet: Unsubscribe) -> Unsuback:
    """Take each filter out of force; the answer says which were there."""
    reasons = []
    for topic_filter in packet.filters:
        existed = broker.unsubscribe(session, topic_filter)
        reasons.append(Reason.SUCCESS if existed else Reason.NO_SUBSCRIPTION_EXISTED)
    return Unsuback(packet.packet_id, tuple(reasons))
