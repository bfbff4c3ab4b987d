"""The handshake of a link: who speaks, whether we want to hear it, and which of two connections stays.

Pure decisions; `overlay.links.table` acts on them.

The dialling side sends HELLO as its first frame and names whom it wants to reach. The other answers with its own HELLO,
and the link is open, or with a GOODBYE that says why not. A HELLO that names nobody asks for an introduction: it is
answered by a HELLO and the connection ends there, so that an introduction never competes with a link.

When both sides dial at once, the connection dialled by the peer with the lower id stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.codec import Codec, one_line
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError

VERSION: Final = 1
"""Of the link protocol; the first byte of each HELLO, so that a later version may change all that follows."""
MAX_HELLO_BYTES: Final = 4096
"""A stranger may send no larger frame: two host names and a ring name fit many times."""
MAX_RING_CHARS: Final = 128


class Reason(StrEnum):
    """Why a connection was closed: the body of a GOODBYE, up to the colon."""

    IDLE = "idle"
    STOPPING = "stopping"
    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    INTRODUCED = "introduced"
    VERSION = "other protocol version"
    RING = "other ring"
    TERMS = "other terms"
    MYSELF = "connected to itself"
    ID_TAKEN = "id taken"
    NOT_ME = "not me"
    OLD_BOOT = "old boot"
    FULL = "too many links"
    STUCK = "does not read"
    SLOW = "no hello in time"
    PROTOCOL = "protocol error"
    BROKEN = "broken"
    """Never sent: the connection ended without a GOODBYE."""


HARMLESS: Final = frozenset({Reason.IDLE, Reason.STOPPING, Reason.DUPLICATE, Reason.REPLACED, Reason.INTRODUCED})
"""An open link that ends for one of these is no loss: nothing is wrong with the peer."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who I am, and whom I take you for."""

    ring: Annotated[str, Meta(max_length=MAX_RING_CHARS)]
    peer: Peer
    active: bool
    """Whether I serve keys, so that one can join through me."""
    target: Id | None
    """Whom I want a link with; None: only an introduction."""
    terms: Annotated[str, Meta(max_length=MAX_RING_CHARS)] = ""
    """What I take all of us to have agreed on."""


_hellos: Final = Codec[Hello](Hello)


def encode_hello(hello: Hello) -> bytes:
    return bytes([VERSION]) + _hellos.encode(hello)


def decode_hello(body: bytes) -> Hello | None:
    """None for another version of the protocol; raises ProtocolError for a wrong one of this version."""
    if not body:
        raise ProtocolError("an empty hello")
    return _hellos.decode(body[1:]) if body[0] == VERSION else None


def encode_goodbye(reason: Reason, detail: str = "") -> bytes:
    return f"{reason}: {detail}".encode() if detail else reason.encode()


def decode_goodbye(body: bytes) -> tuple[Reason, str]:
    """The reason, PROTOCOL for one that we do not know, and the whole text for the log."""
    text = one_line(body[:512].decode("utf-8", "replace"))
    try:
        return Reason(text.partition(":")[0]), text
    except ValueError:
        return Reason.PROTOCOL, text


class LinkState(Enum):
    """How we stand with the peer whose HELLO came in on a new connection."""

    APART = auto()
    CONNECTING = auto()
    """We dial it, but our HELLO is not sent."""
    GREETED = auto()
    """We dial it and have sent our HELLO."""
    LINKED_BY_US = auto()
    """A link is open that we dialled a moment ago: this HELLO may have crossed ours."""
    LINKED = auto()


@dataclass(frozen=True, slots=True)
class HandshakePolicy:
    """Decides about HELLOs, for one peer of one ring."""

    me: Peer
    ring: str
    terms: str = ""

    def stranger(self, hello: Hello | None) -> Reason | None:
        """Why we refuse to talk at all to the sender of this HELLO; None: we do not."""
        if hello is None:
            return Reason.VERSION
        if hello.ring != self.ring:
            return Reason.RING
        if hello.terms != self.terms:
            return Reason.TERMS
        if hello.peer.id == self.me.id:
            return Reason.MYSELF if hello.peer == self.me else Reason.ID_TAKEN
        if hello.target is not None and hello.target != self.me.id:
            return Reason.NOT_ME
        return None

    def inbound(self, peer: Peer, standing: LinkState, known_boot: int) -> Reason | None:
        """Why a new connection from this peer must not become its link; None: it becomes it.

        When it does, a dial of ours is given up, and an open link replaced: the peer would not have dialled had it
        known of one. `known_boot` is that of the open link.
        """
        linked = standing in (LinkState.LINKED, LinkState.LINKED_BY_US)
        if linked and peer.boot != known_boot:
            return Reason.OLD_BOOT if peer.boot < known_boot else None
        ours_counts = standing in (LinkState.GREETED, LinkState.LINKED_BY_US)
        return Reason.DUPLICATE if ours_counts and self.me.id < peer.id else None
