"""The directory: the coordinator of each partition, as far as this peer knows.

The leaf set decides where it leaves no doubt. Other partitions are asked for: a `Where` goes to the key of the
partition, and the owner answers with all partitions of its own. Knows neither filters nor routes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from math import inf
from typing import Final, Protocol

from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.ids import SPACE, Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Here, Silent, Where
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import Overlay
from ringmq.peer.replication.space import NUMBERS, PARTITIONS, Runs, key_of_partition, partition_of_key, partitions_in

FIRST_ASKED: Final = 4
MOST_ASKED: Final = 64
"""Bounds of the number of questions without an answer. An answer covers a whole range and makes others needless, so
it begins low, and grows with each answer that brings something new, as the window of TCP's slow start."""
GO_AROUND: Final = 4
"""Peers that are asked for an unanswered question, at most twice as many."""
QUARTER: Final = PARTITIONS // 4
MOST_SPEAKERS: Final = 4096
MOST_DOUBTED: Final = 1024
"""Bounds of what is remembered of other peers. Beyond, all is forgotten, and costs a message more when it is needed."""

PartitionRanges = list[tuple[int, int]]


class DirectoryContext(Protocol):
    """The part of a MessagingContext that the directory uses."""

    overlay: Overlay
    clock: Clock
    config: PubSubConfig

    @property
    def me(self) -> Peer: ...
    @property
    def ask_s(self) -> float: ...
    def route(self, key: Id, message: Where) -> None: ...
    def send(self, peer: Peer, message: Here | Silent | Where) -> None: ...
    def after(self, delay_s: float, then: Callable[[], None]) -> None: ...


class Owners(Protocol):
    """The part of a coordinator that the directory uses."""

    def owned_runs(self) -> Runs:
        """The partitions that this peer is nearest to."""

    def neighbours(self, peer: Peer) -> tuple[Peer, ...]:
        """The peers that act for a peer when it is silent, as far as this one knows."""

    def missed(self, peer: Peer, partition: int, origin: Peer) -> None:
        """A coordinator that this peer might have to act for leaves another without an answer."""

    def bypassed(self, message: Where) -> None:
        """A question for another peer has come here."""


