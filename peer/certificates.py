"""Certificates of a peer's listeners, which can be renewed while clients are served.

Reads the files at creation and on `reload`. `mqtt_front.server.tls` knows their required content.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Self

from ringmq.mqtt_front.server.tls import server_context


class Certificates(ssl.SSLContext):
    """TLS context of all listeners. Each new connection uses the context that was made from the files most recently."""

    # A listener keeps its context for its lifetime, so renewal must happen behind one context. Loading new files into
    # the old context would not do: OpenSSL keeps a certificate whose key is of another type, and every CA.

    def __new__(cls, certificate: Path, key: Path, client_ca: Path | None = None) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Read the files, as `server_context` describes. Raises TlsError."""
        super().__init__()
        self._files = (certificate, key, client_ca)
        self._newest = server_context(*self._files)

    def reload(self) -> None:
        """Read the files again for new connections. Raises TlsError for a wrong file; the old certificates stay."""
        self._newest = server_context(*self._files)

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Delegate to the newest context. Event loops call this for each connection."""
        return self._newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
