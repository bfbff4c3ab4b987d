"""The identity of a peer in its data folder: private keys, certificates, and the TLS made of them.

Owns the folder `identity` there. Knows no sockets, and makes no keys: `certifying` does.

    peer.key, peer.pem      private key of this peer, and its certificate
    ring.pem                certificate of the founder's authority, by which all peers of the ring know each other
    issuer.key, issuer.pem  the right to admit others; only at some peers
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringmq.overlay.links.proofs import Proof, public_key_of, read_proof
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.durable_file import SECRET_MODE, replace_durably

FOLDER: Final = "identity"
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: the clocks of edge machines may be wrong by decades."""
_END: Final = b"-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True)
class Identity:
    """What this peer proves itself with."""

    proof: Proof
    public_key: bytes
    server: ssl.SSLContext
    client: ssl.SSLContext

    def read(self, certificate: bytes) -> Proof | None:
        """What the certificate of another process proves, once TLS has verified it."""
        return read_proof(certificate)


class IdentityFiles:
    """Of one data folder. Every method raises DataFolderError with one line."""

    def __init__(self, data: Path) -> None:
        self.folder = data / FOLDER

    @property
    def complete(self) -> bool:
        """Whether this peer has a certificate."""
        try:
            return self._certificate.exists()
        except OSError as error:
            advice = "run this as the user of the peer, or as root"
            raise DataFolderError(f"data: cannot use {self.folder}: {error.strerror}: {advice}") from error

    @property
    def _certificate(self) -> Path:
        return self.folder / "peer.pem"

    def save_key(self, key: bytes) -> None:
        """The private key, before it is certified: after a crash the same key asks again."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise DataFolderError(f"data: cannot use {self.folder}: {error.strerror}") from error
        replace_durably(self.folder / "peer.key", key, SECRET_MODE)

    def key(self) -> bytes | None:
        """The private key; None before `save_key`."""
        return self._optional("peer.key")

    def save(self, certificate: bytes, root: bytes, issuer: tuple[bytes, bytes] | None) -> None:
        """All certificates, and the key and certificate of an issuer if this peer is one."""
        replace_durably(self.folder / "ring.pem", root)
        if issuer is not None:
            replace_durably(self.folder / "issuer.key", issuer[0], SECRET_MODE)
            replace_durably(self.folder / "issuer.pem", issuer[1])
        # The last: it shows that the others are there.
        replace_durably(self._certificate, certificate)

    def issuer(self) -> tuple[bytes, bytes] | None:
        """The key and certificate by which this peer admits others; None if it may not."""
        key, certificate = self._optional("issuer.key"), self._optional("issuer.pem")
        return None if key is None or certificate is None else (key, certificate)

    def root(self) -> bytes:
        return self._optional("ring.pem") or b""

    def load(self) -> Identity:
        """The identity of this peer."""
        try:
            first = self._certificate.read_bytes().partition(_END)
            certificate = ssl.PEM_cert_to_DER_cert((first[0] + first[1]).decode("ascii"))
            proof, server, client = read_proof(certificate), self._server(), self._client()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise DataFolderError(f"data: {self.folder} is damaged ({why}): {self._advice}") from error
        if proof is None:
            raise DataFolderError(f"data: {self._certificate} is damaged (it proves no id): {self._advice}")
        return Identity(proof, public_key_of(certificate), server, client)

    @property
    def _advice(self) -> str:
        return f"restore it, or remove {self.folder} and join again with a new token"

    def _server(self) -> ssl.SSLContext:
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        # A newcomer has no certificate yet. It can only ask to be admitted.
        context.verify_mode = ssl.CERT_OPTIONAL
        # A resumed session would go past the list of the expelled, and saves little.
        context.num_tickets = 0
        return context

    def _client(self) -> ssl.SSLContext:
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # The id is proven, and not a host.
        context.verify_flags |= _NO_CHECK_TIME
        context.load_verify_locations(self.folder / "ring.pem")
        context.load_cert_chain(self._certificate, self.folder / "peer.key")
        return context

    def _optional(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataFolderError(f"data: cannot read {self.folder / name}: {error.strerror}") from error