class Areas:
    """The partitions that each member of the ring is nearest to, by a leaf set that has all members.

    There a partition without an owner belongs to a suspect, or to a peer that has just come, and the answer of that
    peer names all that it has: one question for each area is enough. On a busy machine all peers were suspects in turn,
    each had questions for dozens of partitions on their way to it, and nothing else was done.
    """

    __slots__ = ("_ends", "_leaves")

    def __init__(self) -> None:
        self._leaves: Sequence[Peer] | None = None
        self._ends: list[int] = []
        """The last keys of the areas; none if there may be peers that this one does not know."""

    def follow(self, overlay: Overlay) -> None:
        leaves = overlay.leaves if overlay.sees_all else None
        if leaves is not self._leaves:
            self._leaves = leaves
            ids = sorted(peer.id for peer in (overlay.me, *leaves)) if leaves is not None else []
            # The gap between the last and the first is the one around zero.
            around = [*ids, ids[0] + SPACE] if ids else []
            self._ends = sorted((first + last) // 2 % SPACE for first, last in pairwise(around))

    def of(self, partition: int) -> int | None:
        """A number of the area of a partition; None: it is not known."""
        return bisect_left(self._ends, key_of_partition(partition)) % len(self._ends) if self._ends else None


class Directory:
    """One per engine."""

    __slots__ = (
        "_acting", "_areas", "_asked", "_disclaimed", "_divided_for", "_doubted", "_doubtful", "_everyone", "_firsts",
        "_heard",
        "_known", "_most", "_named", "_next", "_owners", "_repeats", "_state", "_stretches", "_wait_s", "_wanted",
    )  # fmt: skip

    def __init__(self, state: DirectoryContext, owners: Owners, known: Callable[[], None]) -> None:
        """`known` is called when a partition has another coordinator here than before, or its first."""
        self._state = state
        self._owners = owners
        self._known = known
        self._acting: dict[int, tuple[Peer, Peer]] = {}
        """Peers that coordinate partitions in place of the nearest peer, which is or was silent, with that peer."""
        self._next: dict[Peer, tuple[Peer, ...]] = {}
        """The neighbours of coordinators that have spoken."""
        self._doubted: dict[tuple[Peer, Peer, Peer], float] = {}
        """When a peer was last notified that a coordinator is silent, for each peer that waits."""
        self._heard: list[Peer | None] = [None] * PARTITIONS
        """Coordinators by their own word, for partitions that the leaf set leaves in doubt: in a large ring most, in a
        small one those in its widest gap."""
        self._named: dict[Peer, set[int]] = {}
        """The partitions of each peer in `_heard`."""
        self._everyone: tuple[dict[Peer, PartitionRanges], PartitionRanges] | None = None
        """The last answer of `everyone` while nothing has changed: to make it takes ten times as long."""
        self._stretches: list[tuple[int, int, Peer | None]] = [(0, PARTITIONS - 1, None)]
        """Partitions with one owner by the leaf set, in order; None: it leaves a doubt. A stretch with an owner is in
        one quarter of the space."""
        self._firsts = [0]
        self._divided_for: tuple[Peer, ...] | None = None
        """The leaf set from which the stretches were found."""
        self._doubtful: list[int] = []
        """The points of `_points` that it leaves in doubt."""
        self._disclaimed: dict[Peer, tuple[float, set[int]]] = {}
        """Partitions that a peer said lately that it does not coordinate, and until when it is not asked for them: it
        may own them and not have them yet. It would be named and be wrong in turns, without a pause."""
        self._wanted: dict[int, None] = {}
        """Partitions that somebody here needs, and that wait until others are answered."""
        self._asked: dict[int, int | None] = {}
        """Partitions that were asked for, and the area that each is in."""
        self._areas = Areas()
        self._most = FIRST_ASKED
        self._wait_s = 0.0
        self._repeats = 0
        """Timers started so far: the last one counts."""

    def coordinator(self, partition: int) -> Peer | None:
        """The coordinator of a partition. None: `known` is called as soon as there is an answer."""
        overlay = self._state.overlay
        if self._acting:
            actor = self._actor(partition)
            if actor is not None:
                return actor
        owner = overlay.owner(key_of_partition(partition))
        if owner is None:
            owner = self._heard[partition]
            if owner is None or overlay.doubts(owner):
                self._want(partition)
                return None
        return owner

    def _actor(self, partition: int) -> Peer | None:
        """The peer that acts in place of the nearest, as long as that one is there and this one is not in doubt."""
        acting = self._acting.get(partition)
        if acting is None:
            return None
        peer, instead_of = acting
        overlay = self._state.overlay
        owner = overlay.owner(key_of_partition(partition))
        if overlay.doubts(peer) or (owner is not None and owner != instead_of):
            del self._acting[partition]
            self._everyone = None
            return None
        return peer

    def acting(self, peer: Peer, partitions: Iterable[int]) -> None:
        """A peer coordinates these partitions, by its own word or by that of the nearest peer."""
        overlay = self._state.overlay
        changed = False
        # Where the leaf set knows the nearest, it knows the next nearest too. A stranger would be asked for good.
        # And a suspect would be forgotten at the next look: who asked itself, and named one, asked itself for ever.
        is_known = peer in (overlay.me, *overlay.leaves) and not overlay.doubts(peer)
        for partition in partitions:
            owner = overlay.owner(key_of_partition(partition))
            if owner is None:
                changed |= self._name(peer, partition)
                self._asked.pop(partition, None)
                self._wanted.pop(partition, None)
                if partition in self._acting:
                    del self._acting[partition]
            elif owner == peer:
                changed |= self._acting.pop(partition, None) is not None
            elif is_known and self._acting.get(partition) != (peer, owner):
                changed = True
                self._acting[partition] = peer, owner
        if changed:
            self._everyone = None
            self._known()

    def doubt(self, partition: int) -> None:
        """The coordinator of a partition has left a request unanswered for `doubt_s`: notify the peer that would act
        for it. That peer finds out whether it answers at all."""
        silent = self.coordinator(partition)
        state = self._state
        if silent is None or silent.id == state.me.id:
            return
        key = key_of_partition(partition)
        for peer in dict.fromkeys((self._next_to(silent, key), *self._next.get(silent, ()))):
            self._notify(peer, silent, partition, state.me)

    def _next_to(self, silent: Peer, key: Id) -> Peer:
        """The nearest peer to a key that this one knows, without the silent one."""
        overlay = self._state.overlay
        others = [peer for peer in (overlay.me, *overlay.leaves) if peer != silent]
        return min(others, key=lambda peer: nearness(key, peer.id))

    def _notify(self, peer: Peer, silent: Peer, partition: int, origin: Peer) -> None:
        state, now = self._state, self._state.clock.now
        if peer.id == state.me.id:
            # It may be a shadow of the silent one, or a neighbour that knows more.
            self._owners.missed(silent, partition, origin)
            return
        # Several roles miss the same answers.
        if self._doubted.get((silent, peer, origin), -inf) + state.config.doubt_s / 2 <= now:
            if len(self._doubted) >= MOST_DOUBTED:
                self._doubted.clear()
            self._doubted[silent, peer, origin] = now
            state.send(peer, Silent(silent, partition, origin))

    def review(self) -> None:
        """Bring `peek` up to date: two look-ups for each owner, instead of one for each partition."""
        overlay = self._state.overlay
        doubted = [peer for peer in self._named if overlay.doubts(peer)]
        for suspect in doubted:
            # Its successor must be asked for. If the suspect lives, it answers itself.
            self._unname(suspect, self._named[suspect])
        owner = overlay.owner
        for first, last, peer in self._stretches:
            # A peer of a ring owns half of it at most, or all. So if it owns both ends of a part of a quarter, it owns
            # everything between, and these look-ups miss no change.
            if owner(key_of_partition(first)) != peer or owner(key_of_partition(last)) != peer:
                self._divide()
                return
        if tuple(overlay.leaves) != self._divided_for:
            self._divide()
            return
        # Both ends of a stretch in doubt may stay in the widest gap of the ring while a suspect between them answers.
        for partition in self._doubtful:
            if owner(key_of_partition(partition)) is not None:
                self._divide()
                return

    def _stretch(self, partition: int) -> tuple[int, int, Peer | None]:
        return self._stretches[bisect_right(self._firsts, partition) - 1]

    def peek(self, partition: int) -> Peer | None:
        """The coordinator of a partition at the last `review`, without asking for it."""
        if self._acting:
            actor = self._actor(partition)
            if actor is not None:
                return actor
        return self._stretch(partition)[2] or self._heard[partition]

    def by_partition(self) -> list[Peer | None]:
        """The answer of `peek` for each partition."""
        found = self._heard.copy()
        for first, last, owner in self._stretches:
            if owner is not None:
                found[first : last + 1] = [owner] * (last + 1 - first)
        for partition in list(self._acting):
            found[partition] = self._actor(partition) or found[partition]
        return found

    def few(self, most: int) -> tuple[Peer, ...]:
        """All coordinators if they are known and at most `most`, otherwise none."""
        self.review()
        found: dict[Peer | None, None] = {}
        if self._acting:
            found = dict.fromkeys(self.by_partition())
            known = [peer for peer in found if peer is not None]
            return tuple(known) if len(known) == len(found) <= most else ()
        for first, last, owner in self._stretches:
            found.update(dict.fromkeys((owner,) if owner is not None else self._heard[first : last + 1]))
            if None in found or len(found) > most:
                return ()
        return tuple([peer for peer in found if peer is not None])

    def everyone(self) -> tuple[dict[Peer, PartitionRanges], PartitionRanges]:
        """The partitions of each coordinator, and the unknown partitions, which are asked for from now on. For reading
        only."""
        self.review()
        if self._everyone is None:
            self._everyone = self._collect()
        unknown = self._everyone[1]
        if unknown:
            self._explore(unknown)
        return self._everyone

    def _collect(self) -> tuple[dict[Peer, PartitionRanges], PartitionRanges]:
        ranges: dict[Peer, PartitionRanges] = {}
        unknown: PartitionRanges = []
        for first, last, peer in self._runs():
            _extend(unknown if peer is None else ranges.setdefault(peer, []), first, last)
        return ranges, unknown

    def _runs(self) -> Iterator[tuple[int, int, Peer | None]]:
        """The answers of `peek` for ranges of partitions, in order."""
        if self._acting:
            yield from _equal(0, self.by_partition())
            return
        for first, last, owner in self._stretches:
            if owner is None:
                yield from _equal(first, self._heard[first : last + 1])
            else:
                yield first, last, owner

    def verify(self, partition: int) -> None:
        """The coordinator is silent: ask who it is now, unless the leaf set knows."""
        # Nobody notifies this peer of deaths beyond its leaf set.
        if self._state.overlay.owner(key_of_partition(partition)) is None:
            self._want(partition)

    def wrong(self, peer: Peer, partitions: Iterable[int]) -> None:
        """This peer does not coordinate these partitions, by its own word, or is lost."""
        if self._acting:
            partitions = list(partitions)
            for partition in partitions:
                if partition in self._acting and self._acting[partition][0] == peer:
                    del self._acting[partition]
                    self._everyone = None
        theirs = self._named.get(peer)
        if theirs is not None:
            wrong = theirs.intersection(partitions)
            if wrong:
                self._disclaim(peer, wrong)
            self._unname(peer, wrong)

    def _disclaim(self, peer: Peer, wrong: set[int]) -> None:
        now = self._state.clock.now
        until, before = self._disclaimed.get(peer, (now, set[int]()))
        if len(self._disclaimed) >= MOST_SPEAKERS:
            self._disclaimed.clear()
        self._disclaimed[peer] = now + self._state.ask_s, wrong | before if until > now else wrong

    def _still_disclaimed(self, peer: Peer) -> set[int]:
        """Partitions that this peer has disclaimed too lately to be believed that it coordinates them."""
        until, wrong = self._disclaimed.get(peer, (-inf, set[int]()))
        if until > self._state.clock.now:
            return wrong
        self._disclaimed.pop(peer, None)
        return set()

    def _unname(self, peer: Peer, partitions: Iterable[int]) -> None:
        self._everyone = None
        theirs = self._named[peer]
        for partition in list(partitions):
            theirs.discard(partition)
            self._heard[partition] = None
        if not theirs:
            del self._named[peer]

    def _name(self, peer: Peer, partition: int) -> bool:
        """This peer coordinates a partition. Returns whether that is news."""
        before = self._heard[partition]
        if before == peer:
            return False
        if before is not None:
            self._unname(before, (partition,))
        self._heard[partition] = peer
        self._named.setdefault(peer, set()).add(partition)
        return True

    def _go_around(self, partition: int) -> None:
        """No answer yet: the first hop may be the coordinator itself, and silent."""
        if partition not in self._asked:
            return
        state = self._state
        leaves = state.overlay.leaves
        # Near and far ones have different next hops.
        for peer in dict.fromkeys(leaves[index] for index in range(0, len(leaves), max(1, len(leaves) // GO_AROUND))):
            state.send(peer, Where(partition, state.me, 1))

    def where(self, sender: Peer, message: Where) -> None:
        if message.again == 1:
            self.passed(message)
            if self._state.overlay.owner(key_of_partition(message.partition)) != self._state.me:
                self._state.route(key_of_partition(message.partition), Where(message.partition, message.origin, 2))
                return
        runs = self._owners.owned_runs()
        if runs:
            self._state.send(message.origin, Here(runs, self._owners.neighbours(self._state.me)))
        self._owners.bypassed(message)

    def passed(self, message: Where) -> None:
        """A question passes through here: answer it for the coordinator too, which may be silent."""
        state, key = self._state, key_of_partition(message.partition)
        owner = state.overlay.owner(key)
        if owner is None or owner == state.me:
            return
        here = Here(((message.partition, message.partition),), self._owners.neighbours(owner), owner)
        state.send(message.origin, here)
        if message.again:
            self._notify(self._next_to(owner, key), owner, message.partition, message.origin)

    def _introduced(self, peer: Peer, message: Here) -> None:
        """Another peer says who the coordinator is. By its own word it may be another by now."""
        self._next.setdefault(peer, message.next)
        changed = False
        disclaimed = self._still_disclaimed(peer)
        for partition in partitions_in(message.runs):
            if self._heard[partition] is None and partition not in disclaimed and not self._state.overlay.doubts(peer):
                changed |= self._name(peer, partition)
        if changed:
            self._everyone = None
            self._known()

    def here(self, sender: Peer, message: Here) -> None:
        if message.peer is not None:
            self._introduced(message.peer, message)
            return
        heard = self._heard
        # The disclaimed ones stay asked for, and so are asked for again after a wait.
        theirs = set(partitions_in(message.runs)) - self._still_disclaimed(sender)
        if len(self._next) >= MOST_SPEAKERS:
            self._next.clear()
        self._next[sender] = message.next
        changed = False
        # The answer names all partitions of the sender, so the others are not its own any more, nor those of its
        # earlier start.
        for peer in [peer for peer in self._named if peer.id == sender.id]:
            self._unname(peer, self._named[peer] - theirs)
        self._everyone = None
        for partition in theirs:
            before = heard[partition]
            if before is not sender and before != sender:
                changed = True
                if before is not None:
                    self._unname(before, (partition,))
                heard[partition] = sender
            self._asked.pop(partition, None)
            self._wanted.pop(partition, None)
        if theirs:
            self._named.setdefault(sender, set()).update(theirs)
        if changed:
            self._most = min(self._most + 1, MOST_ASKED)
        self._ask_further()
        if changed:
            self._known()

    def _divide(self) -> None:
        """Find the stretches by bisection between points that show every owner."""
        owner = self._state.overlay.owner
        divided_at = self._points()
        stretches: list[tuple[int, int, Peer | None]] = []
        owners = {partition: owner(key_of_partition(partition)) for partition in divided_at}
        for start, end in pairwise(divided_at):
            parts = [(start, end)]
            while parts:
                first, last = parts.pop()
                left = owners[first]
                if left == owners[last] or last == first + 1:
                    # The last partition begins the next part.
                    _lengthen(stretches, first, last - 1, left)
                    continue
                middle = (first + last) // 2
                owners[middle] = owner(key_of_partition(middle))
                parts.append((middle, last))
                parts.append((first, middle))
        _lengthen(stretches, PARTITIONS - 1, PARTITIONS - 1, owners[PARTITIONS - 1])
        self._stretches = stretches
        self._everyone = None
        self._firsts = [first for first, _, _ in stretches]
        self._divided_for = tuple(self._state.overlay.leaves)
        self._doubtful = [partition for partition in divided_at if owners[partition] is None]

    def _points(self) -> list[int]:
        """Partitions between which the owners follow from both ends: equal ends have nothing else between them.

        A peer of a ring owns half of it at most, or all, so an owner of both ends of a part of a quarter owns all of
        it. Certain partitions between two in doubt belong to a peer whose id is certain as well, and lies there.
        """
        overlay = self._state.overlay
        found = {end for start in range(0, PARTITIONS, QUARTER) for end in (start, start + QUARTER - 1)}
        for peer in (overlay.me, *overlay.leaves):
            partition = partition_of_key(peer.id)
            found.update(NUMBERS[max(0, partition - 1) : partition + 2])
        return sorted(found)

    def _explore(self, unknown: PartitionRanges) -> None:
        """Ask for partitions spread over the unknown ranges: one after the other would take a round trip for each
        coordinator of a large ring."""
        step = max(1, sum(last - first + 1 for first, last in unknown) // MOST_ASKED)
        for first, last in unknown:
            for partition in range(first, last + 1, step):
                self._want(partition)

    def _want(self, partition: int) -> None:
        if partition in self._asked or partition in self._wanted:
            return
        self._wanted[partition] = None
        if self._ask((partition,)):
            # A fresh question must not wait as long as the old ones do by now.
            self._wait_s = self._state.ask_s
            self._repeat_later()

    def _ask_further(self) -> bool:
        """Ask for wanted partitions, within the bounds. Returns whether it did."""
        return bool(self._wanted) and self._ask(list(self._wanted))

    def _ask(self, wanted: Iterable[int]) -> bool:
        state = self._state
        self._areas.follow(state.overlay)
        busy = set(self._asked.values())
        asked = False
        for partition in wanted:
            if len(self._asked) >= self._most:
                break
            area = self._areas.of(partition)
            if area is not None and area in busy:
                continue
            busy.add(area)
            del self._wanted[partition]
            self._asked[partition] = area
            state.route(key_of_partition(partition), Where(partition, state.me))
            # Not sooner than answers come lately: on a busy machine all are late, and more questions make them later.
            state.after(max(state.config.doubt_s, state.ask_s), partial(self._go_around, partition))
            asked = True
        return asked

    def _repeat_later(self) -> None:
        self._repeats += 1
        repeat = self._repeats
        self._state.after(self._wait_s, lambda: self._repeat(repeat))

    def _repeat(self, repeat: int) -> None:
        """A route may have led to a peer that has just died, so each question is repeated until it is answered."""
        if repeat != self._repeats:
            return
        overlay = self._state.overlay
        # Behind the others: the owners of all these may be dead for a while, and must not hold up the rest.
        self._wanted.update(dict.fromkeys(self._asked))
        self._asked.clear()
        settled = [partition for partition in self._wanted if overlay.owner(key_of_partition(partition)) is not None]
        for partition in settled:
            del self._wanted[partition]
        if self._ask_further():
            self._wait_s = min(2 * self._wait_s, self._state.config.slow_retry_s)
            self._repeat_later()
        if settled:
            self._known()


def _lengthen(stretches: list[tuple[int, int, Peer | None]], first: int, last: int, owner: Peer | None) -> None:
    """Append a stretch, or lengthen the last one, which stays in one quarter of the space if it has an owner."""
    if stretches and stretches[-1][2] == owner and (owner is None or first % QUARTER):
        first = stretches.pop()[0]
    stretches.append((first, last, owner))


def _extend(ranges: PartitionRanges, first: int, last: int) -> None:
    """Append a range behind the others, or lengthen the last."""
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1] = ranges[-1][0], last
    else:
        ranges.append((first, last))


def _equal(first: int, peers: list[Peer | None]) -> Iterator[tuple[int, int, Peer | None]]:
    """Ranges of partitions, from the first on, with equal peers."""
    for peer, group in groupby(peers):
        count = len(list(group))
        yield first, first + count - 1, peer
        first += count
