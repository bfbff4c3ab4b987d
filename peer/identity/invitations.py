"""The invitations of one peer: who may still join with a token that it has printed.

Owns `invitations.json` in the folder of the identity. A token is good once: for one key, and for its time by this
machine's clock. The same key gets the same answer again, as the first answer may have been lost on its way.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.links.proofs import SALT_BYTES
from ringmq.peer.errors import DataFolderError, PeerError
from ringmq.peer.identity.durable_file import SECRET_MODE, replace_durably
from ringmq.peer.settings.tokens import SECRET_BYTES

STORED: Final = "invitations.json"
MAX_INVITATIONS: Final = 1000
"""Invitations that are not over. An operator who prints more has a script that goes wrong."""

Hex = Annotated[str, Meta(pattern="^[0-9a-f]*$", max_length=128)]


class Invitation(msgspec.Struct, forbid_unknown_fields=True):
    """One token. Its secret is kept as a hash."""

    secret_hash: Hex
    salt: Hex
    """For the id of the newcomer: chosen here, so that no newcomer chooses its place on the ring."""
    made_at: float
    """Seconds since 1970."""
    over_at: float
    name: str = ""
    """Name of the newcomer; empty: it chooses."""
    used_by: Hex = ""
    """Hash of the key that has joined."""
    issuer: bool = False
    """Whether the newcomer was given the right to admit others."""


class StoredInvitations(msgspec.Struct, forbid_unknown_fields=True):
    invitations: list[Invitation] = []
    issuers: int = 0
    """Peers to which this one has given the right to admit others."""
    admitted: dict[str, str] = {}
    """Names of the admitted peers, by id."""


class NotAdmittedError(PeerError):
    """A newcomer is not admitted, for this reason."""


class Invitations:
    """One per peer that may admit others. Raises DataFolderError when the file cannot be read or written."""

    def __init__(self, folder: Path, now: Callable[[], float]) -> None:
        self._file = folder / STORED
        self._now = now
        self._stored = self._read()

    @property
    def issuers(self) -> int:
        return self._stored.issuers

    @property
    def admitted(self) -> dict[Id, str]:
        """Names of the peers that this one has admitted, by id."""
        return {Id.parse(peer): name for peer, name in self._stored.admitted.items()}

    def note(self, peer: Id, name: str) -> None:
        """This peer was admitted."""
        if self._stored.admitted.get(peer.hex()) != name:
            self._stored.admitted[peer.hex()] = name
            self._write()

    def make(self, name: str, for_s: float) -> bytes:
        """The secret of a new token. Raises PeerError if there are too many."""
        self._forget()
        if len(self._stored.invitations) >= MAX_INVITATIONS:
            raise PeerError(f"there are {MAX_INVITATIONS} invitations that are not over yet")
        secret, now = secrets.token_bytes(SECRET_BYTES), self._now()
        salt = secrets.token_bytes(SALT_BYTES).hex()
        self._stored.invitations.append(Invitation(_hash(secret), salt, now, now + for_s, name))
        self._write()
        return secret

    def redeem(self, secret: bytes, public_key: bytes, *, may_issue: bool) -> Invitation:
        """Use the token with this secret for this key, durably. Raises NotAdmittedError."""
        # All are compared, so that the time says nothing.
        found = [each for each in self._stored.invitations if hmac.compare_digest(each.secret_hash, _hash(secret))]
        if not found:
            raise NotAdmittedError("the token is unknown here, or expired long ago")
        (invitation,) = found
        # A clock that went back says nothing about the time that has passed.
        if not invitation.made_at <= self._now() < invitation.over_at:
            raise NotAdmittedError("the token has expired: `ringmq invite` prints another")
        key = _hash(public_key)
        if invitation.used_by not in ("", key):
            raise NotAdmittedError("the token was used already: `ringmq invite` prints another")
        if not invitation.used_by:
            invitation.used_by, invitation.issuer = key, may_issue
            self._stored.issuers += may_issue
            self._write()
        return invitation

    def _forget(self) -> None:
        """Drop the invitations that are over."""
        now = self._now()
        self._stored.invitations = [each for each in self._stored.invitations if each.made_at <= now < each.over_at]

    def _read(self) -> StoredInvitations:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=StoredInvitations)
        except FileNotFoundError:
            return StoredInvitations()
        except OSError as error:
            raise DataFolderError(f"data: cannot read {self._file}: {error.strerror}") from error
        except ValueError as error:
            advice = "remove it to void all tokens that were not used"
            raise DataFolderError(f"data: {self._file} is damaged ({error}): {advice}") from error

    def _write(self) -> None:
        text = msgspec.json.format(msgspec.json.encode(self._stored)) + b"\n"
        replace_durably(self._file, text, SECRET_MODE)


def _hash(raw: bytes) -> str:
    return sha256(raw).hexdigest()
