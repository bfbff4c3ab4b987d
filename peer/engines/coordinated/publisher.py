"""The publisher: finds the subscribers of a topic and sends to all of them (MQTT2EdgePeer thesis, algorithms 2.1, 2.2).

A topic's plan is made when a list changes, not for each message. If a list is missing or cannot be trusted, a message
waits here, and later messages to the same topic wait behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from ringmq.dispatching.algorithms import choose
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Elsewhere, Kind, Record, Retain, Retained
from ringmq.peer.engines.coordinated.subscriber_lists import Registration, SubscriberLists
from ringmq.peer.engines.coordinated.topic import DIRECT, Store, Topic
from ringmq.peer.engines.coordinated.tree_relay import TreeRelay
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.fast_path import encode_fast
from ringmq.peer.messaging.partitions import inner_of, is_shared, is_wild, key_of_place, places_of
from ringmq.peer.messaging.pending import Countdown, PendingPublication
from ringmq.peer.messaging.publication import Leaf, Publication, addressed, encode, tail_of
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.messaging.send_window import Item, SendWindows

IN_USE_LEASES: Final = 2
"""Lists are renewed for this number of leases after the last message to their topic."""
RELEASED_AT_ONCE: Final = 200
RELEASE_S: Final = 0.1
"""Time between batches of topics that are forgotten. Each topic costs some ten messages of coordinators and their
shadows: the ring would be busy for seconds with 100,000 at once."""
MOST_ROTATIONS: Final = 10_000
"""Shared filters whose rotation is remembered; beyond, all begin again, which does no harm."""


class Publisher:
    """One per engine."""

    __slots__ = (
        "_idle",
        "_leaving",
        "_rotations",
        "_serves",
        "_settled",
        "_state",
        "_stores",
        "_topics",
        "_tree_relay",
        "send_windows",
        "subscriber_lists",
        "unsettled",
    )

    def __init__(
        self,
        state: MessagingContext,
        tree_relay: TreeRelay,
        serves: Callable[[str], bool],
        settled: Callable[[Publication], None],
    ) -> None:
        """`serves` says whether a client here is in a group, whatever its list says. `settled` is called for each
        retained message that has reached its coordinator, or was given up."""
        self._state = state
        self._tree_relay = tree_relay
        self._serves = serves
        self._settled = settled
        self.subscriber_lists = SubscriberLists(state, self)
        self.send_windows = SendWindows(state, self._pass_on)
        self._topics: dict[str, Topic] = {}
        self._idle: deque[Topic] = deque()
        """Topics that will be forgotten."""
        self._leaving: set[int] = set()
        """Peers that have left a list, until it is checked whether another list still has them."""
        self._rotations: dict[str, int] = {}
        self._stores: dict[tuple[str, tuple[int, int]], Store] = {}
        self.unsettled: dict[int, Publication] = {}
        """Retained messages that are not at their coordinator yet; a subscriber here finds them nowhere else."""

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def lists_in_use(self) -> Iterable[Registration]:
        """Lists of topics that were published to recently, or that have messages waiting or unacknowledged."""
        since = self._state.clock.now - IN_USE_LEASES * self._state.config.lease_s
        used = [topic.lists for topic in self._topics.values() if topic.used_at >= since or topic.queue]
        for name in self.send_windows.topics():
            topic = self._topics.get(name)
            if topic is not None:
                used.append(topic.lists)
        return dict.fromkeys(chain.from_iterable(used))

    def publish(self, publication: Publication, matched: bool, done: Done | None) -> None:
        state, name = self._state, publication.topic
        topic = self._topics.get(name)
        if topic is None:
            topic = self._open(name)
        topic.used_at = state.clock.now
        outgoing = PendingPublication(publication, matched, done, state.clock.now)
        # QoS 1 and 2 use memory until they are acknowledged; QoS 0 uses memory only while it is held (see `_hold`).
        if publication.qos and state.waiting_bytes >= state.config.max_waiting_bytes:
            self._refuse(outgoing)
            return
        if publication.retain:
            self.unsettled[publication.seq] = publication
        # Behind held publications it must be held as well, or it would overtake them.
        if not topic.queue and self._ready(topic):
            self._dispatch(topic, outgoing)
        else:
            self._hold(topic, outgoing)

    def publish_fast(self, name: str, body: bytes) -> bool:
        """Send a message of the fast path. False: nothing was done, since there is no plan, or it cannot be trusted."""
        state, topic = self._state, self._topics.get(name)
        if topic is None or topic.fast_until <= state.clock.now:
            return False
        topic.used_at = state.clock.now
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

    def _open(self, name: str) -> Topic:
        lists = tuple([self.subscriber_lists.of(place, name) for place in places_of(name)])
        config = self._state.config
        choice = choose(config.rules, lambda rule: matches(rule, name), config.dispatch)
        topic = self._topics[name] = Topic(name, lists, choice, self._state.clock.now)
        return topic

    def _ready(self, topic: Topic) -> bool:
        """Whether all its lists can be trusted; the others are requested."""
        now = self._state.clock.now
        if topic.valid_until > now or topic.renew() > now:
            return True
        for registration in topic.lists:
            if registration.until <= now:
                self.subscriber_lists.ensure(registration)
        return False

    def _hold(self, topic: Topic, outgoing: PendingPublication) -> None:
        state = self._state
        size = len(outgoing.publication.body)
        if state.waiting_bytes + size > state.config.max_waiting_bytes:
            self._refuse(outgoing)
            return
        state.add_waiting(size)
        topic.hold(outgoing)

    def _refuse(self, outgoing: PendingPublication) -> None:
        self.unsettled.pop(outgoing.publication.seq, None)
        if outgoing.publication.qos:
            self._state.counters.refused += 1
        else:
            self._state.counters.dropped += 1
        self._state.tracing.ends(self._state.me, outgoing.publication, DIRECT)
        outgoing.fail()

    def list_changed(self, registration: Registration) -> None:
        for name in registration.users:
            topic = self._topics.get(name)
            if topic is not None:
                topic.forget_plan()

    def list_trusted(self, registration: Registration) -> None:
        for name in list(registration.users):
            topic = self._topics.get(name)
            if topic is not None and topic.queue:
                self._flush(topic)

    def peer_left(self, peer_id: Id, expired: bool) -> None:
        # A peer whose lease has not run out may still acknowledge what it has, or be back on another list soon.
        if not self.send_windows.leads_to(peer_id):
            return
        if expired:
            self._give_up(peer_id)
        elif peer_id not in self._leaving:
            self._leaving.add(peer_id)
            self._state.after(self._state.config.grace_s, partial(self._give_up, peer_id))

    def _give_up(self, peer_id: int) -> None:
        self._leaving.discard(peer_id)
        if not self.subscriber_lists.lists(peer_id):
            self.send_windows.give_up(peer_id)

    def _flush(self, topic: Topic) -> None:
        while topic.queue and self._ready(topic):
            outgoing = topic.release()
            self._state.add_waiting(-len(outgoing.publication.body))
            self._dispatch(topic, outgoing)

    def _plan(self, topic: Topic) -> tuple[Peer, ...]:
        """Compute the receivers from the lists: each peer once, and the members of each shared filter."""
        unshared: dict[Id, Peer] = {}
        groups: dict[str, dict[Id, Peer]] = {}
        for registration in topic.lists:
            wild = is_wild(registration.place)
            for record in registration.entries.values():
                if record.peer is None or (wild and not matches(inner_of(record.name), topic.name)):
                    continue
                if is_shared(record.name):
                    groups.setdefault(record.name, {})[record.peer.id] = record.peer
                else:
                    unshared[record.peer.id] = record.peer
        # The front has delivered the message to its own clients before it called, except to shared subscriptions.
        unshared.pop(self._state.me.id, None)
        # Guided finds the position of the publisher among the peers by bisection, so they must be sorted by id.
        peers = tuple([unshared[peer_id] for peer_id in sorted(unshared)])
        members = [(name, tuple([of[peer_id] for peer_id in sorted(of)])) for name, of in sorted(groups.items())]
        topic.plan(peers, tuple(members))
        return peers

    def _dispatch(self, topic: Topic, outgoing: PendingPublication) -> None:
        peers = topic.peers if topic.peers is not None else self._plan(topic)
        if peers or topic.groups:
            outgoing.matched = True
        if outgoing.publication.retain:
            self._retain(topic, outgoing)
        name = DIRECT
        if topic.groups:
            sends = self._dispatch_shared(topic, peers, outgoing)
        elif topic.through_tree:
            name = topic.choice.name
            sends = self._dispatch_tree(topic, peers, outgoing)
        else:
            sends = self._dispatch_direct(peers, outgoing)
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
            self.send_windows.push(peer, publication, tail, outgoing.got)
        return len(peers)

    def _dispatch_tree(self, topic: Topic, peers: tuple[Peer, ...], outgoing: PendingPublication) -> int:
        """Send to some subscribers, which pass it on. Returns the number of sends from here."""
        publication, choice = outgoing.publication.onward(), topic.choice
        tail = tail_of(publication)
        if publication.qos:
            outgoing.expect(len(peers))
            enlisted = [self.send_windows.enlist(peer, publication, tail, outgoing.got) for peer in peers]
            # A peer with a full or stalled window is no leaf: its window sends the message later, behind the earlier
            # ones.
            leaves = [leaf for leaf in enlisted if leaf is not None]
        else:
            leaves = [Leaf(peer, 0, 0) for peer in peers]
        sent = self._tree_relay.begin(publication, tail, leaves, choice.name, choice.fanout)
        return sent + len(peers) - len(leaves)

    def _dispatch_shared(self, topic: Topic, peers: tuple[Peer, ...], outgoing: PendingPublication) -> int:
        """Send to each peer from here, and choose one peer of each group in rotation for its shared filter."""
        served: dict[Id, tuple[Peer, list[str]]] = {peer.id: (peer, []) for peer in peers}
        unshared = set(served)
        for name, members in topic.groups:
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
                self.send_windows.push(peer, publication, tail, outgoing.got)
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
        topic = self._topics.get(item.publication.topic)
        if topic is None:
            return False
        if topic.peers is None:
            self._plan(topic)
        tried = item.tried | {given_up.id}
        served: dict[Id, tuple[Peer, list[str]]] = {}
        for name, members in topic.groups:
            if name not in item.publication.shared:
                continue
            others = [peer for peer in self._present(name, members) if peer.id not in tried]
            if others:
                peer = self._next_of_group(name, others)
                served.setdefault(peer.id, (peer, []))[1].append(name)
        missing = Countdown(len(served), item.on_held)
        for peer, names in served.values():
            publication = addressed(item.publication, False, tuple(names))
            if peer.id == self._state.me.id:
                self._state.clients.deliver(publication)
                missing.down()
            else:
                self.send_windows.push(peer, publication, item.tail, missing.down, tried)
        return bool(served)

    def _retain(self, topic: Topic, outgoing: PendingPublication) -> None:
        """Send it to the coordinator of its topic, until it is acknowledged."""
        publication = outgoing.publication
        number = stamp_of(publication.stamp, self._state.me.id)
        record = Record(
            Kind.RETAINED, topic.name, None, number, publication.clears, publication.qos > 0, publication.body
        )
        outgoing.expect(1)
        store = self._stores[topic.name, number] = Store(record, topic.lists, publication.seq, outgoing)
        for registration in topic.lists:
            # Until it is stored, no newer list is acknowledged: otherwise a subscriber that is granted meanwhile would
            # get the message neither live nor retained.
            registration.began_store(publication.seq)
        self._state.ask(topic.lists[0].coordinator, key_of_place(topic.name), Retain(record))
        self._store_later(store)

    def _store_later(self, store: Store) -> None:
        wait_s = store.next_wait(self._state.config.retry_s, self._state.config.slow_retry_s)
        self._state.after(wait_s, partial(self._store_again, store))

    def _store_again(self, store: Store) -> None:
        record = store.record
        if self._stores.get((record.name, record.number)) is not store:
            return
        if store.outgoing.at + self._state.config.give_up_s < self._state.clock.now:
            self._state.counters.not_retained += 1
            self._stored(store)
            return
        # The first attempt went to the known coordinator, which may be dead: from now on the ring finds it.
        self._state.route(key_of_place(record.name), Retain(record))
        self._store_later(store)

    def retained(self, sender: Peer, message: Retained) -> None:
        self._state.observe(message.clock)
        store = self._stores.get((message.topic, message.number))
        if store is not None:
            self._stored(store)

    def _stored(self, store: Store) -> None:
        del self._stores[store.record.name, store.record.number]
        publication = self.unsettled.pop(store.seq, None)
        if publication is not None:
            self._settled(publication)
        for registration in store.lists:
            self.subscriber_lists.stored(registration, store.seq)
        store.outgoing.got()

    def elsewhere(self, message: Elsewhere) -> None:
        for store in list(self._stores.values()):
            if store.record.name in message.places:
                self._state.route(key_of_place(store.record.name), Retain(store.record))

    def sweep(self) -> None:
        """Forget topics without recent publications, and messages that have waited too long. Call it periodically."""
        state, config = self._state, self._state.config
        if len(self._rotations) > MOST_ROTATIONS:
            self._rotations.clear()
        idle: list[Topic] = []
        for topic in list(self._topics.values()):
            while topic.queue and topic.queue[0].at + config.give_up_s < state.clock.now:
                outgoing = topic.release()
                state.add_waiting(-len(outgoing.publication.body))
                self._refuse(outgoing)
            busy = topic.queue or any(registration.stores for registration in topic.lists)
            # `_pass_on` needs the groups of a topic as long as any message is unacknowledged.
            if not busy and topic.used_at + config.idle_s < state.clock.now and not len(self.send_windows):
                idle.append(topic)
        if not self._idle:
            self._idle.extend(idle)
            self._release(state.clock.now)
        self._topics = slimmed(self._topics)
        self._stores = slimmed(self._stores)
        self.unsettled = slimmed(self.unsettled)

    def _release(self, since: float) -> None:
        """Forget idle topics without publications since then: some now, the others soon."""
        for _ in range(min(RELEASED_AT_ONCE, len(self._idle))):
            topic = self._idle.popleft()
            # Clients may have published to the topic again while it waited for its batch.
            if topic.used_at < since and not topic.queue:
                del self._topics[topic.name]
                self.subscriber_lists.release(topic.name, topic.lists)
        if self._idle:
            self._state.after(RELEASE_S, partial(self._release, since))
