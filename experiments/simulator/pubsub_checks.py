"""What must never happen to messages and subscriptions, whatever happens to the peers.

At every step: nobody gets a message twice, or one of a publisher and topic before an earlier one; QoS 1 and 2 are done
only when every subscriber of before the publication holds it; of a shared filter one member gets each message, and
another only if the first has died. When all is quiet: each subscriber that is still there has everything that was
published after its SUBACK, and of each topic what was retained; of each shared filter somebody has got what was
published; each place has one coordinator, its shadows hold the same, and that is what the clients want.

What a split, or the death of a whole set of coordinator and shadows, takes away is nobody's to give: a scenario says by
`blur` for which time it does not demand that messages reach everybody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import Subscription
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.engine import CoordinatedEngine
from ringmq.peer.engines.coordinated.messages import Kind
from ringmq.peer.messaging.partitions import key_of_place, place_of
from ringmq.peer.replication.replicas import ReplicaTable

if TYPE_CHECKING:
    from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld

SHOWN: Final = 5


class Sent:
    """A message that some client published."""

    __slots__ = ("at", "body", "done_at", "number", "publisher", "qos", "reason", "retain", "seq", "topic")

    def __init__(self, number: int, publisher: Peer, topic: str, qos: int, retain: bool, at: float) -> None:
        self.number = number
        self.publisher = publisher
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.at = at
        self.seq = 0
        self.body = str(number).encode()
        self.done_at: float | None = None
        self.reason: Reason | None = None

    def __str__(self) -> str:
        kind = f"QoS {self.qos}{', retained' if self.retain else ''}"
        return f"message {self.number} ({kind}) of {self.publisher} to {self.topic} at {self.at:.3f}"


class PubSubChecks:
    """The truth about messages and subscriptions, and comparisons with it."""

    def __init__(self, world: PubSubWorld) -> None:
        self._world = world
        self.sent: list[Sent] = []
        self.subscriptions: list[Subscription] = []
        self.delivered = 0
        self.latest_ack_s = 0.0
        self.lenient = False
        """Whether what is lost is counted and not raised."""
        self.losses: Counter[str] = Counter()
        """By kind, each pair of a message and a subscription."""
        self._blurs: list[tuple[float, float]] = []
        self._last: dict[tuple[int, int, str, str, bool], int] = {}
        self._group_got: defaultdict[tuple[str, int], list[Peer]] = defaultdict(list)
        self._crashed: dict[Peer, float] = {}

    def blur(self, start: float, end: float) -> None:
        """Between these times it is not demanded that messages reach everybody."""
        self._blurs.append((start, end))

    def _blurred(self, at: float) -> bool:
        return any(start <= at <= end for start, end in self._blurs)

    def _blurred_on_its_way(self, sent: Sent) -> bool:
        """Also of what was published before: it may have waited for a list, and got one of half the ring."""
        end = self._world.now if sent.done_at is None else sent.done_at
        return any(sent.at <= until and start <= end for start, until in self._blurs)

    def _lost(self, kind: str, text: str, count: int = 1) -> None:
        if not self.lenient:
            raise InvariantBrokenError(f"{kind}: {text}")
        self.losses[kind] += count

    def crashed(self, node: PubSubNode) -> None:
        self._crashed[node.peer] = self._world.now

    def publishing(self, publisher: Peer, topic: str, qos: int, retain: bool, now: float) -> Sent:
        sent = Sent(len(self.sent), publisher, topic, qos, retain, now)
        self.sent.append(sent)
        return sent

    def acknowledged(self, subscription: Subscription) -> None:
        assert subscription.acked_at is not None
        if not self._blurred(subscription.acked_at):
            self.latest_ack_s = max(self.latest_ack_s, subscription.acked_at - subscription.since)
            self._held_by_all(subscription)

    def _held_by_all(self, subscription: Subscription) -> None:
        """The coordinator and its shadows, but for those that died since it was asked for, hold it."""
        assert subscription.acked_at is not None
        world, place = self._world, place_of(subscription.filter)
        key = (Kind.ENTRY, subscription.filter, subscription.peer.id)
        count = 0
        for node in world.all_nodes():
            replica = holdings_of(node).get(place) if node.alive else None
            record = replica.book.get(key) if replica is not None else None
            count += record is not None and not record.gone
        died = sum(at >= subscription.since - world.timing.silence_s for at in self._crashed.values())
        wanted = min(world.config.shadows + 1, len(world.nodes)) - died
        if count < wanted:
            raise InvariantBrokenError(f"SUBACK for {named([subscription])}, held by {count} and not {wanted}")

    # At every step

    def got(self, subscription: Subscription, number: int, live: bool) -> None:
        """A client gets a message."""
        sent = self.sent[number]
        self.delivered += 1
        subscription.got[number] += 1
        if subscription.got[number] > 1:
            raise InvariantBrokenError(f"twice: {sent} to {subscription.peer}, {subscription.filter}")
        if subscription.shared:
            self._got_by_group(subscription, sent)
        if not matches(subscription.inner, sent.topic):
            raise InvariantBrokenError(f"without a subscription: {sent} to {subscription.peer}")
        if live and not subscription.shared:
            key = (id(subscription), sent.publisher.id, str(sent.publisher.boot), sent.topic, sent.qos > 0)
            if self._last.get(key, -1) > number:
                raise InvariantBrokenError(
                    f"order: {sent} to {subscription.peer}, {subscription.filter}, after number {self._last[key]}"
                )
            self._last[key] = number

    def _got_by_group(self, subscription: Subscription, sent: Sent) -> None:
        """A second one gets it only if the first has died, perhaps before it could say that it had it."""
        got = self._group_got[subscription.filter, sent.number]
        if any(peer not in self._crashed for peer in got) and not self._blurred(sent.at):
            raise InvariantBrokenError(f"twice in a group: {sent} to {subscription.filter}")
        got.append(subscription.peer)

    def done(self, sent: Sent, reason: Reason, now: float) -> None:
        """The publisher was told that all have it."""
        if sent.done_at is not None:
            raise InvariantBrokenError(f"done twice: {sent}")
        sent.done_at, sent.reason = now, reason
        if sent.qos and not self._blurred_on_its_way(sent):
            missing = [one for one in self._owed(sent) if not one.got[sent.number]]
            if missing:
                self._lost("done, but not held", f"{sent}, {reason.name}: {named(missing)}", len(missing))

    def _owed(self, sent: Sent) -> Iterable[Subscription]:
        """Who must have it, being there still."""
        nodes = self._world.nodes
        for one in self.subscriptions:
            if one.shared or one.removed_at is not None or one.acked_at is None or one.acked_at > sent.at:
                continue
            if self._blurred(one.acked_at):
                continue
            node = nodes.get(one.peer.id)
            if node is not None and node.alive and node.peer is one.peer and matches(one.inner, sent.topic):
                yield one

    # When all is quiet

    def quiet(self, lossless: bool) -> None:
        """Raises unless everything is as it should be in the end."""
        self._all_reached(lossless)
        self._all_retained(lossless)
        self.settled()

    def _all_reached(self, lossless: bool) -> None:
        groups: dict[str, list[Subscription]] = defaultdict(list)
        for one in self.subscriptions:
            if one.shared:
                groups[one.filter].append(one)
        for sent in self.sent:
            if self._blurred_on_its_way(sent) or (not sent.qos and not lossless):
                continue
            crashed_at = self._crashed.get(sent.publisher)
            if crashed_at is not None and (sent.done_at is None or not sent.qos):
                continue
            if sent.done_at is None:
                raise InvariantBrokenError(f"never done: {sent}")
            missing = [one for one in self._owed(sent) if not one.got[sent.number]]
            if missing:
                self._lost("not reached", f"{sent}, {sent.reason}: {named(missing)}", len(missing))
            for name, members in groups.items():
                if sent.qos and not self._group_got[name, sent.number] and self._owed_to_group(sent, members):
                    self._lost("not reached", f"{sent}, {sent.reason}: nobody of {name}")

    def _owed_to_group(self, sent: Sent, members: list[Subscription]) -> bool:
        """Whether one was there all the time, and none of the others left while it was on its way."""
        assert sent.done_at is not None
        if not matches(members[0].inner, sent.topic):
            return False
        left = [one.removed_at for one in members if one.removed_at is not None]
        if any(sent.at - self._world.config.lease_s <= at <= sent.done_at for at in left):
            return False
        live = {node.peer for node in self._world.peers()}
        stayed = [one for one in members if one.removed_at is None and one.peer in live and one.acked_at is not None]
        return any(one.acked_at < sent.at and not self._blurred(one.acked_at) for one in stayed if one.acked_at)

    def _all_retained(self, lossless: bool) -> None:
        """Of each topic, whoever subscribed got the last message retained before its SUBACK, or a later one."""
        by_topic: dict[str, list[Sent]] = defaultdict(list)
        for sent in self.sent:
            if sent.retain and sent.publisher not in self._crashed and not self._blurred(sent.at):
                by_topic[sent.topic].append(sent)
        for one in self.subscriptions:
            node = self._world.nodes.get(one.peer.id)
            if one.acked_at is None or self._blurred(one.acked_at) or one.removed_at is not None:
                continue
            if not self._gets_retained(one):
                continue
            if node is None or not node.alive or node.peer is not one.peer:
                continue
            for topic, messages in by_topic.items():
                before = [sent for sent in messages if _was_retained(sent, one, lossless)]
                if not before or not matches(one.inner, topic):
                    continue
                last = before[-1]
                if not any(one.got[sent.number] for sent in messages if sent.at >= last.at):
                    others = [sent for sent in self.sent if sent.retain and sent.topic == topic and sent.at >= last.at]
                    if not any(one.got[sent.number] for sent in others):
                        self._lost("retained and never seen", f"{last}: {named([one])} {one.since:.3f}")

    def _gets_retained(self, subscription: Subscription) -> bool:
        return not subscription.shared

    def settled(self) -> None:
        """Each place has its true coordinator, the shadows hold the same, and it is what the clients want."""
        world = self._world
        live = {node.peer.id: node for node in world.peers()}
        wanted: dict[str, set[tuple[str, Id]]] = defaultdict(set)
        for node in live.values():
            for name in node.clients.filters:
                wanted[place_of(name)].add((name, node.peer.id))
        held = {replica.place for node in live.values() for replica in holdings_of(node)}
        for place in sorted(held | set(wanted)):
            key = key_of_place(place)
            nearest = sorted(live, key=lambda point: nearness(key, point))[: world.config.shadows + 1]
            books = [holdings_of(live[point]).get(place) for point in nearest]
            first = books[0]
            entries = (
                set()
                if first is None
                else {
                    (record.name, record.peer.id)
                    for record in first.book
                    if record.kind is Kind.ENTRY and not record.gone and record.peer is not None
                }
            )
            if entries != wanted[place]:
                more, fewer = len(entries - wanted[place]), len(wanted[place] - entries)
                raise InvariantBrokenError(f"not what is wanted: {place} has {more} too many and lacks {fewer}")
            others = [
                node.peer for point, node in live.items() if point not in nearest and holdings_of(node).get(place)
            ]
            if others:
                raise InvariantBrokenError(f"held by others: {place} by {others[0]}")
            if first is None:
                continue
            if not first.coordinates:
                raise InvariantBrokenError(f"no coordinator: {place} at {live[nearest[0]].peer}")
            for point, book in zip(nearest[1:], books[1:], strict=True):
                present = frozenset() if book is None else book.present()
                if present != first.present():
                    peers = f"{live[point].peer} from {live[nearest[0]].peer}"
                    raise InvariantBrokenError(f"shadow differs: {place}: {peers}: {present ^ first.present()}")


def _was_retained(sent: Sent, subscription: Subscription, lossless: bool) -> bool:
    """Whether a subscriber must have had it by its SUBACK. With QoS 0 it may be lost on its way to one whose entry is
    known already: then it must have been in its place before."""
    assert subscription.acked_at is not None
    if sent.qos or lossless:
        return sent.at < subscription.acked_at
    return sent.done_at is not None and sent.done_at <= subscription.since


def holdings_of(node: PubSubNode) -> ReplicaTable:
    assert isinstance(node.core, CoordinatedEngine), "Scribe holds no lists"
    return node.core.replicas


def named(subscriptions: list[Subscription]) -> str:
    told = [f"{one.peer} {one.filter} acked {one.acked_at}" for one in subscriptions[:SHOWN]]
    return f"{', '.join(told)}{' …' if len(subscriptions) > SHOWN else ''}"
