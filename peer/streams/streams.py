"""Reliable, ordered, batched delivery of items between two peers. All retries between peers live here.

A pair of peers has one stream in each direction, and each stream three lanes. The sender numbers the batches of a lane;
the receiver processes them in order and acknowledges them after the commit. A stream ends only by `close`, when a
bound is reached, when the receiver has forgotten it or is silent for `give_up_s`, or when the other peer starts again;
the next stream has a higher number. The items are opaque here.

An engine calls, at the end of an iteration and after the commit: `acknowledge`, `flush`, then the flush of its context.
Messages of this peer to itself that come back through the local queue go to `received` as all others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.streams.incoming_stream import IncomingLane, IncomingStream
from ringmq.peer.streams.outgoing_stream import (
    BATCH_BYTES,
    BATCH_ITEMS,
    LATE_S,
    MAX_OWED,
    NOTHING,
    Done,
    OutgoingLane,
    OutgoingStream,
    QueuedBatch,
)
from ringmq.peer.streams.stream_context import StreamContext, StreamCounters
from ringmq.peer.streams.stream_messages import Batch, BatchAck, Lane
from ringmq.peer.streams.stream_pairs import Pair, PairTable

MAX_QUEUED_BYTES: Final = 64 << 20
"""Memory of items for one peer, queued or in flight. A peer that is behind by more gets all state again: that is not
more, and it is newer."""
ITEM_BYTES: Final = 64
"""Memory of an item beside its bytes: the head of the object, its place in a list, and a callback."""
FEW_BYTES: Final = 4096
"""A stream with no more bytes is repeated after LATE_S at the latest, however slow the answers were before: that costs
a busy receiver next to nothing, and after a lossy network, each takeover would wait for what was lost last."""


class OwnItem:
    """An item that this peer sends to itself."""

    __slots__ = ("done", "holds", "item")

    def __init__(self, item: object, done: Done | None) -> None:
        self.item = item
        self.done = done
        self.holds = 1
        """The handling counts as a hold of its own."""


class Streams:
    """One per engine."""

    __slots__ = (
        "_by_id",
        "_calls",
        "_count",
        "_decode",
        "_delayed",
        "_dirty",
        "_encode",
        "_handle",
        "_losing",
        "_lost",
        "_own_holds",
        "_pairs",
        "_patient",
        "_present",
        "_processed",
        "_state",
        "counters",
    )

    def __init__(
        self,
        state: StreamContext,
        encode: Callable[[object], bytes],
        decode: Callable[[bytes], object],
        handle: Callable[[Peer, object], None],
        lost: Callable[[Peer], None],
        patient: frozenset[type] = frozenset(),
    ) -> None:
        """`handle` is called with each item once. `lost` is called when a stream to a peer has ended other than by
        `close`: everything sent to it and not done before that call may be missing there, and no `done` of it follows.
        Items of the types in `patient` are repeated by the next of them: their acknowledgement may wait for the next
        message of the other peer.
        """
        self._state = state
        self._encode = encode
        self._decode = decode
        self._handle = handle
        self._lost = lost
        self._patient = patient
        self.counters = StreamCounters()
        self._pairs = PairTable(self._lose)
        self._by_id = self._pairs.by_id
        """The same pairs, for one attribute less in the path of each item."""
        self._count = 0
        """The number of the last stream. Counted over all peers, so it also grows for a peer that was forgotten."""
        self._dirty: list[OutgoingStream] = []
        self._processed: list[IncomingLane] = []
        """Lanes whose acknowledgement changes with the next commit."""
        self._delayed: list[IncomingLane] = []
        """Lanes whose acknowledgement waits for a batch to ride on. One timer for all of them runs while there are any;
        a timer for each pair would cost more than the acknowledgements that are sent a little early."""
        self._present: tuple[IncomingLane, int, bool] | OwnItem | None = None
        """The batch, or own item, whose item is being handled: lane, number, and whether its sender waits."""
        self._own_holds = 0
        """Items to this peer itself that are held back."""
        self._calls: deque[Callable[[], None]] = deque()
        """Calls to make after the present one, one for each wake-up in the local queue of the context."""
        self._losing: dict[Peer, None] = {}
        """Peers for which a call of `lost` is due."""

    # Sending

    def send(self, peer: Peer, item: object, done: Done | None = None, lane: Lane = Lane.CONTROL) -> None:
        """Send an item in order with the earlier items of its lane.

        `done` is called once, when the peer has processed, committed and applied it, and never after `close` or `lost`.
        """
        if peer.id == self._state.me.id:
            self._later(partial(self._handle_own, OwnItem(item, done)))
        else:
            self.send_encoded(peer, self._encode(item), done, lane, type(item) in self._patient)

    def send_encoded(
        self, peer: Peer, data: bytes, done: Done | None = None, lane: Lane = Lane.CONTROL, patient: bool = False
    ) -> None:
        """The same for an item that goes to several peers and needs to be encoded only once."""
        pair = self._by_id.get(peer.id)
        stream = None if pair is None or pair.boot != peer.boot else pair.outgoing
        if stream is None:
            stream = self._open(peer)
            if stream is None:
                if peer.id == self._state.me.id:
                    self.send(peer, self._decode(data), done, lane)
                return
        if stream.closed:
            return
        outgoing = stream.lanes[lane]
        if outgoing is None:
            outgoing = stream.open_lane(lane)
        # The batches are made here, item by item: to cut a long list later would move its rest each time.
        batch = outgoing.open
        size_bytes = len(data)
        if batch.items and (batch.size_bytes + size_bytes > BATCH_BYTES or len(batch.items) >= BATCH_ITEMS):
            batch = outgoing.next_batch()
        batch.items.append(data)
        batch.size_bytes += size_bytes
        batch.patient = batch.patient and patient
        if done is not None:
            batch.dones.append(done)
        stream.held_bytes += size_bytes + ITEM_BYTES
        if stream.held_bytes > MAX_QUEUED_BYTES:
            self._overflow(stream)
        elif not stream.dirty:
            self._mark(stream)

    def _open(self, peer: Peer) -> OutgoingStream | None:
        """The stream to a peer, a new one if there is none. None: to this peer, or to a boot that is over."""
        if peer.id == self._state.me.id:
            return None
        # Streams to a boot that cannot be would end the one to the peer, and nothing that it sends would count.
        pair = None if self._state.is_far_boot(peer.boot) else self._pairs.meet(peer)
        if pair is None:
            # Not at once: whoever still takes this boot for a coordinator would ask it again at once, without end.
            if peer not in self._losing:
                self._losing[peer] = None
                self._state.after(self._state.config.retry_s, partial(self._report_lost, peer))
            return None
        if pair.outgoing is None:
            self._count += 1
            pair.outgoing = OutgoingStream(peer, self._count)
        return pair.outgoing

    def _mark(self, stream: OutgoingStream) -> None:
        stream.dirty = True
        if not self._dirty:
            self._state.owing()
        self._dirty.append(stream)

    def flush(self) -> None:
        """End of an iteration: send batches of the queued items, as far as windows admit them."""
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, []
        now = self._state.clock.now
        for stream in dirty:
            stream.dirty = False
            wait_s = self._first_wait_s(stream)
            # CONTROL is the first lane, so its batches are ahead of the others on the link.
            for lane in stream.lanes:
                if lane is not None:
                    for batch in lane.launch(now, wait_s):
                        self.counters.batches += 1
                        self._transmit(stream, lane, batch, batch.urgent)
            self._arm(stream)

    def _transmit(self, stream: OutgoingStream, lane: OutgoingLane, batch: QueuedBatch, urgent: bool) -> None:
        peer = stream.peer
        pair = self._by_id[peer.id]
        acks = () if pair.incoming is None else pair.incoming.take_acks()
        message = Batch(
            lane.lane, peer.boot, stream.number, batch.seq, urgent, stream.known, tuple(batch.items), acks,
            batch.patient and not urgent,
        )  # fmt: skip
        self._state.send(peer, message)

    # Retries

    def _first_wait_s(self, stream: OutgoingStream) -> float:
        return max(self._wait_s(stream), stream.late_s)

    def _wait_s(self, stream: OutgoingStream) -> float:
        answer_s = stream.answer_s if stream.held_bytes > FEW_BYTES else min(stream.answer_s, LATE_S)
        return max(self._state.config.retry_s, self._state.ask_s, answer_s)

    def heard_at(self, peer: Peer) -> float:
        """When a peer has sent something for the last time, an answer or anything else."""
        pair = self._by_id.get(peer.id)
        return -inf if pair is None or pair.boot != peer.boot else pair.heard_at

    def answer_s(self, peer: Peer) -> float:
        """An answer of a peer that takes longer is late, as far as its earlier answers say; 0.0 if there was none."""
        pair = self._by_id.get(peer.id)
        return 0.0 if pair is None or pair.outgoing is None else pair.outgoing.answer_s

    def _arm(self, stream: OutgoingStream) -> None:
        """Have the timer of this stream due at the first deadline of its lanes."""
        deadline = stream.deadline
        if deadline < stream.timer_at:
            now = self._state.clock.now
            delay_s = deadline - now
            # The sum as the queue of timers computes it, so that the timer does not come a little before this time.
            stream.timer_at = now + delay_s
            self._state.after(delay_s, partial(self._retry, stream))

    def _retry(self, stream: OutgoingStream) -> None:
        now = self._state.clock.now
        # Timers cannot be cancelled: an earlier one was armed since, and this is not it.
        if stream.closed or stream.timer_at > now:
            return
        stream.timer_at = inf
        wait_s = self._wait_s(stream)
        stream.late(wait_s)
        most_s = max(wait_s, self._state.config.slow_retry_s)
        for lane in stream.lanes:
            if lane is not None and lane.deadline <= now:
                if max(lane.since, stream.heard_at) + self._state.config.give_up_s < now:
                    # No lease lasts longer: the other side has given up its part of the pair as well, if it lives.
                    self.counters.given_up += 1
                    self._break(stream)
                    return
                self._resend(stream, lane, lane.silent(now, wait_s, most_s))
        if self.heard_at(stream.peer) <= now - wait_s:
            self._state.find_way(stream.peer)
        self._arm(stream)

    def _resend(self, stream: OutgoingStream, lane: OutgoingLane, batches: list[QueuedBatch]) -> None:
        for batch in batches:
            self.counters.resent += 1
            batch.again = True
            self._transmit(stream, lane, batch, urgent=True)

    # Acknowledgements of own batches

    def acknowledged(self, sender: Peer, ack: BatchAck) -> None:
        """A peer acknowledges batches: calls `done` of their items."""
        pair = self._by_id.get(sender.id)
        if pair is not None:
            if ack.unknown and self._denies(sender, pair, ack):
                self._pairs.deny(sender).heard_at = self._state.clock.now
                return
            pair = self._meet_sender(sender)
            if pair is not None:
                pair.heard_at = self._state.clock.now
                self._acknowledged(pair, ack)

    def _meet_sender(self, sender: Peer) -> Pair | None:
        pair = self._by_id.get(sender.id)
        late_s = self._state.clock.now - self._state.config.entry_s
        if pair is not None and pair.boot > sender.boot and pair.heard and pair.heard_at < late_s:
            # Somebody had the id with a higher boot, and is gone: no message of an earlier process comes so late.
            self._pairs.deny(sender)
        return self._pairs.meet(sender, heard=True)

    def _denies(self, sender: Peer, pair: Pair, ack: BatchAck) -> bool:
        """Whether a peer has received a batch for a boot that only others have named, and has another. The stream began
        after that boot was named, so this is no late message of an earlier process."""
        stream = pair.outgoing
        named = sender.boot < pair.boot and not pair.heard and stream is not None
        return named and stream is not None and ack.stream == stream.number and ack.boot == self._state.me.boot

    def _acknowledged(self, pair: Pair, ack: BatchAck) -> None:
        stream = pair.outgoing
        if stream is None or stream.closed or stream.number != ack.stream or ack.boot != self._state.me.boot:
            return
        if ack.unknown:
            self._break(stream)
            return
        lane = stream.lanes[ack.lane]
        if lane is None:
            return
        owed = frozenset(ack.owed) if ack.owed else NOTHING
        stream.heard_at = self._state.clock.now
        news = lane.acknowledge(ack.seq, owed, self._state.clock.now, self._first_wait_s(stream))
        if news is None:
            return
        if news.answered_s is not None:
            stream.answered(news.answered_s)
        stream.known = True
        stream.held_bytes -= news.freed_bytes + ITEM_BYTES * news.freed_items
        self._resend(stream, lane, news.again)
        self._arm(stream)
        if lane.queued and not stream.dirty:
            self._mark(stream)
        if len(lane.owed) > MAX_OWED:
            self._overflow(stream)
        elif news.dones:
            self._complete(stream, news.dones)

    def _complete(self, stream: OutgoingStream, dones: list[Done]) -> None:
        calls = iter(dones)
        try:
            for done in calls:
                # An earlier callback may have closed the pair.
                if stream.closed:
                    return
                done()
        except Exception:
            # No acknowledgement will name these batches again.
            self._later(partial(self._complete, stream, [*calls]))
            raise

    # Receiving

    def received(self, sender: Peer, batch: Batch) -> None:
        """A batch has come: calls `handle` for each item if it is the next of its lane.

        If `handle` raises, the rest of the batch is not handled; the sender will find that its stream is lost.
        """
        me = self._state.me
        if sender.id == me.id:
            # A wake-up, see `_later`. A routed message names its origin itself, which may be false.
            if batch is _WAKE:
                self._calls.popleft()()
            else:
                self.counters.skipped += 1
            return
        pair = self._meet_sender(sender)
        if pair is None:
            self.counters.skipped += 1
            return
        pair.heard_at = self._state.clock.now
        for ack in batch.acks:
            self._acknowledged(pair, ack)
        if self._by_id.get(sender.id) is not pair:
            return
        incoming = pair.begin(batch.stream, batch.known) if batch.boot == me.boot else None
        if incoming is None:
            self.counters.skipped += 1
            if batch.boot != me.boot or pair.forgets(batch.stream):
                self._state.send(sender, BatchAck(batch.lane, sender.boot, batch.stream, 0, unknown=True))
            return
        lane = incoming.lanes[batch.lane]
        if lane is None:
            lane = incoming.open_lane(batch.lane)
        if batch.seq == lane.last + 1:
            self._process(pair, lane, batch)
        else:
            self.counters.skipped += 1
            if batch.seq <= lane.last:
                # The acknowledgement was lost, or the sender asks whether a hold has been released.
                lane.asked = True
                self._touch(lane)

    def _process(self, pair: Pair, lane: IncomingLane, batch: Batch) -> None:
        decode, handle, incoming, sender = self._decode, self._handle, lane.stream, pair.peer
        try:
            # All before the first is handled: an unreadable batch must not be handled in part and then asked for again.
            items = [decode(data) for data in batch.items]
        except ProtocolError:
            self.counters.unreadable += 1
            return
        lane.last = batch.seq
        self._present = (lane, batch.seq, batch.urgent)
        try:
            for item in items:
                handle(sender, item)
                if incoming.closed:
                    return
        except Exception:
            # Neither may the sender believe that all was handled, nor can a part be handled again.
            pair.refuse()
            raise
        finally:
            self._present = None
        if batch.urgent:
            lane.asked = True
        lane.hurried = lane.hurried or not batch.patient
        self._touch(lane)

    def _touch(self, lane: IncomingLane) -> None:
        if not lane.touched:
            lane.touched = True
            if not self._processed:
                self._state.owing()
            self._processed.append(lane)

    def acknowledge(self) -> None:
        """All changes of this iteration are committed: send the acknowledgements that are due."""
        if not self._processed:
            return
        processed, self._processed = self._processed, []
        due: list[IncomingStream] = []
        for lane in processed:
            lane.commit()
            if lane.asked:
                lane.asked = False
                due.append(lane.stream)
            elif lane.hurried and not lane.delayed:
                self._delay(lane)
            lane.hurried = False
        # Answers of this iteration to the same peers carry acknowledgements.
        self.flush()
        for incoming in due:
            self._send_acks(incoming)

    def _delay(self, lane: IncomingLane) -> None:
        lane.delayed = True
        if not self._delayed:
            self._state.after(self._state.config.retry_s / 2, self._send_delayed)
        self._delayed.append(lane)

    def _send_delayed(self) -> None:
        delayed, self._delayed = self._delayed, []
        for lane in delayed:
            lane.delayed = False
            # It may have ridden on a message, and others may wait for the next.
            if lane.pending:
                self._send_acks(lane.stream)

    def _send_acks(self, incoming: IncomingStream) -> None:
        if not incoming.closed:
            for ack in incoming.take_acks():
                self._state.send(incoming.peer, ack)

    def hold_back(self) -> Callable[[], None]:
        """Within `handle`: the present batch does not count as applied until the returned call is made, once."""
        present = self._present
        if present is None:
            raise RuntimeError("hold_back must be called while an item is handled")
        if isinstance(present, OwnItem):
            present.holds += 1
            self._own_holds += 1
            return _once(partial(self._release_own, present))
        lane, seq, urgent = present
        if not urgent:
            # Nobody waits for it.
            return _nothing
        lane.hold(seq)
        return _once(partial(self._release, lane, seq))

    def _release(self, lane: IncomingLane, seq: int) -> None:
        if lane.release(seq) and not lane.stream.closed:
            lane.asked = True
            self._touch(lane)

    # Items to this peer

    def _later(self, call: Callable[[], None]) -> None:
        """Make a call after the present one: no role must change its state within a call of another."""
        self._calls.append(call)
        self._state.send(self._state.me, _WAKE)

    def _handle_own(self, own: OwnItem) -> None:
        self._present = own
        try:
            self._handle(self._state.me, own.item)
        finally:
            self._present = None
        own.holds -= 1
        if own.holds == 0 and own.done is not None:
            own.done()

    def _release_own(self, own: OwnItem) -> None:
        self._own_holds -= 1
        own.holds -= 1
        if own.holds == 0 and own.done is not None:
            self._later(own.done)

    # Pairs

    def close(self, peer: Peer) -> None:
        """Forget everything that is queued for a peer, and everything that has come from it: it died, or has started
        again. Neither `done` nor `lost` is called. If it lives, it learns with its next batch that its stream is lost.

        A later boot of the peer is left alone.
        """
        self._pairs.close(peer)
        for losing in [losing for losing in self._losing if losing.id == peer.id and losing.boot <= peer.boot]:
            del self._losing[losing]

    @property
    def owes(self) -> bool:
        """Whether batches or acknowledgements wait for the end of the iteration."""
        return bool(self._dirty or self._processed)

    def idle(self, peer: Peer) -> bool:
        """Whether nothing for this peer is queued, unacknowledged, or processed there and not applied."""
        pair = self._by_id.get(peer.id)
        return pair is None or pair.boot != peer.boot or pair.outgoing is None or pair.outgoing.idle

    def held_back_at(self, peer: Peer) -> float:
        """When a peer was heard last that holds items back (`hold_back`): it will confirm them, unless it is silent by
        now. -inf if it holds none back."""
        if peer.id == self._state.me.id:
            return self._state.clock.now if self._own_holds else -inf
        pair = self._by_id.get(peer.id)
        stream = None if pair is None or pair.boot != peer.boot else pair.outgoing
        if stream is None or not any(lane is not None and lane.owed for lane in stream.lanes):
            return -inf
        return stream.heard_at

    def _overflow(self, stream: OutgoingStream) -> None:
        self.counters.overflowed += 1
        self._break(stream)

    def _break(self, stream: OutgoingStream) -> None:
        # It stays in its pair until the call of `lost`, so that nothing sent before that call goes into the next one.
        stream.close()
        self._lose(stream.peer)

    def _lose(self, peer: Peer) -> None:
        if peer not in self._losing:
            self._losing[peer] = None
            self._later(partial(self._report_lost, peer))

    def _report_lost(self, peer: Peer) -> None:
        # `close` cancels it.
        if peer not in self._losing:
            return
        del self._losing[peer]
        pair = self._by_id.get(peer.id)
        if pair is not None and pair.boot == peer.boot and pair.outgoing is not None and pair.outgoing.closed:
            pair.outgoing = None
        self._lost(peer)


_WAKE: Final = Batch(Lane.CONTROL, 0, 0, 0, urgent=False, known=False, items=())
"""A message of this peer to itself, of which only the arrival matters."""


def _once(call: Callable[[], None]) -> Callable[[], None]:
    """The same call, which does nothing the second time."""
    calls = [call]

    def release() -> None:
        if calls:
            calls.pop()()

    return release


def _nothing() -> None:
    """There is no hold to release."""
