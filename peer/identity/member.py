"""A member of a ring with identity, as a running peer: it proves itself, admits newcomers, and obeys its operator.

Owns the decisions; files, certificates and messages have modules of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ringmq.overlay.core.codec import one_line
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.proofs import Proof
from ringmq.peer.errors import PeerError
from ringmq.peer.identity.admission import Admission, JoinRequest
from ringmq.peer.identity.commands import Command, Invite, Result, is_name, name_from
from ringmq.peer.identity.identity_files import Identity, IdentityFiles
from ringmq.peer.identity.invitations import Invitation, Invitations, NotAdmittedError
from ringmq.peer.identity.next_machine import join_line
from ringmq.peer.settings.tokens import Token, fingerprint_of

if TYPE_CHECKING:
    from types import ModuleType

    from ringmq.overlay.config import Address
    from ringmq.peer.settings.model import PeerConfig

NO_ISSUER: Final = "this peer may not admit others: ask one of the first peers of the ring"

log = structlog.get_logger()


async def load_certifying() -> ModuleType:
    """The module that makes keys and certificates, loaded beside the event loop: it takes a second on small machines.

    Raises PeerError if the package that it needs is not installed.
    """
    return await asyncio.to_thread(_import_certifying)


def _import_certifying() -> ModuleType:
    try:
        return importlib.import_module("ringmq.peer.identity.certifying")
    except ImportError as error:
        raise PeerError(f"identity: the Python package `cryptography` is missing ({error}): install it") from error


class RingMember:
    """The credentials of a running peer. Set `address` when it is known."""

    def __init__(self, files: IdentityFiles, now: Callable[[], float], config: PeerConfig) -> None:
        self._files = files
        self._config = config
        self._identity: Identity = files.load()
        self._issuer = files.issuer()
        self._root = files.root()
        self._invitations = Invitations(files.folder, now)
        self._incidents = Incidents()
        self.server: ssl.SSLContext = self._identity.server
        self.client: ssl.SSLContext = self._identity.client
        self.address: Address = ("", 0)

    @property
    def proof(self) -> Proof:
        return self._identity.proof

    def read(self, certificate: bytes) -> Proof | None:
        return self._identity.read(certificate)

    async def admit(self, request: bytes, host: str) -> bytes:
        try:
            asked = msgspec.json.decode(request, type=JoinRequest)
            admission = await self._admitted(asked, host)
        except (ValueError, RecursionError, PeerError) as error:
            why = one_line(str(error))
            self._incidents.warn("joins_refused", host, why)
            admission = Admission(refused=why)
        return msgspec.json.encode(admission)

    async def _admitted(self, asked: JoinRequest, host: str) -> Admission:
        ring = self._config.ring
        if asked.ring != ring:
            raise NotAdmittedError(f"this is ring {ring!r}, and not {asked.ring!r}: use the same name")
        if self._issuer is None:
            raise NotAdmittedError(NO_ISSUER)
        certifying: Any = await load_certifying()
        issuer = certifying.Issuer(*self._issuer)
        public_key = bytes.fromhex(asked.public_key)
        # A wrong key must not use the token.
        certifying.check(public_key)
        founder = issuer.certificate == self._root
        # As many as may crash at once.
        may_issue = founder and self._invitations.issuers < self._config.shadows
        invitation = self._invitations.redeem(bytes.fromhex(asked.secret), public_key, may_issue=may_issue)
        return self._certified(certifying, asked, invitation, host)

    def _certified(self, certifying: Any, asked: JoinRequest, invitation: Invitation, host: str) -> Admission:
        assert self._issuer is not None
        issuer = certifying.Issuer(*self._issuer)
        name = invitation.name or name_from(asked.name)
        salt = bytes.fromhex(invitation.salt)
        peer_id, certificate = certifying.certify(issuer, bytes.fromhex(asked.public_key), salt, name)
        log.info("peer admitted", name=name, id=peer_id.short(), host=host)
        if issuer.certificate != self._root:
            certificate += issuer.certificate
        right = certifying.certify_issuer(issuer, peer_id) if invitation.issuer else None
        return Admission(
            certificate=certificate.decode(),
            root=self._root.decode(),
            issuer_key=right.key.decode() if right is not None else "",
            issuer_certificate=right.certificate.decode() if right is not None else "",
        )

    async def command(self, request: bytes) -> bytes:
        try:
            result = await self._obey(msgspec.json.decode(request, type=Command))
        except (ValueError, RecursionError, PeerError) as error:
            result = Result(error=one_line(str(error)))
        return msgspec.json.encode(result)

    async def _obey(self, command: Command) -> Result:
        return Result(text=await self.next_machine(command))

    async def next_machine(self, wish: Invite = Invite()) -> str:  # noqa: B008 - immutable
        """The command by which another machine joins. Raises PeerError as `invite` does."""
        return join_line(self._config, await self.invite(wish))

    async def invite(self, wish: Invite) -> Token:
        """Make a token for another machine. Raises PeerError if this peer may not."""
        if self._issuer is None:
            raise PeerError(NO_ISSUER)
        if wish.name and not is_name(wish.name):
            raise PeerError(f"name must be letters, digits, dots, underscores and dashes, got {wish.name!r}")
        # Loaded now, so that the newcomer does not wait for it.
        await load_certifying()
        secret = self._invitations.make(wish.name, wish.for_s)
        return Token(fingerprint_of(self._identity.public_key), secret, self.address)
