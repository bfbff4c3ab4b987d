"""The guard of the HTTP server: whether a call may come in, and with which rights.

Two kinds of callers are nobody's friends: strangers, who need a token, and pages of other sites in the browser of
somebody who may call. Such a page sends its own `Origin`, or, if its name was made to point here (DNS rebinding), a
`Host` that is no name of this server. No cookie gives any right, so there is nothing else that it could use.
"""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from ringmq.peer.administration.rights import Asker
from ringmq.peer.web.exchanges import HttpCall, RefusedError, shown
from ringmq.peer.web.tokens import Tokens

BEARER: Final = "bearer "
SAME_SITE: Final = ("", "same-origin", "none")
"""Values of Sec-Fetch-Site for calls of no page, of pages of this server, and of the user."""


class Guard:
    """Without `tokens` everybody who reaches the server may read and write: it listens on loopback alone then."""

    def __init__(self, tokens: Tokens | None, names: frozenset[str] = frozenset()) -> None:
        """`names` are the host names of this server, beside localhost and all addresses."""
        self.tokens = tokens
        self._names = names | {"localhost"}

    def asker(self, call: HttpCall) -> Asker:
        """The rights of a call. Raises RefusedError."""
        self.check_origin(call)
        if self.tokens is None:
            self._check_host(call)
            return Asker.WRITER
        given = call.header("authorization")
        if not given.lower().startswith(BEARER):
            raise _unauthorized("a token is needed: Authorization: Bearer TOKEN")
        writes = self.tokens.may_write(given[len(BEARER) :].strip())
        if writes is None:
            raise _unauthorized("wrong token")
        return Asker.WRITER if writes else Asker.READER

    def check_origin(self, call: HttpCall) -> None:
        """Raises RefusedError for a call of a page of another site."""
        site = call.header("sec-fetch-site")
        if "sec-fetch-site" in call.headers and site not in SAME_SITE:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"calls of pages of other sites are refused ({shown(site)})")
        if "origin" in call.headers:
            origin = call.header("origin")
            if not origin or _netloc(origin) != call.header("host").lower():
                raise RefusedError(HTTPStatus.FORBIDDEN, f"calls of pages of {shown(origin)} are refused")

    def _check_host(self, call: HttpCall) -> None:
        # No page of another site can have an address as its name; a name of its own it can point anywhere.
        host = call.header("host")
        if not is_address(name_of_host(host)) and name_of_host(host) not in self._names:
            raise RefusedError(HTTPStatus.MISDIRECTED_REQUEST, f"{shown(host)!r} is no name of this server")


def name_of_host(host: str) -> str:
    """The host of a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _unauthorized(text: str) -> RefusedError:
    return RefusedError(HTTPStatus.UNAUTHORIZED, text, 'WWW-Authenticate: Bearer realm="ringmq"')
