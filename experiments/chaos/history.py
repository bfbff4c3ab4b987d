"""The history of a run: everything that clients sent and got, with times, and every fault that was injected.

Times are seconds of one monotonic clock. Peers are numbers from 0. Knows neither clients nor promises.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

REFUSALS: Final = 0x80
"""Reason codes from here on are refusals."""


class MessageKind(StrEnum):
    """Why a message was published."""

    STREAM = "stream"
    PROBE = "probe"
    RETAINED = "retained"
    CLEARING = "clearing"
    WILL = "will"


class SentMessage(msgspec.Struct, gc=False):
    """A message of a client. Its payload has its number. A will is noted when its connection ends."""

    number: int
    client: str
    peer: int
    topic: str
    qos: int
    retain: bool
    at: float
    source: MessageKind = MessageKind.STREAM
    acknowledged_at: float | None = None
    reason: int | None = None
    resent: bool = False
    """Whether the client sent it again, as its connection ended before the acknowledgement."""
    abandoned: bool = False
    """Whether the client gave it up without an acknowledgement, as its session or connection was gone."""
    wanted: bool = True
    """False for the will of a client that said good-bye: nobody may get it."""

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged_at is not None and self.reason is not None and self.reason < REFUSALS


class GotMessage(msgspec.Struct, gc=False):
    """A message that a client got."""

    client: str
    number: int
    topic: str
    at: float
    qos: int
    retain: bool
    dup: bool


class Entry(msgspec.Struct, gc=False):
    """A filter of a client, from its SUBSCRIBE to its end."""

    client: str
    peer: int
    filter: str
    qos: int
    kept: bool
    asked_at: float
    granted_at: float | None = None
    reason: int | None = None
    ended_at: float | None = None

    @property
    def is_granted(self) -> bool:
        return self.granted_at is not None and self.reason is not None and self.reason < REFUSALS


class Attachment(msgspec.Struct, gc=False):
    """A connection of a client to a peer, from its CONNACK to its end."""

    client: str
    peer: int
    kept: bool
    opened_at: float
    present: bool
    """The session-present flag."""
    returning: bool
    """Whether the client had a session at this peer before."""
    closed_at: float | None = None


class FaultKind(StrEnum):
    DOWN = "down"
    PAUSED = "paused"
    POWER = "power"
    CUT = "cut"
    BLANK = "blank"
    """A peer that is down gets an empty disk."""
    HOSTILE = "hostile"
    WEATHER = "weather"
    """Delay, loss and reordering, which no promise is limited by."""
    OTHER = "other"


class Injected(msgspec.Struct):
    """A fault. `pairs` are directed: frames from the first peer to the second are lost."""

    kind: FaultKind
    start: float
    peers: tuple[int, ...] = ()
    pairs: tuple[tuple[int, int], ...] = ()
    text: str = ""
    end: float | None = None


class RetainedCopy(msgspec.Struct, gc=False):
    """The retained message of a topic as a new subscriber of a peer got it at the end. 0: the peer has none."""

    peer: int
    topic: str
    number: int


class Incident(msgspec.Struct):
    """Something that no message shows: a peer that ended, a traceback, a ring that is not whole."""

    at: float
    text: str
    promise: str
    """Name of the promise that it breaks."""


class History(msgspec.Struct):
    """All of a run. `until` is its end."""

    messages: dict[int, SentMessage] = {}
    deliveries: list[GotMessage] = []
    entries: list[Entry] = []
    attachments: list[Attachment] = []
    faults: list[Injected] = []
    retained: list[RetainedCopy] = []
    incidents: list[Incident] = []
    until: float = 0.0

    def save(self, file: Path) -> None:
        """Write all of it, a JSON object a line, for a look at a violation."""
        encoder = msgspec.json.Encoder()
        parts = (
            *((self.faults, "fault"), (self.incidents, "incident"), (self.attachments, "attachment")),
            *((self.entries, "entry"), (self.messages.values(), "message"), (self.deliveries, "delivery")),
            (self.retained, "retained"),
        )
        with file.open("wb") as lines:
            for part, name in parts:
                for record in part:
                    lines.write(encoder.encode({name: record}) + b"\n")
