"""Streams with a fault put into their source, to see that the tests find it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from ringmq.peer.streams import incoming_stream, outgoing_stream, stream_pairs, streams

MODULES = (outgoing_stream, incoming_stream, stream_pairs, streams)

FAULTS = {
    "a gap is processed": ("if batch.seq == lane.last + 1:", "if batch.seq > lane.last:"),
    "a duplicate is processed": ("if batch.seq == lane.last + 1:", "if batch.seq <= lane.last + 1:"),
    "a duplicate is not acknowledged": ("if batch.seq <= lane.last:", "if False:"),
    "what is not committed is acknowledged": ("seq = self._committed", "seq = self.last"),
    "holds are not named": ("tuple([held for held in self._holds if held <= seq])", "()"),
    "holds are not regarded": ("if batch.seq in owed:", "if False:"),
    "a release is not reported": ("if lane.release(seq) and not lane.stream.closed:", "if False:"),
    "holds are not asked for": ("return [question]", "return []"),
    "batches for another boot are processed": (
        "pair.begin(batch.stream, batch.known) if batch.boot == me.boot else None",
        "pair.begin(batch.stream, batch.known)",
    ),
    "acknowledgements for another boot count": (" or ack.boot != self._state.me.boot", ""),
    "acknowledgements of another stream count": (" or stream.number != ack.stream", ""),
    "closed streams are processed": ("if number <= self.refused or known:", "if known:"),
    "every gap at the start is a forgotten stream": (
        "pair.begin(batch.stream, batch.known)", "pair.begin(batch.stream, batch.seq > 1)"
    ),
    "older streams are processed": ("return incoming if number == incoming.number else None", "return incoming"),
    "nothing is sent again": (
        "self._resend(stream, lane, lane.silent(now, wait_s, most_s))", "lane.silent(now, wait_s, most_s)"
    ),
    "no timer is armed when a batch is sent": (
        "            self._arm(stream)\n\n    def _transmit", "\n    def _transmit"
    ),
    "delayed acknowledgements are never sent": ("            self._send_acks(lane.stream)", "            pass"),
    "an idle pair keeps its timer": ("if in_flight or self.owed else inf", "if True else inf"),
    "the window has no bound": ("while len(in_flight) < WINDOW:", "while True:"),
    "batches have no bound": ("batch = outgoing.next_batch()", "pass"),
    "callbacks come twice": ("dones += self.owed.pop(number)", "dones += self.owed[number]"),
    "unknown streams go on": ("if ack.unknown:", "if False:"),
    "streams of an older boot go on": ("if known.boot == peer.boot:", "if True:"),
    "the window does not open again": ("if lane.queued and not stream.dirty:", "if False:"),
    "a sent batch changes": ("batch, self.open = self.open, QueuedBatch()", "batch = self.open"),
}  # fmt: skip
"""A piece of the source, and a faulty one in its place."""


@contextmanager
def faulty(fault: str) -> Iterator[type[streams.Streams]]:
    """The class with one fault; it may be used within the context alone."""
    right, wrong = FAULTS[fault]
    kept = {module.__name__: module for module in MODULES}
    found = 0
    try:
        for name, module in kept.items():
            assert module.__file__ is not None
            source = Path(module.__file__).read_text(encoding="utf-8")
            found += source.count(right)
            sys.modules[name] = changed = ModuleType(name)
            exec(compile(source.replace(right, wrong), name, "exec"), changed.__dict__)
        assert found == 1, f"the source has {right!r} {found} times"
        yield sys.modules[streams.__name__].Streams
    finally:
        sys.modules.update(kept)
