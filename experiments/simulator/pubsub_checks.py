"""Invariants of messages and subscriptions, which hold whatever happens to the peers.

At every step: no client gets a message twice, or a message before an earlier one of the same publisher and topic. A
message with QoS 1 or 2 is done only when every client that had subscribed before it has it. One member of a shared
filter gets each message, and another member only if the first has died.

When it is quiet: each remaining subscriber has every message that was published after its SUBACK, and the retained
message of each topic. A member of each shared filter has got each message. Each place or partition with records has one
coordinator, its shadows hold the same records as it does, and the records are the subscriptions of the clients.

A split, or the death of a coordinator with all its shadows, loses messages that no peer can restore. With `exempt` a
scenario sets the time in which messages need not reach every subscriber.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import Subscription
from ringmq.experiments.simulator.filter_index import FilterIndex
from ringmq.experiments.simulator.kept_records import KeptRecords, partition_of, records_of
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.space import key_of_partition

if TYPE_CHECKING:
    from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld

STEADY_TIMES: Final = 20
"""A peer that was paused may not be relied upon for this many times `steady_s`, if it was so several times."""
MET_S: Final = 5.0
"""For so long at most the parts of a cut do not know of each other after it has healed (docs/deploy.md)."""
SHOWN: Final = 5
"""Subscriptions that are named in an error."""


class PublishedMessage:
    """A message of a client."""

    __slots__ = ("at", "body", "done_at", "number", "publisher", "qos", "reason", "retain", "topic")

    def __init__(self, number: int, publisher: Peer, topic: str, qos: int, retain: bool, at: float) -> None:
        self.number = number
        self.publisher = publisher
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.at = at
        self.body = str(number).encode()
        self.done_at: float | None = None
        self.reason: Reason | None = None

    def __str__(self) -> str:
        kind = f"QoS {self.qos}{', retained' if self.retain else ''}"
        return f"message {self.number} ({kind}) of {self.publisher} to {self.topic} at {self.at:.3f}"


class PubSubChecks:
    """Knows all messages and subscriptions, and compares deliveries and records with them."""

    def __init__(self, world: PubSubWorld) -> None:
        self._world = world
        self.sent: list[PublishedMessage] = []
        self.subscriptions: list[Subscription] = []
        self._unshared: FilterIndex[Subscription] = FilterIndex()
        self._groups: dict[str, list[Subscription]] = {}
        """The members of each shared filter, former ones too."""
        self._group_names: FilterIndex[str] = FilterIndex()
        self.checked: Counter[str] = Counter()
        """Comparisons by kind. A run in which a kind is rare has hardly tested it."""
        self.delivered = 0
        self.latest_ack_s = self.latest_done_s = 0.0
        self.lenient = False
        """Whether losses are counted instead of raised."""
        self.losses: Counter[str] = Counter()
        """Losses by kind. A loss is a pair of a message and a subscription."""
        self._exempt_times: list[tuple[float, float]] = []
        self._cuts: list[tuple[frozenset[Id], float, float]] = []
        self._exempt_peers: defaultdict[Peer, list[tuple[float, float]]] = defaultdict(list)
        self._last: dict[tuple[int, int, str, str, bool], int] = {}
        self._group_got: defaultdict[tuple[str, int], list[Peer]] = defaultdict(list)
        self._crashed: dict[Peer, float] = {}
        self._paused: dict[Peer, float] = {}

    def exempt(self, start: float, end: float) -> None:
        """Do not require that messages between these times reach every subscriber."""
        self._exempt_times.append((start, end))

    def exempt_peer(self, peer: Peer, start: float, end: float) -> None:
        """Do not require that messages in flight between these times reach the subscribers of this peer."""
        self._exempt_peers[peer].append((start, end))

    def cut_off(self, inside: frozenset[Id], start: float, end: float) -> None:
        """Some peers are cut off from all others between these times. Each part works alone: it does not know the
        subscriptions that the other has granted meanwhile."""
        self._cuts.append((inside, start, end))

    def _in_a_cut(self, at: float) -> bool:
        return any(start <= at <= end + MET_S for _, start, end in self._cuts)

    def _was_unknown(self, sent: PublishedMessage, subscription: Subscription) -> bool:
        """Whether the subscription was granted in another part, and the message sent before the parts had met."""
        acked_at = subscription.acked_at
        assert acked_at is not None, "only acknowledged subscriptions are owed anything"
        apart = (
            (start, end)
            for inside, start, end in self._cuts
            if (sent.publisher.id in inside) != (subscription.peer.id in inside)
        )
        return any(start <= acked_at and sent.at <= end + MET_S for start, end in apart)

    def _is_exempt(self, at: float) -> bool:
        return any(start <= at <= end for start, end in self._exempt_times)

    def _exempt_in_flight(self, sent: PublishedMessage) -> bool:
        """Whether a message was in flight in exempt time. An earlier one may have waited for a list, and got that of
        half the ring."""
        return self._in_flight(sent, self._exempt_times)

    def _in_flight(self, sent: PublishedMessage, times: list[tuple[float, float]]) -> bool:
        end = self._world.now if sent.done_at is None else sent.done_at
        return any(sent.at <= until and start <= end for start, until in times)

    def _lost(self, kind: str, text: str, count: int = 1) -> None:
        if not self.lenient:
            raise InvariantBrokenError(f"{kind}: {text}")
        self.losses[kind] += count

    def paused(self, peer: Peer) -> None:
        """A peer has been paused, or goes on."""
        self._paused[peer] = self._world.now

    def crashed(self, node: PubSubNode) -> None:
        self._crashed[node.peer] = self._world.now

    def publishing(self, publisher: Peer, topic: str, qos: int, retain: bool, now: float) -> PublishedMessage:
        sent = PublishedMessage(len(self.sent), publisher, topic, qos, retain, now)
        self.sent.append(sent)
        return sent

    def subscribing(self, subscription: Subscription) -> None:
        self.subscriptions.append(subscription)
        if not subscription.shared:
            self._unshared.add(subscription.inner, subscription)
            return
        if subscription.filter not in self._groups:
            self._groups[subscription.filter] = []
            self._group_names.add(subscription.inner, subscription.filter)
        self._groups[subscription.filter].append(subscription)

    def acknowledged(self, subscription: Subscription) -> None:
        assert subscription.acked_at is not None
        if not self._is_exempt(subscription.acked_at) and not self._in_a_cut(subscription.acked_at):
            self.latest_ack_s = max(self.latest_ack_s, subscription.acked_at - subscription.since)
            self._held_by_all(subscription)

    def _held_by_all(self, subscription: Subscription) -> None:
        """Check that coordinator and shadows hold the subscription, except peers that died since its request.

        A ring with fewer peers than copies has fewer shadows: only peers that served all the time can be among them.
        """
        assert subscription.acked_at is not None
        self.checked["SUBACKs"] += 1
        world = self._world
        home = next((node for node in world.all_nodes() if node.peer == subscription.peer), None)
        wide = None if home is None else records_of(home.core).served_by(subscription.filter)
        count = sum(
            records_of(node.core).has_entry(wide or subscription.filter, subscription.peer.id)
            for node in world.all_nodes()
            if node.alive
        )
        if wide is not None and count:
            # Its entry was granted before. The next shadows of a peer that has died since may not have it yet.
            return
        died = sum(at >= subscription.since - world.timing.silence_s for at in self._crashed.values())
        serving = sum(node.active and node.active_since <= subscription.since for node in world.peers())
        # In a small ring nobody else can take a copy while a shadow is silent.
        until = world.now - STEADY_TIMES * world.config.steady_s
        silent = sum(node.paused or self._paused.get(node.peer, until) > until for node in world.all_nodes())
        serving = min(serving, len(world.nodes) - silent)
        wanted = min(world.config.shadows + 1, serving) - died
        if count < wanted:
            raise InvariantBrokenError(f"SUBACK for {names_of([subscription])}, held by {count} instead of {wanted}")

    # Checks at every step

    def got(self, subscription: Subscription, number: int, live: bool) -> None:
        """Check the delivery of a message to a client."""
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

    def _got_by_group(self, subscription: Subscription, sent: PublishedMessage) -> None:
        """A second member may get the message only if the first has died, perhaps before it could acknowledge it."""
        got = self._group_got[subscription.filter, sent.number]
        if any(peer not in self._crashed for peer in got) and not self._is_exempt(sent.at):
            raise InvariantBrokenError(f"twice in a group: {sent} to {subscription.filter}")
        got.append(subscription.peer)

    def done(self, sent: PublishedMessage, reason: Reason, now: float) -> None:
        """Check a message when its publisher is notified that every subscriber has it."""
        if sent.done_at is not None:
            raise InvariantBrokenError(f"done twice: {sent}")
        sent.done_at, sent.reason = now, reason
        if sent.qos and not self._exempt_in_flight(sent):
            self.latest_done_s = max(self.latest_done_s, now - sent.at)
            missing = self._missing(sent)
            if missing:
                self._lost("done, but not held", f"{sent}, {reason.name}: {names_of(missing)}", len(missing))

    def _missing(self, sent: PublishedMessage) -> list[Subscription]:
        """Subscriptions that must have the message and do not."""
        owed = list(self._owed(sent))
        self.checked["owed deliveries"] += len(owed)
        return [subscription for subscription in owed if not subscription.got[sent.number]]

    def _owed(self, sent: PublishedMessage) -> Iterable[Subscription]:
        """Subscriptions that must have the message, and whose peers still live."""
        nodes = self._world.nodes
        for subscription in self._unshared.matching(sent.topic):
            acked_at, peer = subscription.acked_at, subscription.peer
            if subscription.removed_at is not None or acked_at is None or acked_at > sent.at:
                continue
            if self._is_exempt(acked_at) or self._in_flight(sent, self._exempt_peers.get(peer, [])):
                continue
            if self._cuts and self._was_unknown(sent, subscription):
                continue
            node = nodes.get(peer.id)
            if node is not None and node.alive and node.peer is peer:
                yield subscription

    # Checks when it is quiet

    def quiet(self, lossless: bool) -> None:
        """Raise InvariantBrokenError unless all messages arrived and all records are consistent."""
        self._all_reached(lossless)
        self._all_retained(lossless)
        self.settled()

    def _all_reached(self, lossless: bool) -> None:
        for sent in self.sent:
            if self._exempt_in_flight(sent) or (not sent.qos and not lossless):
                continue
            crashed_at = self._crashed.get(sent.publisher)
            if crashed_at is not None and (sent.done_at is None or not sent.qos):
                continue
            if sent.done_at is None:
                raise InvariantBrokenError(f"never done: {sent}")
            missing = self._missing(sent)
            if missing:
                self._lost("not reached", f"{sent}, {sent.reason}: {names_of(missing)}", len(missing))
            for name in self._group_names.matching(sent.topic) if sent.qos else ():
                owed = self._owed_to_group(sent, self._groups[name])
                self.checked["owed to groups"] += owed
                if owed and not self._group_got[name, sent.number]:
                    self._lost("not reached", f"{sent}, {sent.reason}: no member of {name}")

    def _owed_to_group(self, sent: PublishedMessage, members: list[Subscription]) -> bool:
        """Whether a member stayed subscribed all the time, and no other member left while the message was in flight."""
        assert sent.done_at is not None
        left = [member.removed_at for member in members if member.removed_at is not None]
        if any(sent.at - self._world.config.lease_s <= at <= sent.done_at for at in left):
            return False
        live = {node.peer for node in self._world.peers()}
        granted = [member for member in members if member.removed_at is None and member.acked_at is not None]
        stayed = [member for member in granted if member.peer in live and not self._was_unknown(sent, member)]
        acked_at = [member.acked_at for member in stayed if member.acked_at]
        return any(at < sent.at and not self._is_exempt(at) for at in acked_at)

    def _all_retained(self, lossless: bool) -> None:
        """Check that each subscription got, for each topic, the last message retained before its SUBACK or a later."""
        by_topic: dict[str, list[PublishedMessage]] = defaultdict(list)
        for sent in self.sent:
            if sent.retain and sent.publisher not in self._crashed and not self._is_exempt(sent.at):
                if self._in_flight(sent, [(start, end) for _, start, end in self._cuts]):
                    # It may reach its coordinator after a subscription was granted that its publisher did not know.
                    continue
                by_topic[sent.topic].append(sent)
        for topic, messages in by_topic.items():
            for subscription in self._unshared.matching(topic):
                if self._gets_retained(subscription) and self._stayed(subscription):
                    self._last_retained(subscription, messages, lossless)

    def _stayed(self, subscription: Subscription) -> bool:
        """Whether a subscription with a SUBACK is still there, and its SUBACK was not in exempt time."""
        acked_at, peer = subscription.acked_at, subscription.peer
        if acked_at is None or self._is_exempt(acked_at) or subscription.removed_at is not None:
            return False
        if self._in_a_cut(acked_at):
            # All copies of a message may be in another part. Nobody looks for them again when the parts have met.
            return False
        node = self._world.nodes.get(peer.id)
        return node is not None and node.alive and node.peer is peer

    def _last_retained(self, subscription: Subscription, messages: list[PublishedMessage], lossless: bool) -> None:
        """Check a subscription with the retained messages of one topic, which it matches."""
        before = [sent for sent in messages if _was_retained(sent, subscription, lossless)]
        if not before:
            return
        self.checked["retained"] += 1
        last, got = before[-1], subscription.got
        if any(got[sent.number] for sent in messages if sent.at >= last.at):
            return
        others = [sent for sent in self.sent if sent.retain and sent.topic == last.topic and sent.at >= last.at]
        if not any(got[sent.number] for sent in others):
            self._lost("retained and never seen", f"{last}: {names_of([subscription])} {subscription.since:.3f}")

    def _gets_retained(self, subscription: Subscription) -> bool:
        return not subscription.shared

    def settled(self) -> None:
        """Check that the true coordinator of each place or partition and its shadows hold the subscriptions of the
        clients."""
        world = self._world
        live = {node.peer.id: node for node in world.peers()}
        kept = {peer_id: records_of(node.core) for peer_id, node in live.items()}
        wanted: dict[int, set[tuple[str, Id]]] = defaultdict(set)
        for peer_id, node in live.items():
            for name in node.clients.filters:
                wanted[partition_of(name)].add((name, peer_id))
        holders: dict[int, set[Id]] = defaultdict(set)
        for peer_id, records in kept.items():
            for partition in records.partitions():
                holders[partition].add(peer_id)
        for partition in sorted({*holders, *wanted}, key=str):
            key = key_of_partition(partition)
            nearest = sorted(live, key=lambda peer_id: nearness(key, peer_id))[: world.config.shadows + 1]
            self.checked["partitions"] += 1
            self._settled_at(partition, nearest, kept, wanted[partition], holders[partition])

    def _settled_at(
        self,
        partition: int,
        nearest: list[Id],
        kept: dict[Id, KeptRecords],
        wanted: set[tuple[str, Id]],
        holders: set[Id],
    ) -> None:
        coordinator = nearest[0]
        first = kept[coordinator]
        entries = first.entries(partition)
        if entries != wanted:
            more, fewer = len(entries - wanted), len(wanted - entries)
            raise InvariantBrokenError(f"wrong entries: {partition} has {more} too many and lacks {fewer}")
        others = holders - set(nearest)
        if others:
            raise InvariantBrokenError(f"held by others: {partition} by {self._world.nodes[min(others)].peer}")
        if coordinator not in holders:
            return
        if not first.acts(partition):
            raise InvariantBrokenError(f"no coordinator: {partition} at {self._world.nodes[coordinator].peer}")
        acting = [peer_id for peer_id, records in kept.items() if records.acts(partition)]
        if acting != [coordinator]:
            raise InvariantBrokenError(f"{len(acting)} coordinators: {partition}")
        for peer_id in nearest[1:]:
            differing = kept[peer_id].present(partition) ^ first.present(partition)
            if differing:
                peers = f"{self._world.nodes[peer_id].peer} from {self._world.nodes[coordinator].peer}"
                raise InvariantBrokenError(f"shadow differs: {partition}: {peers}: {differing}")


def _was_retained(sent: PublishedMessage, subscription: Subscription, lossless: bool) -> bool:
    """Whether a subscriber must have the retained message by its SUBACK.

    A message with QoS 0 may be lost on its way to a subscriber whose entry is known. It counts only if it was done
    before the subscription began.
    """
    assert subscription.acked_at is not None
    if sent.qos or lossless:
        return sent.at < subscription.acked_at
    return sent.done_at is not None and sent.done_at <= subscription.since


def names_of(subscriptions: list[Subscription]) -> str:
    """The first subscriptions, for an error."""
    names = [f"{shown.peer} {shown.filter} acked {shown.acked_at}" for shown in subscriptions[:SHOWN]]
    return f"{', '.join(names)}{' …' if len(subscriptions) > SHOWN else ''}"
