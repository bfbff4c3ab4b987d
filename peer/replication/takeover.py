"""Changes of the coordinators of partitions as the ring changes: taking over, stepping down, handing over.

The peer nearest to a partition's key collects the records of the other owners before it answers any request, so it
knows every acknowledged subscription and every publisher that may trust routes. A peer that was asked obeys no lower
epoch any more: an old coordinator that has not noticed can grant nothing new, because a grant needs all its shadows.
Neighbouring partitions change hands together, so a death costs messages by neighbour and not by partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final, Protocol

from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Begun, HandedOver, Handover, State, StateRequest, TakeOver
from ringmq.peer.messaging.context import TURN_S, MessagingContext
from ringmq.peer.replication.copying import PIECE_BYTES, Copying, Records
from ringmq.peer.replication.departures import Departures
from ringmq.peer.replication.followers import ItemStreams, join_peers
from ringmq.peer.replication.gathering import Gathering, states_of
from ringmq.peer.replication.neighbourhood import Neighbourhood
from ringmq.peer.replication.partition_store import PARTIAL, UNUSED, WHOLE, PartitionStore
from ringmq.peer.replication.record import Epoch, is_higher, next_epoch
from ringmq.peer.replication.rows import RowWriter, read_rows
from ringmq.peer.replication.space import NUMBERS, Runs, key_of_partition, ones_of, partitions_in, runs_of

MOST_WAITS: Final = 5
"""Times `slow_retry_s` for which owners are waited for that are no shadows, as long as they send anything."""
RECORDS_A_TURN: Final = 256
"""Records of the partitions that begin in one iteration, some 5 ms with their copies and routes: a takeover of a
hundred thousand must not hold up everybody else, or make this peer look silent."""
MOST_DOUBLINGS: Final = 5
HANDED_TWICE: Final = 3
"""Looks after which unanswered records are sent again. Until then the stream repeats them to a silent peer."""


class Succession(Protocol):
    """What follows from a takeover: the coordinator of subscriptions."""

    def succeeds(self, partitions: list[int], holders: Iterable[Peer]) -> None:
        """This peer will coordinate these partitions; these publishers may hold routes of them."""

    def doubts(self, partitions: list[int], until: float, lacking: bool) -> None:
        """Nobody knows who holds routes of these partitions. They are not trusted after that time, which may be over.
        `lacking`: entries may be missing."""

    def took_over(self, partitions: list[int]) -> None:
        """This peer coordinates these partitions now."""

    def stepped_down(self, partitions: list[int]) -> None:
        """It does not coordinate them any more."""

    def holders_of(self, partitions: Iterable[int], epochs: Iterable[Epoch]) -> Collection[Peer]:
        """Publishers that may hold routes of these partitions from coordinators with these epochs, as far as this peer
        knows."""

    def inherited(self, holders: Iterable[Peer], actor: Id) -> None:
        """A peer is about to succeed the coordinators of these holders."""


class Takeover:
    """One per engine."""

    __slots__ = (
        "_awake", "_back", "_copying", "_departures", "_doubts", "_gatherings", "_handed", "_handing", "_idents",
        "_neighbourhood", "_nudged_at", "_of", "_records", "_state", "_store", "_streams", "_succession",
        "_unconfirmed", "_yielded",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        neighbourhood: Neighbourhood,
        store: PartitionStore,
        copying: Copying,
        records: Records,
        succession: Succession,
    ) -> None:
        self._state = state
        self._streams = streams
        self._neighbourhood = neighbourhood
        self._store = store
        self._copying = copying
        self._records = records
        self._succession = succession
        self._gatherings: dict[int, Gathering] = {}
        self._of: dict[int, Gathering] = {}
        """The gathering of each partition that is being taken over."""
        self._idents = 0
        self._awake = False
        self._doubts = 0
        """Looks in a row that found records here which another peer should have taken over; 0: there are none."""
        self._nudged_at = 0.0
        self._handed: dict[int, tuple[Peer, int]] = {}
        """Partitions whose records are on their way to their coordinator, with their digest."""
        self._handing: dict[int, dict[Peer, None]] = {}
        """Peers that have handed partitions over to this peer, and have no answer yet."""
        self._yielded: dict[int, tuple[Peer, float]] = {}
        """Partitions that this peer is the nearest to, with the peer that acts for it, as this peer was silent; and
        until when it is left to do so."""
        self._back: set[int] = set()
        """Partitions that another peer has acted in, and that this peer is about to take back."""
        self._unconfirmed: dict[tuple[Peer, int], StateRequest] = {}
        """Requests whose answer has not been confirmed, by the peer that asked and its ident."""
        self._departures = Departures(state)

    def wake(self) -> None:
        """Somebody needs the partitions of this peer, or has copies for it: it takes its part from now on. A ring that
        nobody uses has nothing to hand over."""
        if not self._awake:
            self._awake = True
            self.review()

    def __len__(self) -> int:
        """The number of partitions that are being taken over."""
        return len(self._of)

    def gathers(self, partition: int) -> bool:
        return partition in self._of

    def review(self) -> None:
        """The ring has changed: take over, step down, and let the right shadows follow."""
        if self._departures.follow(self._neighbourhood.departures):
            # A peer that has the records of this one may be gone with all that it has granted since.
            self._store.forget_given()
        if not self._awake:
            return
        store = self._store
        followed = [p for p in NUMBERS if store.whole[p] == WHOLE and not store.acting[p]]
        for partition in followed:
            if not self._neighbourhood.belongs(partition):
                store.whole[partition] = PARTIAL  # its coordinator sends no changes here any more
        mine = self._mine() if self._state.overlay.active else set()
        over = [partition for partition in ones_of(store.acting) if partition not in mine]
        if over:
            self._step_down(over)
            self._give_back([partition for partition in over if store.epoch(partition).actor == self._state.me.id])
        left = [partition for partition in self._of if partition not in mine]
        self._give_back([partition for partition in left if self._of[partition].silent is not None])
        for partition in left:
            self._leave_gathering(partition)
        self._gather([partition for partition in mine if not store.acting[partition]])
        self._copying.review()
        known = self._neighbourhood.knows
        handing = {p: {peer: None for peer in peers if known(peer)} for p, peers in self._handing.items()}
        self._handing = {partition: peers for partition, peers in handing.items() if peers}
        self._answer_handovers()
        self._doubts = 0
        self._handed = {}
        self._hand_over()

    def _mine(self) -> set[int]:
        """The partitions that this peer should coordinate."""
        mine = set(self._neighbourhood.mine())
        if self._yielded:
            now, knows, silent = self._state.clock.now, self._neighbourhood.knows, self._neighbourhood.silent
            self._yielded = {
                partition: (peer, until)
                for partition, (peer, until) in self._yielded.items()
                if until > now and knows(peer) and peer.id not in silent and partition in mine
            }
            mine.difference_update(self._yielded)
        return mine

    def _give_back(self, partitions: list[int]) -> None:
        """Let the nearest peer coordinate partitions that this peer has acted in."""
        back: dict[Peer, list[int]] = {}
        for partition in partitions:
            back.setdefault(self._neighbourhood.owners(partition)[0], []).append(partition)
        for peer, theirs in back.items():
            if peer.id != self._state.me.id:
                self._streams.send(peer, TakeOver(runs_of(theirs), back=True))

    def actor(self, partition: int) -> Peer | None:
        """The peer that acts for this one."""
        yielded = self._yielded.get(partition)
        return None if yielded is None else yielded[0]

    def is_back(self, partitions: Collection[int]) -> bool:
        """Whether another peer has acted in some of these partitions, which this peer coordinates again. To be
        called once."""
        back = self._back.intersection(partitions)
        self._back -= back
        return bool(back)

    def _yield(self, partitions: Iterable[int], to: Peer) -> None:
        """This peer was silent, and another acts for it until it gives the partitions back."""
        # A peer that has forgotten to do so does not keep them for ever.
        until = self._state.clock.now + self._state.config.give_up_s
        self._yielded.update((partition, (to, until)) for partition in partitions)
        self._doubt()

    def _doubt(self) -> None:
        """Records have come here that may belong elsewhere: look after a while."""
        if not self._doubts:
            self._doubts, self._nudged_at = 1, self._state.clock.now + self._state.config.look_s

    def copies_begun(self, begun: Iterable[Begun]) -> None:
        """Another peer has copies made here: this peer takes its part."""
        self.wake()
        belongs = self._neighbourhood.belongs
        if not all(belongs(partition) for run in begun for partition in range(run.first, run.last + 1)):
            self._doubt()

    def _step_down(self, partitions: list[int]) -> None:
        # Holders and homes learn of it before the calls that wait are answered with "elsewhere".
        self._succession.stepped_down(partitions)
        self._copying.stop(partitions)

    def deposed(self, partitions: list[int]) -> None:
        """Another peer has a higher epoch of these partitions."""
        self._step_down(partitions)
        neighbourhood, store = self._neighbourhood, self._store
        actors: dict[Peer, list[int]] = {}
        for partition in partitions:
            actor = neighbourhood.find(store.epoch(partition).actor)
            if actor is not None and neighbourhood.owners(partition)[0].id == self._state.me.id:
                actors.setdefault(actor, []).append(partition)
        for actor, theirs in actors.items():
            # It acts, as this peer was silent. Or it has acted in another part of the ring, and says so.
            self._yield(theirs, actor)
            self._streams.send(actor, TakeOver(runs_of(theirs)))
        self._state.after(0.0, self.review)

    def _leave_gathering(self, partition: int) -> None:
        gathering = self._of.pop(partition)
        gathering.partitions.discard(partition)
        if not gathering.partitions:
            self._gatherings.pop(gathering.ident, None)

    def _gather(self, partitions: list[int]) -> None:
        """Ask the owners of partitions for their records, unless the same owners are being asked."""
        if not self._state.overlay.active:
            return
        by_owners: dict[tuple[tuple[Peer, ...], Peer | None], set[int]] = {}
        for partition in partitions:
            owners, silent = self._neighbourhood.owners(partition), self._neighbourhood.silent_first(partition)
            gathering = self._of.get(partition)
            if gathering is not None:
                if gathering.owners == owners and gathering.silent == silent:
                    continue
                self._leave_gathering(partition)
            by_owners.setdefault((owners, silent), set()).add(partition)
        for (owners, silent), together in by_owners.items():
            self._idents += 1
            me, now = self._state.me.id, self._state.clock.now
            gathering = Gathering(self._idents, owners, silent, me, together, now)
            self._gatherings[gathering.ident] = gathering
            for partition in together:
                self._of[partition] = gathering
            request = self._request(gathering)
            for peer in gathering.awaited.values():
                self._streams.send(peer, request)
            if silent is not None:
                # If it comes back, it stops before it answers anybody else.
                self._streams.send(silent, request)
            self._state.after(self._state.config.slow_retry_s, partial(self._wait_for_shadows_alone, gathering))
            self._go_on(gathering)

    def _request(self, gathering: Gathering) -> StateRequest:
        partitions = sorted(gathering.partitions)
        digests = tuple([(p, self._store.digest(p)) for p in partitions if self._store.records(p)])
        return StateRequest(gathering.ident, runs_of(partitions), digests, gathering.silent)

    def _wait_for_shadows_alone(self, gathering: Gathering) -> None:
        """Shadows are waited for while the ring lists them; other owners rarely know more, so for as long as they send
        anything, and a bounded time."""
        if self._gatherings.get(gathering.ident) is not gathering:
            return
        wait_s, now = self._state.config.slow_retry_s, self._state.clock.now
        is_heard = any(self._streams.heard_at(peer) > now - wait_s for peer in gathering.awaited.values())
        if gathering.silent is not None or (is_heard and now < gathering.began_at + MOST_WAITS * wait_s):
            # A silent coordinator may be back, with any of the owners as its shadows: all must have answered.
            self._state.after(self._state.config.slow_retry_s, partial(self._wait_for_shadows_alone, gathering))
        else:
            shadows = {peer.id for peer in gathering.owners[: self._state.config.shadows + 1]}
            gathering.awaited = {peer_id: peer for peer_id, peer in gathering.awaited.items() if peer_id in shadows}
            self._go_on(gathering)

    def state_request(self, sender: Peer, message: StateRequest) -> None:
        """Another peer must coordinate partitions: step down, obey no lower epoch, and send it what it lacks."""
        refused: list[int] = []
        given: list[int] = []
        silent = message.silent is not None and message.silent.id == self._state.me.id
        for partition in partitions_in(message.runs):
            if message.silent is not None and not silent and not self._may_act(partition, sender, message.silent):
                refused.append(partition)
                continue
            if self._store.acting[partition] or partition in self._of:
                if self._neighbourhood.silent_first(partition) == sender:
                    refused.append(partition)  # it is back, and gets them when it is steady
                    continue
                key = key_of_partition(partition)
                if not silent and nearness(key, self._state.me.id) < nearness(key, sender.id):
                    refused.append(partition)  # its leaf set is not up to date; it will be
                    continue
                if partition in self._of:
                    self._leave_gathering(partition)
            given.append(partition)
        former = {self._store.epoch(partition) for partition in given}
        holders = tuple(self._succession.holders_of(given, former))
        self._succession.inherited(holders, sender.id)
        over = [partition for partition in given if self._store.acting[partition]]
        if over:
            self._step_down(over)
        # From now on the old coordinator lacks the confirmations of this shadow, and can grant nothing that the next
        # one misses.
        raised = {epoch: Epoch(next_epoch(epoch.number), sender.id) for epoch in former}
        store = self._store
        states = {partition: store.give(partition, raised[store.epoch(partition)]) for partition in given}
        if silent:
            self._yield(given, sender)
        self._send_state(sender, message, states, holders, runs_of(refused))

    def _may_act(self, partition: int, peer: Peer, silent: Peer) -> bool:
        """Whether a peer may act for the silent one, as far as this peer sees the ring."""
        owners = self._neighbourhood.owners(partition)
        return owners[0].id in (silent.id, peer.id)

    def _send_state(
        self, sender: Peer, message: StateRequest, given: dict[int, int], holders: tuple[Peer, ...], refused: Runs
    ) -> None:
        *pieces, last = states_of(self._store, message, given, holders, refused, self._records.told)
        for piece in pieces:
            self._streams.send(sender, piece)
        request = sender, message.ident
        self._unconfirmed[request] = message
        self._streams.send(sender, last, partial(self._state_confirmed, request))

    def _state_confirmed(self, request: tuple[Peer, int]) -> None:
        self._unconfirmed.pop(request, None)

    def state(self, sender: Peer, message: State) -> None:
        """Records of another owner."""
        gathering = self._gatherings.get(message.ident)
        # Records are merged in any case: they may be the last copies.
        for partition, record in read_rows(message.homes, message.rows, self._records.accepts):
            self._copying.merge(partition, record)
        if gathering is None or sender.id not in gathering.awaited:
            self._doubt()
            return
        gathering.learn(message)
        if message.more:
            return
        for partition in partitions_in(message.refused):
            if self._of.get(partition) is gathering:
                self._leave_gathering(partition)
                key = key_of_partition(partition)
                if gathering.silent is None and nearness(key, self._state.me.id) < nearness(key, sender.id):
                    # It acts for this peer. Nobody else who is farther away refuses.
                    self._yield((partition,), sender)
        if message.refused:
            # One of both has an old view of the ring: it is looked at again when that may have changed.
            self._state.after(self._state.config.look_s, self.review)
        del gathering.awaited[sender.id]
        self._state.answered(self._state.clock.now - gathering.began_at)
        self._go_on(gathering)

    def _go_on(self, gathering: Gathering) -> None:
        """Begin an epoch when all awaited peers have answered or are gone, in turns if there are many records."""
        if gathering.awaited or self._gatherings.get(gathering.ident) is not gathering:
            return
        partitions = self._next_turn(gathering)
        gathering.partitions.difference_update(partitions)
        if gathering.partitions:
            self._state.after(TURN_S, partial(self._go_on, gathering))
        else:
            del self._gatherings[gathering.ident]
        self._begin(gathering, partitions)

    def _next_turn(self, gathering: Gathering) -> list[int]:
        """Some partitions with about RECORDS_A_TURN records."""
        turn: list[int] = []
        records = 0
        for partition in sorted(gathering.partitions):
            records += len(self._store.records(partition))
            if turn and records > RECORDS_A_TURN:
                break
            turn.append(partition)
        return turn

    def _begin(self, gathering: Gathering, partitions: list[int]) -> None:
        state, store = self._state, self._store
        # The holders that this peer knows as a shadow of the predecessor, by the epochs before its own.
        known = self._succession.holders_of(partitions, {store.epoch(partition) for partition in partitions})
        holders = gathering.holders
        join_peers(holders, known)
        lacking = [p for p in partitions if store.whole[p] != WHOLE and p not in gathering.whole]
        unused = {p for p in lacking if store.whole[p] == UNUSED and p not in gathering.used}
        by_number: dict[int, Epoch] = {}
        for partition in partitions:
            del self._of[partition]
            theirs, own = gathering.epochs.get(partition, 0), store.epoch(partition).number
            number = next_epoch(theirs if is_higher(theirs, own) else own)
            # One object for all partitions of one number: 4,096 of them would take 400 kB.
            store.epochs[partition] = by_number.setdefault(number, Epoch(number, state.me.id))
            store.whole[partition] = WHOLE
        self._of = slimmed(self._of)
        state.counters.reigns += len(partitions)
        self._succession.succeeds(partitions, holders.values())
        self._doubt_copies(lacking, unused)
        self._copying.begin(partitions)
        self._answer_handovers()
        self._succession.took_over(partitions)

    def _doubt_copies(self, partitions: list[int], unused: set[int]) -> None:
        """No owner has had all records of these partitions, and nobody has coordinated those in `unused`."""
        now, departures, silent = self._state.clock.now, self._departures, len(self._neighbourhood.silent)
        lacking, until = departures.took_copies(silent), departures.trusted_until(silent)
        died = [partition for partition in partitions if now < until and partition in unused]
        # The last coordinator of the others may live.
        others = [partition for partition in partitions if partition not in unused]
        for doubted, void_at, lacks in ((died, until, lacking), (others, now + self._state.config.void_s, True)):
            if doubted:
                self._succession.doubts(doubted, void_at, lacks)
            for partition in doubted:
                self._store.whole[partition] = PARTIAL
        if not died and self._state.overlay.sees_all and departures.began_lately:
            self._succession.doubts(list(unused), now, True)

    def lost(self, peer: Peer) -> None:
        """The stream to a peer was lost: it may have forgotten the request."""
        for partition in [partition for partition, (first, _) in self._handed.items() if first == peer]:
            del self._handed[partition]
        asked = any(gathering.awaited.get(peer.id) == peer for gathering in self._gatherings.values())
        if asked or any(sender == peer for sender, _ in self._unconfirmed):
            # Not at once: a peer that has started again is lost with each message until the ring knows of its start.
            lost = [self._unconfirmed.pop(request) for request in list(self._unconfirmed) if request[0] == peer]
            until = self._state.clock.now + self._state.config.give_up_s
            self._state.after(self._state.config.retry_s, partial(self._begin_again, peer, lost, until))

    def _begin_again(self, peer: Peer, lost: list[StateRequest], until: float) -> None:
        """Repeat the requests to a peer, and the answers to its requests: it does not know that these are lost."""
        self._ask_again(peer)
        if self._neighbourhood.knows(peer):
            for request in lost:
                self.state_request(peer, request)
        elif lost and self._state.clock.now < until:
            # It may see this peer in the ring, and wait, before this peer sees it again.
            self._state.after(self._state.config.slow_retry_s, partial(self._begin_again, peer, lost, until))

    def _ask_again(self, peer: Peer) -> None:
        for gathering in list(self._gatherings.values()):
            if gathering.awaited.get(peer.id) == peer:
                self._streams.send(peer, self._request(gathering))

    def _hand_over(self) -> None:
        """Send the records of partitions that this peer is no owner of any more to their coordinators, and remind the
        coordinators of the others."""
        strays: dict[Peer, list[int]] = {}
        waiting: dict[Peer, list[int]] = {}
        waits = False
        store, neighbourhood = self._store, self._neighbourhood
        for partition in store.partitions():
            first = neighbourhood.owners(partition)[0]
            if first.id == self._state.me.id or store.acting[partition]:
                continue
            if not neighbourhood.belongs(partition):
                waits = True
                known = self._handed.get(partition)
                # A stream repeats them to a silent peer by itself.
                if known is None or known != (first, store.digest(partition)):
                    strays.setdefault(first, []).append(partition)
            elif store.epoch(partition).actor != first.id:
                waiting.setdefault(first, []).append(partition)
        for partition, (peer, _) in self._yielded.items():
            # It answers if it does not act any more.
            waiting.setdefault(peer, []).append(partition)
        for peer, partitions in strays.items():
            self._send_strays(peer, partitions)
        for peer, partitions in waiting.items():
            self._streams.send(peer, TakeOver(runs_of(partitions)))
        config = self._state.config
        self._doubts = self._doubts + 1 if waits or waiting else 0
        # Without doubts as well: a coordinator with an old view of the ring may send copies to a peer that is no owner
        # any more, and no change of the ring follows.
        wait_s = config.look_s * (1 << min(self._doubts, MOST_DOUBLINGS)) if self._doubts else config.idle_look_s
        self._nudged_at = self._state.clock.now + min(config.idle_look_s, wait_s)

    def tick(self) -> None:
        """Once a second: remind again."""
        if self._yielded and any(until <= self._state.clock.now for _, until in self._yielded.values()):
            self.review()
        if self._awake and self._nudged_at <= self._state.clock.now:
            if self._doubts > HANDED_TWICE:
                # A coordinator that has them and does not answer has started again, or has left and come back.
                self._handed = {}
            self._hand_over()

    def _send_strays(self, peer: Peer, partitions: list[int]) -> None:
        writer, together = RowWriter(), []
        for partition in partitions:
            for record in self._store.records(partition).values():
                writer.add(partition, self._records.told(record))
            together.append(partition)
            if writer.size >= PIECE_BYTES:
                self._send_handover(peer, writer, together)
                writer, together = RowWriter(), []
        if together:
            self._send_handover(peer, writer, together)

    def _send_handover(self, peer: Peer, writer: RowWriter, partitions: list[int]) -> None:
        for partition in partitions:
            self._handed[partition] = peer, self._store.digest(partition)
        self._streams.send(peer, Handover(runs_of(partitions), writer.homes, tuple(writer.rows)))

    def handed_over(self, sender: Peer, message: HandedOver) -> None:
        """A coordinator and its shadows have the records of these partitions."""
        for partition in partitions_in(message.runs):
            handed = self._handed.get(partition)
            # What has come since is handed over with the next reminder.
            if handed == (sender, self._store.digest(partition)) and not self._neighbourhood.belongs(partition):
                del self._handed[partition]
                self._state.counters.handed_over += 1
                self._store.drop(partition)

    def handover(self, sender: Peer, message: Handover) -> None:
        """Records of a peer that will forget them."""
        self.wake()
        for partition, record in read_rows(message.homes, message.rows, self._records.accepts):
            self._copying.merge(partition, record)
        self._doubt()
        for partition in partitions_in(message.runs):
            self._handing.setdefault(partition, {})[sender] = None
        self._answer_handovers()

    def _answer_handovers(self) -> None:
        """Answer who has handed partitions over that this peer coordinates. Others will ask the right peer."""
        for partition in list(self._handing):
            if not self._store.acting[partition]:
                # It may be a newcomer that is not active, or another peer is nearer for a moment.
                continue
            # A peer listed as a shadow here must remain one until both see the same ring.
            answered = [peer for peer in self._handing[partition] if not self._copying.is_followed_by(partition, peer)]
            for peer in answered:
                del self._handing[partition][peer]
            if not self._handing[partition]:
                del self._handing[partition]
            for peer in answered:
                self._copying.wait(partition, partial(self._say_handed_over, peer, partition), _nothing)

    def _say_handed_over(self, peer: Peer, partition: int) -> None:
        if self._copying.is_followed_by(partition, peer):
            # It has become a shadow again while the others were waited for.
            self._handing.setdefault(partition, {})[peer] = None
        else:
            self._streams.send(peer, HandedOver(((partition, partition),)))

    def take_over(self, sender: Peer, message: TakeOver) -> None:
        """A shadow of these partitions misses its coordinator, which this peer should be; or a peer that has acted for
        this one does so no more."""
        self.wake()
        wanted: list[int] = []
        deposed: list[int] = []
        back: list[int] = []
        for partition in partitions_in(message.runs):
            first = self._neighbourhood.first(partition)
            actor = self.actor(partition)
            if actor is not None and first:
                if actor.id != sender.id:
                    continue
                del self._yielded[partition]
                self._back.add(partition)
            if first:
                if not self._store.acting[partition]:
                    wanted.append(partition)
                elif message.back:
                    # This peer was succeeded, and has not heard of it before.
                    deposed.append(partition)
            elif not self._store.acting[partition] and partition not in self._of:
                # The nearest peer may have yielded to this one while the ring was split, and this one to another.
                self._yielded.pop(partition, None)
                back.append(partition)
        if back and not message.back:
            # It is back, and believes that this peer acts for it.
            self._streams.send(sender, TakeOver(runs_of(back), back=True))
        if deposed:
            self._step_down(deposed)
        self._gather(wanted + deposed)


def _nothing() -> None:
    """The peer with the records will send them again."""
