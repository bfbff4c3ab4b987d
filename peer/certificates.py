"""The certificates of a peer's listeners, which can be renewed while clients are served.

Reads the files when it is told to. What they must hold is for `mqtt_front.server.tls` to know.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Self

from ringmq.mqtt_front.server.tls import server_context


class Certificates(ssl.SSLContext):
    """The TLS context of all listeners: each new connection gets the one that was made of the files most recently.

    A listener keeps its context as long as it lives, and other files loaded into the same context would not take the
    place of all that was there: a certificate whose key is of another kind would stay, and so would a CA.
    """

    def __new__(cls, certificate: Path, key: Path, client_ca: Path | None = None) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """As for `server_context`. Raises TlsError."""
        super().__init__()
        self._files = (certificate, key, client_ca)
        self._newest = server_context(*self._files)

    def reload(self) -> None:
        """Read the files again, for connections to come. Raises TlsError for a wrong one; the old ones then hold."""
        self._newest = server_context(*self._files)

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """What an event loop calls for each connection."""
        return self._newest.wrap_bio(incoming, outgoing, server_side, server_hostname, session)
