"""A member of a ring with identity, as a running peer: it proves itself, admits newcomers, and obeys its operator.

Owns the decisions; files, certificates and messages have modules of their own.
"""

from __future__ import annotations

import asyncio
import importlib
import re
import ssl
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from ringmq.overlay.core.codec import one_line
from ringmq.overlay.core.ids import Id
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.proofs import Proof
from ringmq.peer.errors import PeerError
from ringmq.peer.identity.admission import Admission, JoinRequest
from ringmq.peer.identity.commands import Command, Expel, Invite, Result, is_name, name_from
from ringmq.peer.identity.expulsions import Expulsion, Expulsions, SignedExpulsion
from ringmq.peer.identity.identity_files import Identity, IdentityFiles
from ringmq.peer.identity.invitations import Invitation, Invitations, NotAdmittedError
from ringmq.peer.identity.next_machine import join_line
from ringmq.peer.settings.tokens import Token, fingerprint_of

if TYPE_CHECKING:
    from types import ModuleType

    from ringmq.overlay.config import Address
    from ringmq.peer.settings.model import PeerConfig

MIN_DIGITS: Final = 8
"""Digits of an id that name a peer: as many as lists show."""
_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
NO_ISSUER: Final = "this peer may not admit others: ask one of the first peers of the ring"

log = structlog.get_logger()


class ExpelledError(PeerError):
    """This peer was expelled from its ring."""

    def __init__(self, expulsion: Expulsion, folder: Path, *, itself: bool) -> None:
        who = "this peer" if itself else f"the peer that admitted this one ({expulsion.name})"
        advice = f"to come back, remove {folder} and join with a new token"
        super().__init__(f"{who} was expelled from its ring at {expulsion.by}: {advice}")


def _nothing() -> None:
    """Nobody watches yet."""


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
        self._now = now
        self._identity: Identity = files.load()
        self._issuer = files.issuer()
        self._root = files.root()
        self._invitations = Invitations(files.folder, now)
        self._incidents = Incidents()
        self._expulsions = Expulsions(files.folder)
        self._changed: Callable[[], None] = _nothing
        self.known: Callable[[], Iterable[Proof]] = list
        """The members that this one has links with, to find a peer by its name."""
        self.on_expelled: Callable[[ExpelledError], None] = lambda error: None
        """Called when this peer itself is expelled: it must end."""
        self.server: ssl.SSLContext = self._identity.server
        self.client: ssl.SSLContext = self._identity.client
        self.address: Address = ("", 0)

    @property
    def proof(self) -> Proof:
        return self._identity.proof

    @property
    def may_admit(self) -> bool:
        """Whether this peer is an issuer."""
        return self._issuer is not None

    def read(self, certificate: bytes) -> Proof | None:
        return self._identity.read(certificate)

    @property
    def expelled(self) -> Container[Id]:
        return self._expulsions

    @property
    def expulsions(self) -> bytes:
        return self._expulsions.digest

    def evidence(self, about: Proof | None) -> bytes:
        if about is None:
            return self._expulsions.document()
        return self._expulsions.document([about.id] if about.issuer is None else [about.id, about.issuer])

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    async def learn(self, evidence: bytes) -> None:
        entries = self._expulsions.unknown(evidence)
        if entries:
            certifying: Any = await load_certifying()
            self._take(self._expulsions.learn(entries, partial(certifying.verify, self._root)))

    def _take(self, new: Sequence[Expulsion]) -> None:
        for expulsion in new:
            log.warning("peer expelled", id=expulsion.id[:8], name=expulsion.name, by=expulsion.by)
        if new:
            self._changed()
            self.check_own()

    def check_own(self) -> None:
        """Call `on_expelled` if this peer is expelled."""
        itself = self._expulsions.get(self.proof.id)
        issuer = None if self.proof.issuer is None else self._expulsions.get(self.proof.issuer)
        found = itself or issuer
        if found is not None:
            self.on_expelled(ExpelledError(found, self._files.folder, itself=itself is not None))

    async def _expel(self, wish: Expel) -> Result:
        if self._issuer is None:
            raise PeerError(NO_ISSUER)
        certifying: Any = await load_certifying()
        proof = self._find(wish.who)
        if proof.id == self.proof.id:
            raise PeerError("this is this peer itself: expel it at another issuer")
        issuer = certifying.Issuer(*self._issuer)
        expulsion = Expulsion(proof.id.hex(), proof.name, self.proof.name, int(self._now()))
        signature = certifying.sign(issuer, expulsion.text).hex()
        entry = SignedExpulsion(expulsion, signature, issuer.certificate.decode())
        self._take(self._expulsions.learn([entry], partial(certifying.verify, self._root)))
        return Result(text=f"{proof.name or 'peer'} ({proof.id.hex()}) is expelled")

    def _find(self, who: str) -> Proof:
        """The member of this name or id. Raises PeerError unless there is just one."""
        every = {proof.id: proof for proof in self.known()} | {self.proof.id: self.proof}
        for peer, name in self._invitations.admitted.items():
            every.setdefault(peer, Proof(peer, name, None))
        found = [proof for proof in every.values() if who == proof.name]
        if not found and len(who) >= MIN_DIGITS:
            found = [proof for proof in every.values() if proof.id.hex().startswith(who.lower())]
        if not found and _ID.fullmatch(who):
            found = [Proof(Id.parse(who), "", None)]
        if len(found) != 1:
            ids = ", ".join(proof.id.hex() for proof in found)
            advice = f"several peers match: name one of {ids}" if found else "no peer is known by it: name its whole id"
            raise PeerError(f"{who}: {advice}")
        return found[0]

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
        self._invitations.note(peer_id, name)
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
        if isinstance(command, Expel):
            return await self._expel(command)
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
