"""The form of a dead letter: what came on the topics of records and is none, with the reason. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

MAX_TOPIC_CHARS: Final = 256
"""Several times what the topics of records have. Each bad line of a message becomes a letter that names its topic."""


class DeadLetter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a file of dead letters."""

    reason: str
    topic: str
    at: float
    """When it was set aside, in seconds since 1970."""
    line: str
    """As it came; bytes that are no text in UTF-8 as `\\xff`."""


_encoder: Final = msgspec.json.Encoder()


def letter(reason: str, topic: str, at: float, line: bytes) -> bytes:
    """One line of JSON with its end."""
    shown = topic if len(topic) <= MAX_TOPIC_CHARS else topic[: MAX_TOPIC_CHARS - 1] + "…"
    return _encoder.encode(DeadLetter(reason, shown, at, line.decode("utf-8", "backslashreplace"))) + b"\n"
