"""Tokens of the HTTP server: which exist, and what each may do.

A file has a token a line, `read TOKEN` or `write TOKEN`; empty lines and lines that begin with # are left out.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from ringmq.peer.errors import PeerError

LEAST_CHARS: Final = 20
"""A shorter token could be guessed."""
MOST_CHARS: Final = 256
MAX_TOKENS: Final = 256


class TokensError(PeerError):
    """The file of tokens is wrong."""


class Tokens:
    """The tokens of one file."""

    def __init__(self, text: str, file: str) -> None:
        """Raises TokensError, with one line that names the file and the line."""
        self._writes: dict[bytes, bool] = {}
        """Whether each token may write, by its hash."""
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            where = f"{file}, line {number}"
            if len(words) != 2 or words[0] not in ("read", "write"):
                raise TokensError(f"{where}: a line must be read TOKEN or write TOKEN")
            token = words[1]
            if not LEAST_CHARS <= len(token) <= MOST_CHARS or not token.isascii():
                wanted = f"{LEAST_CHARS} to {MOST_CHARS} ASCII characters"
                raise TokensError(f"{where}: a token must have {wanted}, got {len(token)}")
            self._writes[_hash(token)] = words[0] == "write"
        if not self._writes:
            raise TokensError(f"{file}: no token: a line must be read TOKEN or write TOKEN")
        if len(self._writes) > MAX_TOKENS:
            raise TokensError(f"{file}: there must be at most {MAX_TOKENS} tokens, got {len(self._writes)}")

    def may_write(self, token: str) -> bool | None:
        """None: there is no such token."""
        given, found = _hash(token), None
        # All of them, so that the time tells nothing.
        for known, writes in self._writes.items():
            if hmac.compare_digest(known, given):
                found = writes
        return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
