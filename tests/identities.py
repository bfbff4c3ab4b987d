"""Rings with identity for tests: an authority, and peers that it has certified, each with a folder of its own."""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from ringmq.overlay.core.ids import ID_BYTES, Id
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.proofs import SALT_BYTES, Proof
from ringmq.peer.identity import certifying
from ringmq.peer.identity.certifying import Issuer
from ringmq.peer.identity.identity_files import Identity, IdentityFiles


class Certified:
    """The credentials of a test's peer. Its inviter answers each JOIN with what it got, and so does its operator."""

    def __init__(self, identity: Identity, files: IdentityFiles) -> None:
        self.files = files
        self.id: Id = identity.proof.id
        self.public_key = identity.public_key
        self.server: ssl.SSLContext = identity.server
        self.client: ssl.SSLContext = identity.client
        self._identity = identity
        self.expelled: set[Id] = set()
        self.expulsions = b""
        self.changed: Callable[[], None] = lambda: None

    def read(self, certificate: bytes) -> Proof | None:
        return self._identity.read(certificate)

    def expel(self, *peers: Id) -> None:
        """The operator of an issuer has expelled these peers, and this one knows."""
        self.expelled |= set(peers)
        self.expulsions = sha256(self.evidence(None)).digest()[:8]
        self.changed()

    def evidence(self, about: Proof | None) -> bytes:
        told = self.expelled if about is None else self.expelled & {about.id, about.issuer}
        return b"".join(peer.packed() for peer in sorted(told))

    async def learn(self, evidence: bytes) -> None:
        if len(evidence) % ID_BYTES:
            raise ProtocolError("not signed")
        new = {Id.unpack(evidence[at : at + ID_BYTES]) for at in range(0, len(evidence), ID_BYTES)} - self.expelled
        if new:
            self.expel(*new)

    def watch(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    async def admit(self, request: bytes, host: str) -> bytes:
        return b"admit " + request

    async def command(self, request: bytes) -> bytes:
        return b"obey " + request


class Authority:
    """The founder's authority of one ring."""

    def __init__(self, folder: Path, ring: str = "ringmq") -> None:
        self.issuer = certifying.found(ring)
        self._folder = folder
        self._made = 0

    def certified(self, name: str = "peer", issuer: Issuer | None = None) -> Certified:
        """Another peer of this ring; `issuer` admits it in place of the founder."""
        by = issuer or self.issuer
        salt = secrets.token_bytes(SALT_BYTES)
        key = certifying.new_key()
        _, certificate = certifying.certify(by, certifying.public_part(key), salt, name)
        return self.saved(key, certificate + (b"" if issuer is None else issuer.certificate))

    def saved(self, key: bytes, certificate: bytes) -> Certified:
        """The peer with this key and certificate, whatever it says."""
        self._made += 1
        data = self._folder / f"{self._made}"
        data.mkdir(parents=True)
        files = IdentityFiles(data)
        files.save_key(key)
        files.save(certificate, self.issuer.certificate, None)
        return Certified(files.load(), files)
