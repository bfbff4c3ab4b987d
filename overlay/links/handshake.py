"""The handshake of a link: identity of the sender, whether it is accepted, and which of two connections stays.

Pure decisions; `overlay.links.table` acts on them.

The dialling side sends HELLO as its first frame and names its target. The other side answers with its own HELLO, and
the link is open, or with a GOODBYE that has the reason. A HELLO without a target asks for an introduction: it is
answered by a HELLO and the connection ends there, so an introduction never competes with a link.

When both sides dial at once, the connection dialled by the peer with the lower id stays.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.codec import Codec, one_line
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.proofs import Proof

VERSION: Final = 2
"""Version of the link protocol, the first byte of each HELLO: a later version may change all bytes after it."""
MAX_HELLO_BYTES: Final = 4096
"""Largest frame of a stranger: two host names and a ring name fit many times."""
MAX_RING_CHARS: Final = 128
MAX_DIGEST_BYTES: Final = 16


class Reason(StrEnum):
    """Reason for the end of a connection: the body of a GOODBYE, up to the colon."""

    IDLE = "idle"
    STOPPING = "stopping"
    DUPLICATE = "duplicate"
    REPLACED = "replaced"
    INTRODUCED = "introduced"
    VERSION = "other protocol version"
    RING = "other ring"
    RING_SETTINGS = "other terms"
    MYSELF = "connected to itself"
    ID_TAKEN = "id taken"
    NOT_ME = "not me"
    OLD_BOOT = "old boot"
    FULL = "too many links"
    STUCK = "does not read"
    SLOW = "no hello in time"
    UNFINISHED = "unfinished frame"
    UNPROVEN = "unproven"
    NOT_YOURS = "not yours"
    EXPELLED = "expelled"
    PROTOCOL = "protocol error"
    BROKEN = "broken"
    """Never sent: the connection ended without a GOODBYE."""


NO_PROOF: Final = "peers of this ring prove who they are (commands with --data)"
NO_IDENTITY: Final = "peers of this ring do not prove who they are"
"""Details of UNPROVEN."""
HARMLESS: Final = frozenset({Reason.IDLE, Reason.STOPPING, Reason.DUPLICATE, Reason.REPLACED, Reason.INTRODUCED})
"""An open link that ends for one of these reasons is no loss: nothing is wrong with the peer."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The sender's identity, and the identity that it expects at the other end."""

    ring: Annotated[str, Meta(max_length=MAX_RING_CHARS)]
    peer: Peer
    active: bool
    """Whether the sender serves keys, so that others can join through it."""
    target: Id | None
    """The peer to be linked; None: only an introduction."""
    ring_settings: Annotated[str, Meta(max_length=MAX_RING_CHARS)] = ""
    """Settings that must be equal at all peers of a ring."""
    expulsions: Annotated[bytes, Meta(max_length=MAX_DIGEST_BYTES)] = b""
    """Digest of the sender's list of expelled peers; empty: there are none."""


_hellos: Final = Codec[Hello](Hello)


def encode_hello(hello: Hello) -> bytes:
    return bytes([VERSION]) + _hellos.encode(hello)


def decode_hello(body: bytes) -> Hello | None:
    """None for another version of the protocol; raises ProtocolError for a wrong one of this version."""
    if not body:
        raise ProtocolError("an empty hello")
    # Another version may have changed all bytes after the first.
    return _hellos.decode(body[1:]) if body[0] == VERSION else None


def encode_goodbye(reason: Reason, detail: str = "") -> bytes:
    return f"{reason}: {detail}".encode() if detail else reason.encode()


def decode_goodbye(body: bytes) -> tuple[Reason, str]:
    """The reason, PROTOCOL for an unknown reason, and the whole text for the log."""
    text = one_line(body[:512].decode("utf-8", "replace"))
    try:
        return Reason(text.partition(":")[0]), text
    except ValueError:
        return Reason.PROTOCOL, text


def is_expelled(proof: Proof, expelled: Container[Id]) -> bool:
    """Whether the peer, or the issuer that has admitted it, is expelled."""
    return proof.id in expelled or (proof.issuer is not None and proof.issuer in expelled)


class LinkState(Enum):
    """State of our links with the peer whose HELLO came in on a new connection."""

    APART = auto()
    CONNECTING = auto()
    """We dial it, but our HELLO is not sent yet."""
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
    ring_settings: str = ""
    proven: bool = False
    """Whether each peer must prove its id."""
    expelled: Container[Id] = frozenset()

    def stranger(self, hello: Hello | None, proof: Proof | None = None) -> Reason | None:
        """Reason for refusing any exchange with the sender of this HELLO; None: accepted.

        `proof` is what the certificate of the connection proves.
        """
        if self.proven and proof is None:
            return Reason.UNPROVEN
        if hello is None:
            return Reason.VERSION
        if proof is not None and proof.id != hello.peer.id:
            return Reason.NOT_YOURS
        if proof is not None and is_expelled(proof, self.expelled):
            return Reason.EXPELLED
        if hello.ring != self.ring:
            return Reason.RING
        if hello.ring_settings != self.ring_settings:
            return Reason.RING_SETTINGS
        if hello.peer.id == self.me.id:
            return Reason.MYSELF if hello.peer == self.me else Reason.ID_TAKEN
        if hello.target is not None and hello.target != self.me.id:
            return Reason.NOT_ME
        return None

    def inbound(self, peer: Peer, state: LinkState, known_boot: int) -> Reason | None:
        """Reason for refusing a new connection of this peer as its link; None: it becomes the link.

        In that case our dial is given up and an open link replaced: the peer would not have dialled if it knew of an
        open link. `known_boot` is the boot of the open link's peer.
        """
        linked = state in (LinkState.LINKED, LinkState.LINKED_BY_US)
        if linked and peer.boot != known_boot:
            return Reason.OLD_BOOT if peer.boot < known_boot else None
        # Both sides compare the same two ids, so they keep the same connection.
        ours_counts = state in (LinkState.GREETED, LinkState.LINKED_BY_US)
        return Reason.DUPLICATE if ours_counts and self.me.id < peer.id else None
