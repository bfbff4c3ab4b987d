"""The form of a dead letter: a line from the topics of records that is not a record, with the reason. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_TOPIC_CHARS: Final = 256
"""Several times the length of a topic of records. Longer topics are cut: every bad line of a message repeats them."""


class DeadLetter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of dead letters."""

    reason: str
    topic: str
    at: float
    """The time of rejection, in seconds since 1970."""
    line: str
    """The line as it arrived, with bytes that are not UTF-8 written as `\\xff`."""


_encoder: Final = msgspec.json.Encoder()


def letter(reason: str, topic: str, at: float, line: bytes) -> bytes:
    """One line of JSON with its line feed."""
    shown = topic if len(topic) <= MAX_TOPIC_CHARS else topic[: MAX_TOPIC_CHARS - 1] + "…"
    return _encoder.encode(DeadLetter(reason, shown, at, line.decode("utf-8", "backslashreplace"))) + b"\n"
