"""The list of expelled peers of a ring: signed by issuers, one entry each, so that the union of two lists is a list.

Owns `expelled.json` in the folder of the identity. An entry stays for ever: an expelled machine that is to come back
joins with a new token, and has another id then. Knows no links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.durable_file import replace_durably

STORED: Final = "expelled.json"
MAX_EXPELLED: Final = 10_000
"""Some 10 MB. Only the operators of issuers add to the list."""
DIGEST_BYTES: Final = 8
_PURPOSE: Final = b"ringmq expulsion 1 "

Text = Annotated[str, Meta(max_length=128)]


class Expulsion(msgspec.Struct, frozen=True):
    """What an issuer signs."""

    id: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    name: Text
    """For people, as all below."""
    by: Text
    """Name of the peer whose operator has expelled it."""
    at: int
    """Seconds since 1970, by the clock of that peer."""

    @property
    def text(self) -> bytes:
        """The signed bytes."""
        return _PURPOSE + msgspec.json.encode(self)


class SignedExpulsion(msgspec.Struct, frozen=True):
    expulsion: Expulsion
    signature: Annotated[str, Meta(pattern="^([0-9a-f]{2})*$", max_length=256)]
    signer: Annotated[str, Meta(max_length=8192)]
    """Certificate of the issuer, in PEM."""


_Document = Annotated[list[SignedExpulsion], Meta(max_length=MAX_EXPELLED)]
Verify = Callable[[bytes, bytes, bytes], bool]
"""Called with the signer's certificate, the text and the signature."""


class Expulsions:
    """Of one peer. Raises DataFolderError when the file cannot be read or written."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / STORED
        self._entries = {Id.parse(entry.expulsion.id): entry for entry in self._read()}
        self.digest = b""
        """Equal lists have equal digests; empty for an empty list."""
        self._sum_up()

    def __contains__(self, peer: object) -> bool:
        return peer in self._entries

    def get(self, peer: Id) -> Expulsion | None:
        entry = self._entries.get(peer)
        return None if entry is None else entry.expulsion

    def document(self, peers: Iterable[Id] | None = None) -> bytes:
        """The entries of these peers, or all."""
        wanted = self._entries if peers is None else [peer for peer in peers if peer in self._entries]
        return msgspec.json.encode([self._entries[peer] for peer in wanted])

    def unknown(self, document: bytes) -> list[SignedExpulsion]:
        """The entries of a document that are not here yet. Raises ProtocolError if it is none."""
        try:
            entries = msgspec.json.decode(document, type=_Document)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"unreadable list of the expelled: {error}") from error
        return [entry for entry in entries if Id.parse(entry.expulsion.id) not in self._entries]

    def learn(self, entries: Iterable[SignedExpulsion], verify: Verify) -> list[Expulsion]:
        """Add entries, durably, and return those that are new. Raises ProtocolError for one that no issuer signed."""
        new = {Id.parse(entry.expulsion.id): entry for entry in entries}
        for entry in new.values():
            if not verify(entry.signer.encode(), entry.expulsion.text, bytes.fromhex(entry.signature)):
                raise ProtocolError(f"no issuer of this ring has signed that {entry.expulsion.id} is expelled")
        # Another list with the same entry may have come while this one was checked.
        new = {peer: entry for peer, entry in new.items() if peer not in self._entries}
        if new and len(self._entries) + len(new) <= MAX_EXPELLED:
            self._entries |= new
            self._sum_up()
            replace_durably(self._file, msgspec.json.format(self.document()) + b"\n")
            return [entry.expulsion for entry in new.values()]
        return []

    def _sum_up(self) -> None:
        ids = b"".join(peer.packed() for peer in sorted(self._entries))
        self.digest = sha256(ids).digest()[:DIGEST_BYTES] if ids else b""

    def _read(self) -> list[SignedExpulsion]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Document)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise DataFolderError(f"data: cannot read {self._file}: {error.strerror}") from error
        except ValueError as error:
            advice = "remove it, and other peers of the ring send it again"
            raise DataFolderError(f"data: {self._file} is damaged ({error}): {advice}") from error
