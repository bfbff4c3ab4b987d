"""Rings with identity for tests: an authority, and peers that it has certified, each with a folder of its own."""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path

from ringmq.overlay.core.ids import Id
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

    def read(self, certificate: bytes) -> Proof | None:
        return self._identity.read(certificate)

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
