"""Figures of messages to many peers, and their table for several ways of dispatching."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.scenarios.broadcast_bounds import least_depth, least_time_s
from ringmq.experiments.simulator.copies import CopiesNode
from ringmq.overlay.core.ids import Id


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadFigures:
    """Figures of one way of dispatching, over the messages of all topics."""

    dispatch: str
    sends: float
    """Sends for each receiver of a message."""
    most_sends: int
    """Most sends of one peer for one message."""
    senders: float
    """Peers that send a copy of a message."""
    relays: float
    """Peers without a subscriber that receive a message."""
    depth: int
    """Most hops of a message to its last receiver."""
    least_depth: int
    time_s: float
    """Mean time until the last receiver has a message."""
    longest_s: float
    least_s: float
    """Least possible time, if no peer sends more copies than the fan-out allows."""
    ratio: float
    """Ratio of the mean time to the least possible time."""
    sent_bytes: float
    """Bytes sent for each receiver of a message."""
    most_bytes: int
    """Most bytes that one peer sends for one message."""
    busiest: int
    """Most sends of one peer for the messages of all topics."""


COLUMNS: Final = (
    "dispatch", "sends/receiver", "most sends", "senders", "relays", "depth", "least depth", "ms", "longest ms",
    "least ms", "ratio", "bytes/receiver", "most bytes", "most sends, all topics",
)  # fmt: skip


def table(rows: Sequence[SpreadFigures]) -> list[str]:
    """The lines of the table, with columns as wide as their widest cells."""
    cells = [COLUMNS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for first, *others in cells:
        numbers = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join((first.ljust(widths[0]), *numbers)))
    return lines


def _cells(row: SpreadFigures) -> tuple[str, ...]:
    return (
        row.dispatch,
        f"{row.sends:.3f}",
        f"{row.most_sends}",
        f"{row.senders:.0f}",
        f"{row.relays:.0f}",
        f"{row.depth}",
        f"{row.least_depth}",
        f"{row.time_s * 1e3:.1f}",
        f"{row.longest_s * 1e3:.1f}",
        f"{row.least_s * 1e3:.1f}",
        f"{row.ratio:.3f}",
        f"{row.sent_bytes:.0f}",
        f"{row.most_bytes}",
        f"{row.busiest}",
    )


def name_of(choice: Choice) -> str:
    return choice.name if choice.fanout == UNBOUNDED else f"{choice.name} {choice.fanout}"


class SpreadTally:
    """Adds up the messages of one way of dispatching."""

    def __init__(self, choice: Choice, subscribers: set[Id]) -> None:
        self.choice = choice
        self._subscribers = subscribers
        self._receivers: list[int] = []
        self._times_s: list[float] = []
        self._senders: list[int] = []
        self._relays: list[int] = []
        self._sends: Counter[Id] = Counter()
        self._bytes = self._depth = self._most_sends = self._most_bytes = 0

    def add(self, nodes: Sequence[CopiesNode], receivers: int, time_s: float) -> None:
        """Add one message, from the counts of all peers."""
        self._receivers.append(receivers)
        self._times_s.append(time_s)
        self._senders.append(sum(node.copies > 0 for node in nodes))
        self._relays.append(sum(node.depth > 0 and node.peer.id not in self._subscribers for node in nodes))
        self._sends.update({node.peer.id: node.copies for node in nodes})
        self._bytes += sum(node.copy_bytes for node in nodes)
        self._depth = max(self._depth, *(node.depth for node in nodes))
        self._most_sends = max(self._most_sends, *(node.copies for node in nodes))
        self._most_bytes = max(self._most_bytes, *(node.copy_bytes for node in nodes))

    def figures(self, send_s: float, delay_s: float) -> SpreadFigures:
        """Summarise all messages. `send_s` is the least time that one copy takes its sender."""
        fanout, total, most = self.choice.fanout, sum(self._receivers), max(self._receivers)
        time_s, least_s = mean(self._times_s), least_time_s(most, send_s, delay_s, fanout)
        return SpreadFigures(
            dispatch=name_of(self.choice),
            sends=self._sends.total() / total,
            most_sends=self._most_sends,
            senders=mean(self._senders),
            relays=mean(self._relays),
            depth=self._depth,
            least_depth=least_depth(most, fanout),
            time_s=time_s,
            longest_s=max(self._times_s),
            least_s=least_s,
            ratio=time_s / least_s,
            sent_bytes=self._bytes / total,
            most_bytes=self._most_bytes,
            busiest=max(self._sends.values()),
        )
