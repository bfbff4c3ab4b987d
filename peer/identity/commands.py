"""Commands of the operator to a peer on the same machine, and the names that peers may have.

Only their form: `member` obeys them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

MAX_NAME_CHARS: Final = 63
MAX_FOR_S: Final = 366 * 86400.0
"""Longest time of a token: whoever finds it may join."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9._-]+")

Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]


class Invite(msgspec.Struct, frozen=True, tag="invite"):
    """Print a token."""

    name: Name = ""
    """Name of the newcomer; empty: it chooses."""
    for_s: Annotated[float, Meta(gt=0, le=MAX_FOR_S)] = 3600.0


class Expel(msgspec.Struct, frozen=True, tag="expel"):
    """Exclude a peer from the ring for ever."""

    who: Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
    """Its name or its id, or the first digits of its id."""


Command = Invite | Expel
"""Body of a COMMAND."""


class Result(msgspec.Struct, frozen=True):
    """Body of a RESULT."""

    text: str = ""
    error: str = ""


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def name_from(host: str) -> str:
    """A name for a peer on this host."""
    return _STRANGE.sub("-", host).strip("-._")[:MAX_NAME_CHARS] or "peer"
