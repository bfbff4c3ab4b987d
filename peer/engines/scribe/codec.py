"""Messages of the trees as bytes, and publications in envelopes.

An envelope is itself a `Publication`, from one hop to the next: its topic is the place of the tree, its body the
publication of the publisher. So each hop numbers and acknowledges envelopes by the same send and receive windows as
other engines.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from ringmq.overlay.core.codec import Codec
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.scribe.messages import TreeMessage
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication, encode
from ringmq.peer.messaging.publication import decode as decode_publication

TREE: Final = b"S"
"""The first byte of a message of the trees; `peer.messaging.publication` uses others."""

_LENGTH: Final = struct.Struct(">H")


class Way(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The head of an envelope: the publisher, and whether the envelope goes up to the root."""

    origin: Peer
    up: bool


_tree: Final = Codec[TreeMessage](TreeMessage)
_way: Final = Codec[Way](Way)


def encode_tree(message: TreeMessage) -> bytes:
    return TREE + _tree.encode(message)


def decode(payload: bytes) -> Publication | Control | TreeMessage:
    """Raises ProtocolError with one short line for anything that was not encoded here."""
    if payload[:1] == TREE:
        return _tree.decode(payload[1:])
    return decode_publication(payload)


def is_tree(payload: bytes) -> bool:
    return payload[:1] == TREE


def wrap(origin: Peer, up: bool, publication: Publication) -> bytes:
    """The body of an envelope."""
    way = _way.encode(Way(origin, up))
    return b"".join((_LENGTH.pack(len(way)), way, encode(publication)))


def unwrap(body: bytes) -> tuple[Way, Publication]:
    """Raises ProtocolError for bytes that were not wrapped here."""
    if len(body) < _LENGTH.size:
        raise ProtocolError("an envelope ends early")
    end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
    publication = decode_publication(body[end:])
    if not isinstance(publication, Publication):
        raise ProtocolError("an envelope without a publication")
    return _way.decode(body[_LENGTH.size : end]), publication
