"""The publisher: finds out who subscribes, and sends to all of them (the MQTT2EdgePeer thesis, algorithms 2.1 and 2.2).

A topic's plan is made when a list changes, not for each message. A message for which a list is missing, or cannot be
trusted, waits here, and those after it to the same topic wait behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from ringmq.dispatching.algorithms import choose
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Elsewhere, Kind, Record, Retain, Retained
from ringmq.peer.engines.coordinated.subscriber_lists import Registration, SubscriberLists
from ringmq.peer.engines.coordinated.tree_relay import TreeRelay
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import inner_of, is_shared, is_wild, key_of_place, places_of
from ringmq.peer.messaging.pending import Countdown, PendingPublication, Store, Topic, addressed
from ringmq.peer.messaging.publication import Leaf, Publication, encode, encode_plain, tail_of
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.messaging.send_window import Item, SendWindows

__all__ = ["PendingPublication", "Publisher"]

DIRECT: Final = "direct"
IN_USE_LEASES: Final = 2
"""So many leases after the last message to a topic its lists are still renewed."""
RELEASED_AT_ONCE: Final = 200
RELEASE_S: Final = 0.1
"""So many topics are forgotten in so much time. Each is some ten messages of coordinators and their shadows: the ring
would be busy for seconds with 100,000 at once."""
MOST_TURNS: Final = 10_000
"""Shared filters of which it is remembered whose turn it is."""


class Publisher:
    """One per core."""

    __slots__ = (
        "_idle",
        "_leaving",
        "_send_windows",
        "_state",
        "_stores",
        "_subscriber_lists",
        "_topics",
        "_tree_relay",
        "_turns",
        "clock_us",
        "serves",
        "settled",
        "unsettled",
    )

    def __init__(
        self,
        state: MessagingContext,
        subscriber_lists: SubscriberLists,
        send_windows: SendWindows,
        tree_relay: TreeRelay,
    ) -> None:
        self._state = state
        self._subscriber_lists = subscriber_lists
        self._send_windows = send_windows
        self._tree_relay = tree_relay
        self._topics: dict[str, Topic] = {}
        self._idle: deque[Topic] = deque()
        """To be forgotten."""
        self._leaving: set[int] = set()
        """Peers of which it is soon looked whether they are on any list still."""
        self._turns: dict[str, int] = {}
        self._stores: dict[tuple[str, tuple[int, int]], Store] = {}
        self.unsettled: dict[int, Publication] = {}
        """Retained messages not at their coordinator yet: who subscribes here meanwhile finds them nowhere else."""
        self.serves: Callable[[str], bool] = lambda group: True
        """Whether a client here is in a group, whatever its list says."""
        self.settled: Callable[[Publication], None] = lambda publication: None
        """Called for each of them when that has changed."""
        self.clock_us: Callable[[], int] = lambda: int(state.clock.now * 1e6)
        """The time of the world, for the order of retained messages."""
        subscriber_lists.changed = self._changed
        subscriber_lists.trusted = self._trusted
        subscriber_lists.left = self._left
        send_windows.passed_on = self._pass_on

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    def lists_in_use(self) -> Iterable[Registration]:
        """Those of topics that were published to of late, or of which a message is on its way, or waits."""
        since = self._state.clock.now - IN_USE_LEASES * self._state.config.lease_s
        used = [topic.lists for topic in self._topics.values() if topic.used_at >= since or topic.queue]
        for name in self._send_windows.topics():
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
        if publication.qos and state.waiting_bytes >= state.config.max_waiting_bytes:
            self._refuse(outgoing)
            return
        if publication.retain:
            self.unsettled[publication.seq] = publication
        if not topic.queue and self._ready(topic):
            self._dispatch(topic, outgoing)
        else:
            self._hold(topic, outgoing)

    def publish_plain(self, name: str, body: bytes) -> bool:
        """With QoS 0 and not retained, if its plan is made and can be trusted. False: nothing has been done."""
        state, topic = self._state, self._topics.get(name)
        if topic is None or topic.quick is None or topic.valid_until <= state.clock.now or topic.queue:
            return False
        topic.used_at = state.clock.now
        state.seq += 1
        if topic.quick:
            self._send_once(topic.quick, encode_plain(state.seq, state.me.boot, topic.raw, body))
        return True

    def _send_once(self, peers: Sequence[Peer], payload: bytes) -> int:
        """QoS 0. How many took it."""
        send, counters = self._state.overlay.send, self._state.counters
        sent = len(peers)
        for peer in peers:
            if not send(peer, payload):
                sent -= 1
                counters.dropped += 1
        counters.sent += sent
        return sent

    def _open(self, name: str) -> Topic:
        lists = tuple([self._subscriber_lists.of(place, name) for place in places_of(name)])
        config = self._state.config
        choice = choose(config.rules, lambda rule: matches(rule, name), config.dispatch)
        topic = self._topics[name] = Topic(name, lists, choice, self._state.clock.now)
        return topic

    def _ready(self, topic: Topic) -> bool:
        """Whether all its lists can be trusted; those that cannot are asked for."""
        now = self._state.clock.now
        if topic.valid_until > now:
            return True
        topic.valid_until = min(one.until for one in topic.lists)
        if topic.valid_until > now:
            return True
        for one in topic.lists:
            if one.until <= now:
                self._subscriber_lists.ensure(one)
        return False

    def _hold(self, topic: Topic, outgoing: PendingPublication) -> None:
        state = self._state
        size = len(outgoing.publication.body)
        if state.waiting_bytes + size > state.config.max_waiting_bytes:
            self._refuse(outgoing)
            return
        state.waiting_bytes += size
        topic.queue.append(outgoing)

    def _refuse(self, outgoing: PendingPublication) -> None:
        self.unsettled.pop(outgoing.publication.seq, None)
        if outgoing.publication.qos:
            self._state.counters.refused += 1
        else:
            self._state.counters.dropped += 1
        self._state.tracing.ends(self._state.me, outgoing.publication, DIRECT)
        if outgoing.done is not None:
            outgoing.done(Reason.QUOTA_EXCEEDED)

    def _changed(self, one: Registration) -> None:
        for name in one.users:
            topic = self._topics.get(name)
            if topic is not None:
                topic.peers = topic.quick = None

    def _left(self, point: int, expired: bool) -> None:
        """A list names a peer no longer. Unless its lease ran out, it may still acknowledge what it has, or be back."""
        if not self._send_windows.leads_to(point):
            return
        if expired:
            self._give_up(point)
        elif point not in self._leaving:
            self._leaving.add(point)
            self._state.after(self._state.config.grace_s, partial(self._give_up, point))

    def _give_up(self, point: int) -> None:
        self._leaving.discard(point)
        if not self._subscriber_lists.lists(point):
            self._send_windows.give_up(point)

    def _trusted(self, one: Registration) -> None:
        for name in list(one.users):
            topic = self._topics.get(name)
            if topic is not None and topic.queue:
                self._flush(topic)

    def _flush(self, topic: Topic) -> None:
        while topic.queue and self._ready(topic):
            outgoing = topic.queue.popleft()
            self._state.waiting_bytes -= len(outgoing.publication.body)
            self._dispatch(topic, outgoing)

    # Giving out

    def _plan(self, topic: Topic) -> tuple[Peer, ...]:
        """Who gets it: each peer once, and of each shared filter one peer at a time."""
        plain: dict[Id, Peer] = {}
        groups: dict[str, dict[Id, Peer]] = {}
        for one in topic.lists:
            wild = is_wild(one.place)
            for record in one.entries.values():
                if record.peer is None or (wild and not matches(inner_of(record.name), topic.name)):
                    continue
                if is_shared(record.name):
                    groups.setdefault(record.name, {})[record.peer.id] = record.peer
                else:
                    plain[record.peer.id] = record.peer
        plain.pop(self._state.me.id, None)
        topic.peers = tuple([plain[point] for point in sorted(plain)])
        topic.groups = tuple(
            [(name, tuple([peers[point] for point in sorted(peers)])) for name, peers in sorted(groups.items())]
        )
        direct = topic.choice.name == DIRECT or len(topic.peers) <= topic.choice.fanout
        topic.quick = topic.peers if direct and not topic.groups else None
        return topic.peers

    def _dispatch(self, topic: Topic, outgoing: PendingPublication) -> None:
        peers = topic.peers if topic.peers is not None else self._plan(topic)
        if peers or topic.groups:
            outgoing.matched = True
        if outgoing.publication.retain:
            self._retain(topic, outgoing)
        name = DIRECT
        if topic.groups:
            sends = self._dispatch_shared(topic, peers, outgoing)
        elif topic.choice.name != DIRECT and len(peers) > topic.choice.fanout:
            name = topic.choice.name
            sends = self._dispatch_tree(topic, peers, outgoing)
        else:
            sends = self._dispatch_direct(peers, outgoing)
        if outgoing.publication.trace is not None:
            outgoing.publication.trace.sends = sends
            self._state.tracing.ends(self._state.me, outgoing.publication, name)
        outgoing.got()

    def _dispatch_direct(self, peers: tuple[Peer, ...], outgoing: PendingPublication) -> int:
        """To each peer from here; to how many."""
        publication = outgoing.publication.onward()
        if not publication.qos:
            return self._send_once(peers, encode(publication)) if peers else 0
        tail = tail_of(publication)
        outgoing.missing += len(peers)
        for peer in peers:
            self._send_windows.push(peer, publication, tail, outgoing.got)
        return len(peers)

    def _dispatch_tree(self, topic: Topic, peers: tuple[Peer, ...], outgoing: PendingPublication) -> int:
        """As above, with the help of the subscribers."""
        publication, choice = outgoing.publication.onward(), topic.choice
        tail = tail_of(publication)
        if publication.qos:
            outgoing.missing += len(peers)
            enlisted = [self._send_windows.enlist(peer, publication, tail, outgoing.got) for peer in peers]
            leaves = [leaf for leaf in enlisted if leaf is not None]
        else:
            leaves = [Leaf(peer, 0, 0) for peer in peers]
        sent = self._tree_relay.begin(publication, tail, leaves, choice.name, choice.fanout)
        return sent + len(peers) - len(leaves)

    def _dispatch_shared(self, topic: Topic, peers: tuple[Peer, ...], outgoing: PendingPublication) -> int:
        """As above, and one peer of each group in turn serves one of its members."""
        served: dict[Id, tuple[Peer, list[str]]] = {peer.id: (peer, []) for peer in peers}
        plain = set(served)
        for name, members in topic.groups:
            present = self._present(name, members)
            if present:
                peer = self._whose_turn(name, present)
                served.setdefault(peer.id, (peer, []))[1].append(name)
        onward, sends = outgoing.publication.onward(), 0
        tail = tail_of(onward)
        for point, (peer, names) in served.items():
            publication = addressed(onward, point in plain, tuple(names))
            if point == self._state.me.id:
                clients = self._state.clients.deliver(publication)
                if outgoing.publication.trace is not None:
                    outgoing.publication.trace.clients += clients
            elif publication.qos:
                outgoing.missing += 1
                self._send_windows.push(peer, publication, tail, outgoing.got)
                sends += 1
            else:
                sends += self._send_once((peer,), encode(publication))
        return sends

    def _present(self, name: str, members: Sequence[Peer]) -> Sequence[Peer]:
        """Without this peer, if its clients have left the group since. Others say so when they are sent a message."""
        if self.serves(name):
            return members
        return [peer for peer in members if peer.id != self._state.me.id]

    def _whose_turn(self, name: str, members: Sequence[Peer]) -> Peer:
        turn = self._turns[name] = self._turns.get(name, self._state.me.id % len(members)) + 1
        return members[turn % len(members)]

    def _pass_on(self, given_up: Peer, item: Item) -> bool:
        """Have another peer of each group serve it, one that was not to do so before; whether there is any.

        The first may have had it, and died before it said so: then the group gets it twice.
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
                peer = self._whose_turn(name, others)
                served.setdefault(peer.id, (peer, []))[1].append(name)
        missing = Countdown(len(served), item.on_held)
        for peer, names in served.values():
            publication = addressed(item.publication, False, tuple(names))
            if peer.id == self._state.me.id:
                self._state.clients.deliver(publication)
                missing.down()
            else:
                self._send_windows.push(peer, publication, item.tail, missing.down, tried)
        return bool(served)

    # Retained messages

    def stamp(self) -> int:
        return self._state.tick_clock(self.clock_us())

    def _retain(self, topic: Topic, outgoing: PendingPublication) -> None:
        """Bring it to the coordinator of its topic, until it is there."""
        publication = outgoing.publication
        number = stamp_of(publication.stamp, self._state.me.id)
        record = Record(
            Kind.RETAINED, topic.name, None, number, publication.clears, publication.qos > 0, publication.body
        )
        outgoing.missing += 1
        store = self._stores[topic.name, number] = Store(record, topic.lists, publication.seq, outgoing)
        for one in topic.lists:
            one.stores.add(publication.seq)
        self._state.ask(topic.lists[0].coordinator, key_of_place(topic.name), Retain(record))
        self._store_later(store)

    def _store_later(self, store: Store) -> None:
        store.wait_s = min(self._state.config.slow_retry_s, 2 * store.wait_s or self._state.config.retry_s)
        self._state.after(store.wait_s, partial(self._store_again, store))

    def _store_again(self, store: Store) -> None:
        record = store.record
        if self._stores.get((record.name, record.number)) is not store:
            return
        if store.outgoing.at + self._state.config.give_up_s < self._state.clock.now:
            self._state.counters.not_retained += 1
            self._stored(store)
            return
        self._state.route(key_of_place(record.name), Retain(record))
        self._store_later(store)

    def retained(self, sender: Peer, message: Retained) -> None:
        self._state.hybrid_clock = max(self._state.hybrid_clock, message.clock)
        store = self._stores.get((message.topic, message.number))
        if store is not None:
            self._stored(store)

    def _stored(self, store: Store) -> None:
        del self._stores[store.record.name, store.record.number]
        publication = self.unsettled.pop(store.seq, None)
        if publication is not None:
            self.settled(publication)
        for one in store.lists:
            self._subscriber_lists.stored(one, store.seq)
        store.outgoing.got()

    def elsewhere(self, message: Elsewhere) -> None:
        for store in list(self._stores.values()):
            if store.record.name in message.places:
                self._state.route(key_of_place(store.record.name), Retain(store.record))

    # Time

    def sweep(self) -> None:
        """Forget topics that are not published to any more, and what waited too long. To be called now and then."""
        state, config = self._state, self._state.config
        if len(self._turns) > MOST_TURNS:
            self._turns.clear()
        idle: list[Topic] = []
        for topic in list(self._topics.values()):
            while topic.queue and topic.queue[0].at + config.give_up_s < state.clock.now:
                outgoing = topic.queue.popleft()
                state.waiting_bytes -= len(outgoing.publication.body)
                self._refuse(outgoing)
            busy = topic.queue or any(one.stores for one in topic.lists)
            if not busy and topic.used_at + config.idle_s < state.clock.now and not len(self._send_windows):
                idle.append(topic)
        if not self._idle:
            self._idle.extend(idle)
            self._release(state.clock.now)
        self._topics = slimmed(self._topics)
        self._stores = slimmed(self._stores)
        self.unsettled = slimmed(self.unsettled)

    def _release(self, since: float) -> None:
        """Forget idle topics that nobody has published to since then: some now, the others soon."""
        for _ in range(min(RELEASED_AT_ONCE, len(self._idle))):
            topic = self._idle.popleft()
            if topic.used_at < since and not topic.queue:
                del self._topics[topic.name]
                self._subscriber_lists.release(topic.name, topic.lists)
        if self._idle:
            self._state.after(RELEASE_S, partial(self._release, since))
