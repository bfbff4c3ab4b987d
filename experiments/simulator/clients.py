"""The clients of a simulated peer, as its front would serve them: one client per filter, with its deliveries."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ringmq.experiments.simulator.filter_index import FilterIndex
from ringmq.mqtt_front.matching.topics import has_wildcard, matches
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.shared_filters import inner_of, is_shared

if TYPE_CHECKING:
    from ringmq.experiments.simulator.pubsub_checks import PublishedMessage, PubSubChecks


class Subscription:
    """A client's subscription, and the number of deliveries of each message, by message number."""

    __slots__ = ("acked_at", "filter", "got", "inner", "live", "peer", "removed_at", "shared", "since")

    def __init__(self, peer: Peer, topic_filter: str, now: float) -> None:
        self.peer = peer
        self.filter = topic_filter
        self.inner = inner_of(topic_filter)
        self.shared = is_shared(topic_filter)
        self.since = now
        self.acked_at: float | None = None
        self.removed_at: float | None = None
        self.got: Counter[int] = Counter()
        self.live: set[int] = set()
        """Retained messages that were delivered live before the SUBACK: they are not delivered again as retained."""


class SimulatedClients:
    """The clients of one peer, below its roles."""

    __slots__ = ("_checks", "_retained", "_unshared", "filters", "peer")

    def __init__(self, peer: Peer, checks: PubSubChecks) -> None:
        self.peer = peer
        self.filters: dict[str, Subscription] = {}
        self._checks = checks
        self._retained: dict[str, int] = {}
        self._unshared: FilterIndex[Subscription] = FilterIndex()

    def add_subscription(self, topic_filter: str, now: float) -> Subscription:
        subscription = self.filters[topic_filter] = Subscription(self.peer, topic_filter, now)
        self._checks.subscribing(subscription)
        if not subscription.shared:
            self._unshared.add(subscription.inner, subscription)
        return subscription

    def acknowledge(self, subscription: Subscription, now: float) -> None:
        """Send the SUBACK, and deliver the retained messages."""
        if self.filters.get(subscription.filter) is not subscription:
            return
        subscription.acked_at = now
        self._checks.acknowledged(subscription)
        if subscription.shared:
            return
        for number in self._retained_for(subscription.inner):
            if number not in subscription.live:
                self._checks.got(subscription, number, live=False)

    def _retained_for(self, inner: str) -> list[int]:
        """The numbers of the retained messages that a filter matches."""
        if has_wildcard(inner):
            return [number for topic, number in self._retained.items() if matches(inner, topic)]
        return [self._retained[inner]] if inner in self._retained else []

    def remove_subscription(self, topic_filter: str, now: float) -> None:
        subscription = self.filters.pop(topic_filter)
        subscription.removed_at = now
        if not subscription.shared:
            self._unshared.remove(subscription.inner, subscription)

    def publish_locally(self, message: PublishedMessage) -> bool:
        """Deliver a client's message at once to the other clients of the peer, except to shared filters."""
        return self._deliver_unshared(message.topic, message.number, message.retain) > 0

    def _deliver_unshared(self, topic: str, number: int, retain: bool) -> int:
        count = 0
        for subscription in self._unshared.matching(topic):
            count += 1
            if retain and subscription.acked_at is None:
                subscription.live.add(number)
            self._checks.got(subscription, number, live=True)
        return count

    # Interface for the roles

    def deliver(self, publication: Publication) -> int:
        number = int(publication.body)
        count = self._deliver_unshared(publication.topic, number, publication.retain) if publication.unshared else 0
        for name in publication.shared:
            subscription = self.filters.get(name)
            if subscription is not None:
                self._checks.got(subscription, number, live=True)
                count += 1
        return count

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        return None

    def retained(self, topic: str, body: bytes) -> None:
        if body:
            self._retained[topic] = int(body)
        else:
            self._retained.pop(topic, None)
