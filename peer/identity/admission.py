"""Admission: how a newcomer with a token gets its certificate, as both sides see it.

One question and one answer over TLS. The newcomer knows the inviter by the fingerprint in its token before it says the
secret; the inviter knows the newcomer by the secret. Knows no files and no sockets.
"""

from __future__ import annotations

import hmac
import ssl
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.config import show
from ringmq.overlay.core.codec import one_line
from ringmq.overlay.errors import OverlayError, ProtocolError
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import MAX_HELLO_BYTES, MAX_RING_CHARS
from ringmq.overlay.links.proofs import Proof, public_key_of
from ringmq.overlay.queries import ask
from ringmq.peer.identity.commands import Name
from ringmq.peer.identity.invitations import NotAdmittedError
from ringmq.peer.settings.tokens import Token, fingerprint_of

MAX_ADMISSION_BYTES: Final = 65536
"""Some ten times the size of an answer."""
ADMISSION_S: Final = 15.0
"""The inviter may have to load its code first."""
MISTAKEN: Final = "the peer there is not the one that printed the token"

Hex = Annotated[str, Meta(pattern="^([0-9a-f]{2})*$", max_length=256)]
Pem = Annotated[str, Meta(max_length=16384)]


class JoinRequest(msgspec.Struct, frozen=True):
    """Body of a JOIN."""

    ring: Annotated[str, Meta(max_length=MAX_RING_CHARS)]
    secret: Hex
    public_key: Hex
    """SubjectPublicKeyInfo in DER."""
    name: Name
    """What the newcomer would be called, if its token does not say."""


class Admission(msgspec.Struct, frozen=True):
    """Body of an ADMISSION."""

    refused: str = ""
    """Why not; all else is empty then."""
    certificate: Pem = ""
    """Of the newcomer, followed by that of its issuer unless this is the founder's authority."""
    root: Pem = ""
    """Of the founder's authority."""
    issuer_key: Pem = ""
    """With the right to admit others: a private key for it, and its certificate."""
    issuer_certificate: Pem = ""


class _Newcomer:
    """The identity of a machine that has none yet: it only knows whom it asks."""

    def __init__(self, token: Token) -> None:
        self._fingerprint = token.fingerprint
        self.mistaken = False
        """Whether another peer than the inviter has answered."""
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.minimum_version = ssl.TLSVersion.TLSv1_3
        self.client.check_hostname = False
        # The fingerprint decides, and nobody else is known.
        self.client.verify_mode = ssl.CERT_NONE

    def read(self, certificate: bytes) -> Proof | None:
        try:
            known = hmac.compare_digest(fingerprint_of(public_key_of(certificate)), self._fingerprint)
        except ValueError:
            known = False
        if not known:
            self.mistaken = True
            raise OverlayError(MISTAKEN)
        return None


async def request_admission(token: Token, request: JoinRequest) -> Admission:
    """Ask the inviter. Raises NotAdmittedError if it refuses, OverlayError if it does not answer or is another peer."""
    question = frame(Kind.JOIN, msgspec.json.encode(request))
    assert len(question) <= MAX_HELLO_BYTES
    newcomer = _Newcomer(token)
    try:
        answer = await ask(token.address, question, MAX_ADMISSION_BYTES, ADMISSION_S, newcomer)
    except OverlayError as error:
        if newcomer.mistaken:
            raise NotAdmittedError(f"join: {show(token.address)}: {MISTAKEN}") from error
        raise
    try:
        if answer.kind != Kind.ADMISSION:
            raise ProtocolError(f"frame kind {answer.kind}")
        admission = msgspec.json.decode(answer.body, type=Admission)
    except (ValueError, RecursionError, ProtocolError) as error:
        raise OverlayError(f"{show(token.address)} sent no readable admission: {error}") from error
    if admission.refused:
        raise NotAdmittedError(f"join: {show(token.address)} refuses: {one_line(admission.refused)}")
    return admission
