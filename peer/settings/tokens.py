"""Tokens: what `ringmq invite` prints, and `--join` takes in front of an address. A token admits one machine to a ring.

Owns the form of a token. `peer.identity.invitations` knows which tokens are good.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ringmq.overlay.config import Address, show
from ringmq.peer.settings.addresses import parse_address

PRINT_BYTES: Final = 16
"""Nobody makes a second key with such a fingerprint: that takes 2^128 tries."""
SECRET_BYTES: Final = 16
_PREFIX: Final = "ringmq1-"
_FORM: Final = re.compile(r"ringmq1-([a-z2-7]{26})-([a-z2-7]{26})@(.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Token:
    """Trust in both directions: the newcomer knows the inviter by a fingerprint, and the inviter it by a secret."""

    fingerprint: bytes
    """`fingerprint_of` the public key of the inviter."""
    secret: bytes
    address: Address
    """Overlay address of the inviter."""

    def __str__(self) -> str:
        return f"{_PREFIX}{_text(self.fingerprint)}-{_text(self.secret)}@{show(self.address)}"

    @property
    def concealed(self) -> str:
        """The token without its secret, for output."""
        return f"{_PREFIX}{_text(self.fingerprint)}-…@{show(self.address)}"


def fingerprint_of(public_key: bytes) -> bytes:
    return sha256(public_key).digest()[:PRINT_BYTES]


def parse_token(text: str) -> Token:
    """Read TOKEN@HOST:PORT; raises ValueError."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(text)
    fingerprint, secret = (_bytes(part) for part in found.group(1, 2))
    return Token(fingerprint, secret, parse_address(found[3]))


def _text(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()


def _bytes(text: str) -> bytes:
    try:
        return base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except binascii.Error as error:
        raise ValueError(text) from error
