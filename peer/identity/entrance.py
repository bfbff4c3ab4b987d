"""The entrance to a ring with identity: a peer founds the ring's authority, or is admitted with a token, or is known.

Happens at each start, before the peer listens. Owns the choice between the three; nothing else makes certificates.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from ringmq.overlay.config import Address, show
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.proofs import SALT_BYTES
from ringmq.peer.errors import DataFolderError, PeerError
from ringmq.peer.identity.admission import JoinRequest, request_admission
from ringmq.peer.identity.commands import name_from
from ringmq.peer.identity.data_folder import DataFolder, check_folder
from ringmq.peer.identity.identity_files import IdentityFiles
from ringmq.peer.identity.member import RingMember, load_certifying
from ringmq.peer.settings.addresses import is_loopback
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.tokens import Token

RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 15.0
"""Pauses between two questions to an inviter that does not answer."""

log = structlog.get_logger()


class Entrance:
    """One start of one peer."""

    def __init__(self, config: PeerConfig, folder: DataFolder, stopped: asyncio.Event) -> None:
        self._config = config
        self._folder = folder
        self._stopped = stopped
        self.founded = False
        """Whether this start has founded the ring's authority."""
        self.is_alone = False
        """Whether this peer may admit others, and has never met any: the start that founded the ring may have failed
        before it could say how to."""

    async def enter(self) -> RingMember | None:
        """The peer as a member of its ring. None: it was stopped meanwhile.

        Raises PeerError with one line if this peer cannot be a member.
        """
        check_entrance(self._config, self._folder.folder, self._folder.remembered)
        files = IdentityFiles(self._folder.folder)
        if not files.complete:
            await self._begin(files)
        if not files.complete:
            return None
        member = RingMember(files, time.time, self._config)
        self._folder.take_id(member.proof.id)
        self.is_alone = member.may_admit and not self._folder.remembered
        return member

    async def _begin(self, files: IdentityFiles) -> None:
        """Get a certificate for a peer that has none."""
        token = self._config.token
        if token is not None:
            await self._join(files, token)
        else:
            await self._found(files)

    async def _found(self, files: IdentityFiles) -> None:
        certifying: Any = await load_certifying()
        key = await self._own_key(files, certifying)
        authority = certifying.found(self._config.ring)
        salt = secrets.token_bytes(SALT_BYTES)
        name = name_from(socket.gethostname())
        peer_id, certificate = certifying.certify(authority, certifying.public_part(key), salt, name)
        files.save(certificate, authority.certificate, (authority.key, authority.certificate))
        self.founded = True
        log.info("ring founded", ring=self._config.ring, id=peer_id.short(), name=name)

    async def _join(self, files: IdentityFiles, token: Token) -> None:
        """Ask the inviter until it answers, or this peer is stopped."""
        certifying: Any = await load_certifying()
        key = await self._own_key(files, certifying)
        public_key = certifying.public_part(key).hex()
        request = JoinRequest(self._config.ring, token.secret.hex(), public_key, name_from(socket.gethostname()))
        pause_s = RETRY_S
        while not self._stopped.is_set():
            try:
                admission = await request_admission(token, request)
            except OverlayError as error:
                if pause_s == RETRY_S:
                    log.warning("waits for the peer that printed the token", why=str(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause_s)
                pause_s = min(2 * pause_s, MAX_RETRY_S)
            else:
                issuer = (admission.issuer_key.encode(), admission.issuer_certificate.encode())
                files.save(admission.certificate.encode(), admission.root.encode(), issuer if issuer[0] else None)
                log.info("admitted", by=show(token.address))
                return

    async def _own_key(self, files: IdentityFiles, certifying: Any) -> bytes:
        key = files.key()
        if key is None:
            key = certifying.new_key()
            files.save_key(key)
        return key


def check_entrance(config: PeerConfig, folder: Path, remembered: Sequence[Address]) -> None:
    """Check, without changing anything, that a peer could enter its ring with this data folder. Raises PeerError."""
    files = IdentityFiles(folder)
    if files.complete:
        if config.insecure:
            raise DataFolderError(
                f"insecure: {files.folder} makes this peer a member of a ring with identity: use another data folder"
            )
        files.load()
    elif config.proves and config.token is None:
        itself = (config.advertise or config.overlay[0], config.overlay[1])
        if config.seeds and config.seeds[0] != itself:
            raise PeerError(
                f"join: {show(config.seeds[0])} needs a token in front: `ringmq invite` on a machine of its ring "
                "prints it; for a ring that anybody can join, set insecure"
            )
        if remembered:
            raise DataFolderError(
                f"data: {folder} knows peers of a ring without identity: set insecure to go on with it, or use another "
                "data folder"
            )


def with_reachable_overlay(config: PeerConfig) -> PeerConfig:
    """Without an `overlay` of its own, a peer with a token of another machine, or one that knows the peers of its ring,
    takes the address that reaches them: nobody else would find it on a loopback address.

    Raises PeerError if there is none.
    """
    others = _elsewhere(config) if config.overlay == PeerConfig().overlay else []
    for number, address in enumerate(others, 1):
        try:
            return dataclasses.replace(config, overlay=(_own_host(address), config.overlay[1]))
        except PeerError:
            if number == len(others):
                raise
    return config


def _elsewhere(config: PeerConfig) -> list[Address]:
    """Addresses of other machines of the ring."""
    known = [] if config.token is None else [config.token.address]
    if config.data is not None and IdentityFiles(config.data).complete:
        known += [*config.seeds, *check_folder(config.data)]
    return [address for address in known if not is_loopback(address[0])]


def _own_host(address: Address) -> str:
    """The address of this machine by which it reaches another."""
    try:
        infos = socket.getaddrinfo(*address, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, target = infos[0]
        with socket.socket(family, kind, protocol) as probe:
            # Of a datagram socket, this only chooses the way: nothing is sent.
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError) as error:
        raise PeerError(
            f"join: no way to {show(address)}: {error}: name the overlay address of this machine"
        ) from error
