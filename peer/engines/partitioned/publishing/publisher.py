"""The publisher: finds the subscribers of a topic and sends to all of them (MQTT2EdgePeer thesis, algorithms 2.1, 2.2).

A topic whose partitions are held and trusted costs a match when it is new, and a look-up from then on. If a partition
is missing or cannot be trusted, a message waits here, and later messages to the same topic wait behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.mqtt_front.cluster import Done
from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.item_codec import unpacked
from ringmq.peer.engines.partitioned.messages import Elsewhere, Renewed, Retained, Routes
from ringmq.peer.engines.partitioned.names import NameHash, prefixes_of
from ringmq.peer.engines.partitioned.publishing.holdings import Coordinators, Holdings
from ringmq.peer.engines.partitioned.publishing.route_table import RouteChanges, RouteTable
from ringmq.peer.engines.partitioned.publishing.route_trust import RouteTrust
from ringmq.peer.engines.partitioned.publishing.stores import RetainStores
from ringmq.peer.engines.partitioned.publishing.topic_plan import DIRECT, CachedTopic, Plan, TopicPlans
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.fast_path import encode_fast
from ringmq.peer.messaging.pending import Countdown, PendingPublication
from ringmq.peer.messaging.publication import Leaf, Publication, addressed, encode, tail_of
from ringmq.peer.messaging.send_window import Item, SendWindows
from ringmq.peer.messaging.tree_relay import TreeRelay
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.space import NUMBERS

MOST_ROTATIONS: Final = 10_000
"""Shared filters whose rotation is remembered; beyond, all begin again, which does no harm."""


class Publisher:
    """One per engine."""

    __slots__ = (
        "_blocked", "_closed", "_leaving", "_names", "_plans", "_queues", "_rotations", "_serves", "_state", "_stores",
        "_swept_at", "_topics", "_tree_relay", "holdings", "routes_held", "send_windows", "trust",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        directory: Coordinators,
        tree_relay: TreeRelay,
        serves: Callable[[str], bool],
        settled: Callable[[Publication], None],
    ) -> None:
        """`serves` says whether a client here is in a group, whatever its routes say. `settled` is called for each
        retained message that has reached its coordinator, or was given up."""
        self._state = state
        self._tree_relay = tree_relay
        self._serves = serves
        self._names = NameHash(state.config.hash_seed)
        self.routes_held = RouteTable(self._names)
        self.trust = RouteTrust()
        self._plans = TopicPlans(self.routes_held.home_sets, lambda: state.me, state.config)
        self._topics: Mapping[str, CachedTopic] = self._plans.topics
        self._stores = RetainStores(state, streams, directory, settled)
        self.holdings = Holdings(state, streams, directory, self.routes_held, self.trust)
        self.send_windows = SendWindows(state, self._pass_on)
        self._queues: dict[str, deque[PendingPublication]] = {}
        """Publications of each topic that cannot be sent yet, in their order. None of these queues is empty."""
        self._blocked: dict[int, dict[str, None]] = {}
        """Each topic with a queue, below one of its partitions that are not trusted."""
        self._closed = False
        """Whether all publications wait until the ring is together again."""
        self._leaving: dict[Id, object] = {}
        """Peers without any route, until it is checked whether they have one again."""
        self._rotations: dict[str, int] = {}
        self._swept_at = state.clock.now

    def __len__(self) -> int:
        """Topics that were published to lately. No more are remembered than MAX_TOPICS."""
        return len(self._topics) + sum(name not in self._topics for name in self._queues)

    def __contains__(self, name: str) -> bool:
        return name in self._topics or name in self._queues

    @property
    def unsettled(self) -> Mapping[int, Publication]:
        """Retained messages that are not at their coordinator yet; a subscriber here finds them nowhere else."""
        return self._stores.unsettled

    def topics(self) -> Iterator[tuple[str, Plan | None, int]]:
        """Each topic that was published to lately with its plan, and the number of publications that wait for
        partitions. None: the topic must be looked at again before its next message."""
        generation, queues = self._plans.generation, self._queues
        for name, topic in self._topics.items():
            yield name, topic.plan if topic.generation == generation else None, len(queues.get(name, ()))
        for name, queue in queues.items():
            if name not in self._topics:
                yield name, None, len(queue)

    @property
    def filters(self) -> int:
        """Filters of the ring that this peer has a route for."""
        return len(self.routes_held)

    def choice_for(self, name: str) -> Choice:
        """The dispatching of a topic."""
        return self._plans.choice_for(name)

    def trusted_until(self, name: str) -> float:
        """The time until which the routes of a topic may be trusted."""
        leases = [self.trust.lease_of(self._names.partition_of(prefix)) for prefix in prefixes_of(name)]
        return min([-inf if lease is None else lease.until for lease in leases])

    def trusted_partitions(self) -> int:
        return self.trust.count(self._state.clock.now)

    # Publications of the clients here

    def publish(self, publication: Publication, matched: bool, done: Done | None) -> None:
        state, name = self._state, publication.topic
        outgoing = PendingPublication(publication, matched, done, state.clock.now)
        # QoS 1 and 2 use memory until they are acknowledged; QoS 0 uses memory only while it is held (see `_hold`).
        if publication.qos and state.waiting_bytes >= state.config.max_waiting_bytes:
            self._refuse(outgoing)
            return
        if publication.retain:
            self._stores.unsettled[publication.seq] = publication
        # Behind held publications it must be held as well, or it would overtake them.
        topic = None if name in self._queues else self._topic(name)
        if topic is None:
            self._hold(name, outgoing)
        else:
            self._dispatch(topic.plan, outgoing)

    def publish_fast(self, name: str, body: bytes) -> bool:
        """Send a message of the fast path. False: nothing was done, as its plan is not fast, or cannot be trusted."""
        state, topic = self._state, self._plans.fast.get(name)
        now = state.clock.now
        if topic is None or self.trust.until <= now:
            # Behind held publications it must be held as well, or it would overtake them.
            topic = None if name in self._queues else self._topic(name)
            if topic is None or not topic.plan.is_fast:
                return False
        topic.used_at = now
        state.seq += 1
        if topic.peers:
            self._send_once(topic.peers, encode_fast(state.seq, state.me.boot, topic.raw, body))
        return True

    def _send_once(self, peers: Sequence[Peer], payload: bytes) -> int:
        """Send a message with QoS 0. Returns the number of peers whose links accepted it."""
        send, counters = self._state.overlay.send, self._state.counters
        sent = len(peers)
        for peer in peers:
            if not send(peer, payload):
                sent -= 1
                counters.dropped += 1
        counters.sent += sent
        return sent

    def _topic(self, name: str) -> CachedTopic | None:
        """A topic with a plan that can be trusted. None: a partition is not held, or its lease has run out."""
        if self._closed:
            return None
        now = self._state.clock.now
        if self.trust.until <= now:
            self.trust.review(now)
            self._see_distrust()
        topic = self._plans.current(name, now)
        if topic is None:
            # If all partitions are trusted, the match need not look at each prefix.
            matched = self.routes_held.match(name, None if self.trust.is_complete else self.trust.trusted)
            if matched is not None:
                topic = self._plans.put(name, matched, now)
        return topic

    def _see_distrust(self) -> None:
        if self.trust.lost:
            self.trust.lost = False
            self._plans.distrust()

    def _hold(self, name: str, outgoing: PendingPublication) -> None:
        state = self._state
        size = len(outgoing.publication.body)
        if state.waiting_bytes + size > state.config.max_waiting_bytes:
            self._refuse(outgoing)
            return
        state.add_waiting(size)
        queue = self._queues.get(name)
        if queue is None:
            self._queues[name] = deque((outgoing,))
            self._block(name)
        else:
            queue.append(outgoing)

    def _block(self, name: str) -> None:
        if self._closed:
            return
        # One partition is enough: when it is trusted, the topic looks for the next one that is not.
        self._blocked.setdefault(self.holdings.want(name), {})[name] = None

    def close(self) -> None:
        """All publications wait from now on. Call it before the first one."""
        self._closed = True

    def open(self) -> None:
        self._closed = False
        for name in list(self._queues):
            self._flush(name)

    def _refuse(self, outgoing: PendingPublication) -> None:
        self._stores.unsettled.pop(outgoing.publication.seq, None)
        if outgoing.publication.qos:
            self._state.counters.refused += 1
        else:
            self._state.counters.dropped += 1
        self._state.tracing.ends(self._state.me, outgoing.publication, DIRECT)
        outgoing.fail()

    def _flush_trusted(self) -> None:
        """Send the publications whose partitions are trusted now."""
        if not self.trust.gained:
            return
        self.trust.gained = False
        for partition in [each for each in self._blocked if self.trust.trusted[each]]:
            for name in self._blocked.pop(partition, ()):
                self._flush(name)

    def _flush(self, name: str) -> None:
        queue = self._queues.get(name)
        while queue:
            topic = self._topic(name)
            if topic is None:
                self._block(name)
                return
            outgoing = queue.popleft()
            self._state.add_waiting(-len(outgoing.publication.body))
            self._plans.allow_fast(name, topic, not queue)
            if not queue:
                del self._queues[name]
            self._dispatch(topic.plan, outgoing)

    def _dispatch(self, plan: Plan, outgoing: PendingPublication) -> None:
        if plan.peers or plan.groups:
            outgoing.matched = True
        if outgoing.publication.retain:
            self._stores.begin(outgoing)
        name = DIRECT
        if plan.groups:
            sends = self._dispatch_shared(plan, outgoing)
        elif plan.through_tree:
            name = plan.choice.name
            sends = self._dispatch_tree(plan, outgoing)
        else:
            sends = self._dispatch_direct(plan.peers, outgoing)
        if outgoing.publication.trace is not None:
            outgoing.publication.trace.sends = sends
            self._state.tracing.ends(self._state.me, outgoing.publication, name)
        outgoing.got()

    def _dispatch_direct(self, peers: tuple[Peer, ...], outgoing: PendingPublication) -> int:
        """Send to each peer from here. Returns the number of sends."""
        publication = outgoing.publication.onward()
        if not publication.qos:
            return self._send_once(peers, encode(publication)) if peers else 0
        tail = tail_of(publication)
        outgoing.expect(len(peers))
        for peer in peers:
            self.send_windows.push(peer, publication, tail, outgoing.settled)
        return len(peers)

    def _dispatch_tree(self, plan: Plan, outgoing: PendingPublication) -> int:
        """Send to some subscribers, which pass it on. Returns the number of sends from here."""
        publication, choice, peers = outgoing.publication.onward(), plan.choice, plan.peers
        tail = tail_of(publication)
        if publication.qos:
            outgoing.expect(len(peers))
            enlisted = [self.send_windows.enlist(peer, publication, tail, outgoing.settled) for peer in peers]
            # A peer with a full or stalled window is no leaf: its window sends the message later, behind the earlier
            # ones.
            leaves = [leaf for leaf in enlisted if leaf is not None]
        else:
            leaves = [Leaf(peer, 0, 0) for peer in peers]
        sent = self._tree_relay.begin(publication, tail, leaves, choice.name, choice.fanout)
        return sent + len(peers) - len(leaves)

    def _dispatch_shared(self, plan: Plan, outgoing: PendingPublication) -> int:
        """Send to each peer from here, and choose one peer of each group in rotation for its shared filter."""
        served: dict[Id, tuple[Peer, list[str]]] = {peer.id: (peer, []) for peer in plan.peers}
        unshared = set(served)
        for name, members in plan.groups:
            present = self._present(name, members)
            if present:
                peer = self._next_of_group(name, present)
                served.setdefault(peer.id, (peer, []))[1].append(name)
        onward, sends = outgoing.publication.onward(), 0
        tail = tail_of(onward)
        for peer_id, (peer, names) in served.items():
            publication = addressed(onward, peer_id in unshared, tuple(names))
            if peer_id == self._state.me.id:
                clients = self._state.clients.deliver(publication)
                if outgoing.publication.trace is not None:
                    outgoing.publication.trace.clients += clients
            elif publication.qos:
                outgoing.expect(1)
                self.send_windows.push(peer, publication, tail, outgoing.settled)
                sends += 1
            else:
                sends += self._send_once((peer,), encode(publication))
        return sends

    def _present(self, name: str, members: Sequence[Peer]) -> Sequence[Peer]:
        """The members without this peer, if its clients have left the group. Other peers report it in their answer."""
        if self._serves(name):
            return members
        return [peer for peer in members if peer.id != self._state.me.id]

    def _next_of_group(self, name: str, members: Sequence[Peer]) -> Peer:
        # The first rotation depends on this peer's id: otherwise all publishers would begin with the same member.
        rotation = self._rotations[name] = self._rotations.get(name, self._state.me.id % len(members)) + 1
        return members[rotation % len(members)]

    def _pass_on(self, given_up: Peer, item: Item) -> bool:
        """Send a message to a peer of each group that was not chosen before; returns whether there is any.

        The first may have delivered it and died before its acknowledgement: then the group gets it twice.
        """
        name = item.publication.topic
        # Partitions stay held as long as any message is unacknowledged (see `sweep`), trusted or not.
        matched = self.routes_held.match(name)
        assert matched is not None, "a match without flags of trust has a result"
        plan = self._plans.plan(matched, self._plans.choice_for(name))
        tried = item.tried | {given_up.id}
        served: dict[Id, tuple[Peer, list[str]]] = {}
        for group, members in plan.groups:
            if group not in item.publication.shared:
                continue
            others = [peer for peer in self._present(group, members) if peer.id not in tried]
            if others:
                peer = self._next_of_group(group, others)
                served.setdefault(peer.id, (peer, []))[1].append(group)
        missing = Countdown(len(served), item.on_settled)
        for peer, names in served.values():
            publication = addressed(item.publication, False, tuple(names))
            if peer.id == self._state.me.id:
                self._state.clients.deliver(publication)
                missing.down()
            else:
                self.send_windows.push(peer, publication, item.tail, missing.down, tried)
        return bool(served)

    # Messages of coordinators

    def routes(self, sender: Peer, message: Routes) -> None:
        changes = self.holdings.routes(sender, message)
        if changes is not None:
            if len(self._stores):
                changed = set(unpacked(message.partitions, "H"))
                for begun in message.begun:
                    changed.update(NUMBERS[begun.first : begun.last + 1])
                self._stores.hold_back(changed)
            self._change(changes)
        self._follow_trust()

    def _change(self, changes: RouteChanges) -> None:
        # Old plans are forgotten first: held messages are sent at once, and must use the new routes.
        self._plans.change(changes)
        for peer_id in [each for each in self._leaving if each in self.routes_held.home_sets]:
            # Otherwise, if it left again, it would be given up when the first time to wait is over.
            del self._leaving[peer_id]
        for peer_id, expired in changes.left:
            self._peer_left(peer_id, expired)

    def _follow_trust(self) -> None:
        self._see_distrust()
        self._flush_trusted()

    def _peer_left(self, peer_id: Id, expired: bool) -> None:
        # A peer whose lease has not run out may still acknowledge what it has, or have a route again soon.
        if not self.send_windows.leads_to(peer_id):
            return
        if expired:
            self._give_up(peer_id)
        elif peer_id not in self._leaving:
            departure = self._leaving[peer_id] = object()
            self._state.after(self._state.config.grace_s, partial(self._grace_over, peer_id, departure))

    def _grace_over(self, peer_id: Id, departure: object) -> None:
        if self._leaving.get(peer_id) is departure:
            self._give_up(peer_id)

    def _give_up(self, peer_id: Id) -> None:
        self._leaving.pop(peer_id, None)
        if peer_id not in self.routes_held.home_sets:
            self.send_windows.give_up(peer_id)

    def renewed(self, sender: Peer, message: Renewed) -> None:
        self.holdings.renewed(sender, message)
        self._follow_trust()

    def retained(self, sender: Peer, message: Retained) -> None:
        self._stores.retained(message)

    def elsewhere(self, sender: Peer, message: Elsewhere) -> None:
        self.holdings.elsewhere(sender, message)
        self._stores.elsewhere(sender, message)

    def stream_lost(self, peer: Peer) -> None:
        """Messages to a peer, or its messages to this peer, may be missing."""
        self.holdings.stream_lost(peer)
        self._stores.stream_lost(peer)
        self._follow_trust()

    def coordinators_changed(self) -> None:
        """Some partitions may have other coordinators than before, or their first known ones."""
        self.holdings.coordinators_changed()
        self._stores.coordinators_changed()

    # Periodic calls

    def sweep(self) -> None:
        """Forget topics without recent publications, and messages that have waited too long. Call it periodically."""
        state, config = self._state, self._state.config
        now = state.clock.now
        if len(self._rotations) > MOST_ROTATIONS:
            self._rotations.clear()
        for name, queue in list(self._queues.items()):
            while queue and queue[0].at + config.give_up_s < now:
                outgoing = queue.popleft()
                state.add_waiting(-len(outgoing.publication.body))
                self._refuse(outgoing)
            if not queue:
                del self._queues[name]
        since, self._swept_at = self._swept_at, now
        self.holdings.used(self._plans.since(since))
        self._plans.forget(now - config.idle_s)
        # `_pass_on` needs the groups of a topic as long as any message is unacknowledged.
        if not len(self.send_windows) and not len(self._stores):
            changes = self.holdings.release(bool(self._topics or self._queues))
            self._plans.change(changes)
            self._follow_trust()
        self._queues = slimmed(self._queues)
        self._blocked = slimmed(self._blocked)
        self._stores.sweep()
