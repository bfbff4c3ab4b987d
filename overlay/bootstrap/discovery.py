"""Finding candidates: a Kademlia side-channel over UDP, on the port number of the overlay.

It only yields hints, (id, address) pairs that the overlay then dials itself. It stores nothing and does not decide the
owner of a key. The ring works without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Sequence
from typing import Final, Protocol

from kademlia.node import Node as Contact

from ringmq.overlay.bootstrap.kademlia import Lookups, id_of, ip_version, kademlia_key
from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.queries import cause

LOOKUP_S: Final = 60.0
"""A lookup among dead contacts takes 5 s a round; then it is given up."""
FIRST_PAUSE: Final = 2.0
"""Pause between the first lookups, in reunion_s; doubled after each lookup without a new peer."""
MAX_PAUSE_S: Final = 900.0
HINTS: Final = 4
"""Candidates followed up per lookup: each costs a connection."""


class HintOwner(Protocol):
    """The peer that follows the hints."""

    def known(self, peer: Id) -> bool: ...
    async def introduce(self, address: Address) -> Hello: ...
    def introduced(self, hello: Hello) -> None: ...


class Discovery:
    """Create, `await start`, and `await stop()`; each candidate that is found is introduced to `owner`."""

    def __init__(self, config: OverlayConfig, owner: HintOwner, incidents: Incidents) -> None:
        self._config = config
        self._owner = owner
        self._incidents = incidents
        self._server: Lookups | None = None
        self._task: asyncio.Task[None] | None = None
        self._random = random.Random(int(config.id))

    async def start(self, port: int, seeds: Sequence[Address]) -> None:
        """Listen and begin. A UDP port in use is counted and logged only: the overlay works without discovery."""
        server = Lookups(kademlia_key(self._config.id), self._incidents)
        try:
            await server.listen(port, self._config.listen[0])
        except (OSError, UnicodeError) as error:
            here = show((self._config.listen[0], port))
            self._incidents.warn("discovery_unavailable", here, f"cannot listen on UDP {here}: {cause(error)}")
            return
        self._server = server
        self._task = asyncio.create_task(self._run(server, seeds), name="discovery")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._server is not None:
            await self._server.end()

    async def _run(self, server: Lookups, seeds: Sequence[Address]) -> None:
        pause_s = self._config.timing.reunion_s * FIRST_PAUSE
        rounds = 0
        while True:
            news = 0
            try:
                async with asyncio.timeout(LOOKUP_S):
                    # The package drops contacts that do not answer. Once the table is empty, seeds are asked again.
                    if server.protocol.router.find_neighbors(server.node):
                        found = await server.lookup(self._target(rounds))
                    else:
                        found = await server.bootstrap(await self._resolved(seeds))
                    news = await self._follow(found)
            except TimeoutError:
                self._incidents.count("discovery_timeouts")
            except Exception:  # noqa: BLE001 - a task's root: logged and counted
                self._incidents.failed("discovery_errors")
            rounds += 1
            pause_s = self._config.timing.reunion_s * FIRST_PAUSE if news else min(pause_s * 2, MAX_PAUSE_S)
            # Peers that were started together must not look up together.
            await asyncio.sleep(pause_s * (0.75 + 0.5 * self._random.random()))

    def _target(self, rounds: int) -> bytes:
        """Key of the next lookup: the own id and a random id in turn, for near and far peers."""
        own = rounds % 2 == 0
        return kademlia_key(self._config.id if own else Id(self._random.getrandbits(ID_BITS)))

    async def _resolved(self, seeds: Sequence[Address]) -> list[Address]:
        """The seeds with addresses instead of host names: the package takes no names."""
        assert self._server is not None
        # The socket sends to addresses of its own IP version only.
        family = socket.AF_INET6 if ip_version(self._server.transport) == 6 else socket.AF_INET
        found: list[Address] = []
        for host, port in seeds:
            with contextlib.suppress(OSError, UnicodeError):
                infos = await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
                found += [(str(info[4][0]), port) for info in infos[:1]]
        return found

    async def _follow(self, found: Sequence[Contact]) -> int:
        """Introduce up to HINTS peers that the ring does not know. Returns the number of answers."""
        new = [contact for contact in found if not self._owner.known(id_of(contact.id))]
        answered = 0
        for contact in new[:HINTS]:
            try:
                self._owner.introduced(await self._owner.introduce((contact.ip, contact.port)))
                answered += 1
            except OverlayError:
                self._incidents.count("hints_stale")
        return answered
