"""Finding candidates: a Kademlia side-channel over UDP, on the port number of the overlay.

It only ever yields hints, (id, address) pairs that the overlay then dials itself; it stores nothing, and nobody asks it
who owns a key. The ring works without it.

The `kademlia` package is contained here. Its datagram handling is replaced by one that is strict, synchronous and
bounded (the package starts a task per datagram, trusts every field, and would resolve host names found in replies
while the event loop waits); STORE and FIND_VALUE are not served; its routing table is bounded; its loggers are off; its
5 s timeouts are spent in a task of their own.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal, Protocol

import msgspec
from kademlia.network import Server
from kademlia.node import Node as Contact
from kademlia.protocol import KademliaProtocol
from kademlia.storage import IStorage
from msgspec import Meta

from overlay.config import Address, OverlayConfig, show
from overlay.errors import OverlayError
from overlay.handshake import Hello
from overlay.ids import ID_BITS, ID_BYTES, SPACE, Id
from overlay.notices import Notices
from overlay.questions import cause

KEY_BYTES: Final = 20
"""Kademlia's ids are of 160 bits: ours come first, so that their numerical order is kept."""
BUCKET: Final = 8
"""Kademlia's k, as in the Mainline DHT. Hints need no more; a reply stays below 500 bytes, 5 times its request."""
MAX_CONTACTS: Final = 512
"""In the whole routing table: the memory that made-up ids can take."""
MAX_PENDING: Final = 64
"""Requests under way; a lookup has 3, and each new contact may cause a ping."""
LOOKUP_S: Final = 60.0
"""A lookup among dead contacts takes 5 s a round; then it is given up."""
FIRST_PAUSE: Final = 2.0
"""Between the first lookups, in reunion_s; doubled after each that brought no news."""
MAX_PAUSE_S: Final = 900.0
HINTS: Final = 4
"""Candidates followed up per lookup: each costs a connection."""

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Request = tuple[Literal["ping", "find_node"], Annotated[list[Key], Meta(min_length=1, max_length=2)]]
Found = tuple[Key, Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=1, le=65535)]]
_HEAD_BYTES: Final = 21
"""A datagram begins with its kind, 0 for a request and 1 for a reply, and 20 bytes that pair the two."""

_request_of = msgspec.msgpack.Decoder(Request).decode
_reply_of = msgspec.msgpack.Decoder(Key | Annotated[list[Found], Meta(max_length=20)]).decode
_encode = msgspec.msgpack.Encoder().encode


def kademlia_key(point: Id) -> bytes:
    return point.packed().ljust(KEY_BYTES, b"\0")


def point_of(key: bytes) -> Id:
    return Id.unpack(key[:ID_BYTES])


def dialable(host: str) -> bool:
    """Whether a host from a stranger is an address, of one machine, that needs no resolving."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return not (address.is_unspecified or address.is_multicast or address.is_reserved and not address.is_loopback)


class Newcomers(Protocol):
    """Whom the hints are for."""

    def known(self, peer: Id) -> bool: ...
    async def introduce(self, address: Address) -> Hello: ...
    def introduced(self, hello: Hello) -> None: ...


class _Nowhere(IStorage):  # type: ignore[misc]
    """Stores nothing."""

    def __setitem__(self, key: bytes, value: object) -> None: ...
    def __getitem__(self, key: bytes) -> object:
        raise KeyError(key)

    def get(self, key: bytes, default: object = None) -> object:
        return default

    def iter_older_than(self, seconds_old: float) -> Iterator[tuple[bytes, object]]:
        return iter(())

    def __iter__(self) -> Iterator[tuple[bytes, object]]:
        return iter(())


class _Protocol(KademliaProtocol):  # type: ignore[misc]
    """The package's protocol behind a strict door. (Any attribute it lacks would be a remote call: none is misspelt.)"""

    def __init__(self, source: Contact, storage: IStorage, bucket: int, notices: Notices) -> None:
        super().__init__(source, storage, bucket)
        self._notices = notices

    def datagram_received(self, data: bytes, address: tuple[Any, ...]) -> None:
        try:
            if len(data) > _HEAD_BYTES and data[0] == 0:
                self._request(data[1:_HEAD_BYTES], data[_HEAD_BYTES:], address)
            elif len(data) > _HEAD_BYTES and data[0] == 1:
                self._reply(data[1:_HEAD_BYTES], data[_HEAD_BYTES:])
            else:
                self._notices.count("discovery_garbage")
        except (msgspec.MsgspecError, ValueError, RecursionError, OSError):
            self._notices.count("discovery_garbage")
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._notices.failed("discovery_errors")

    def error_received(self, exc: Exception) -> None:
        """ICMP says that somebody is not there: the timeout will tell."""

    def _request(self, number: bytes, body: bytes, address: tuple[Any, ...]) -> None:
        name, keys = _request_of(body)
        if len(keys) != (1 if name == "ping" else 2):
            self._notices.count("discovery_garbage")
            return
        reply = self.rpc_ping(address, *keys) if name == "ping" else self.rpc_find_node(address, *keys)
        self.transport.sendto(b"\x01" + number + _encode(reply), address)

    def _reply(self, number: bytes, body: bytes) -> None:
        reply = _reply_of(body)
        if number not in self._outstanding:
            self._notices.count("discovery_garbage")
            return
        if isinstance(reply, list):
            reply = [found for found in reply if dialable(found[1])]
        self._resolve(number, (True, reply))

    def _timeout(self, number: bytes) -> None:
        self._resolve(number, (False, None))

    def _resolve(self, number: bytes, result: tuple[bool, object]) -> None:
        future, timer = self._outstanding.pop(number)
        timer.cancel()
        if not future.done():
            future.set_result(result)

    async def call_find_node(self, asked: Contact, wanted: Contact) -> object:
        if len(self._outstanding) >= MAX_PENDING:
            return (False, None)
        answered, found = await self.find_node((asked.ip, asked.port), self.source_node.id, wanted.id)
        return self.handle_call_response((answered and isinstance(found, list), found), asked)

    async def call_ping(self, asked: Contact) -> object:
        if len(self._outstanding) >= MAX_PENDING:
            return (False, None)
        return await super().call_ping(asked)

    def welcome_if_new(self, contact: Contact) -> None:
        """Without the package's handing over of stored values, and no more than MAX_CONTACTS."""
        buckets = self.router.buckets
        if self.router.is_new_node(contact) and contact.id != self.source_node.id:
            if sum(len(b.nodes) + len(b.replacement_nodes) for b in buckets) < MAX_CONTACTS:
                self.router.add_contact(contact)

    def end(self) -> None:
        """Leave no timer behind."""
        for future, timer in self._outstanding.values():
            timer.cancel()
            future.cancel()
        self._outstanding.clear()


class _Server(Server):  # type: ignore[misc]
    """The package's lookups without its periodic work."""

    def __init__(self, key: bytes, notices: Notices) -> None:
        super().__init__(ksize=BUCKET, node_id=key, storage=_Nowhere())
        self._notices = notices

    def _create_protocol(self) -> _Protocol:
        return _Protocol(self.node, self.storage, self.ksize, self._notices)

    def refresh_table(self, interval: int = 3600) -> None:
        """Our own lookups refresh the table, less often the fewer news they bring."""


class Discovery:
    """Create, `await start`, and `await stop()`; each candidate found is introduced to `newcomers`."""

    def __init__(self, config: OverlayConfig, newcomers: Newcomers, notices: Notices) -> None:
        self._config = config
        self._newcomers = newcomers
        self._notices = notices
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._random = random.Random(int(config.id))
        for name in ("kademlia", "rpcudp"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    async def start(self, port: int, seeds: Sequence[Address]) -> None:
        """Without its UDP port there is no discovery: counted and logged, as the overlay works without."""
        server = _Server(kademlia_key(self._config.id), self._notices)
        try:
            await server.listen(port, self._config.listen[0])
        except (OSError, UnicodeError) as error:
            here = show((self._config.listen[0], port))
            self._notices.warn("discovery_unavailable", here, f"cannot listen on UDP {here}: {cause(error)}")
            return
        self._server = server
        self._task = asyncio.create_task(self._run(server, seeds), name="discovery")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._server is not None:
            self._server.stop()
            self._server.protocol.end()

    async def _run(self, server: _Server, seeds: Sequence[Address]) -> None:
        pause_s = self._config.timing.reunion_s * FIRST_PAUSE
        rounds = 0
        while True:
            news = 0
            try:
                async with asyncio.timeout(LOOKUP_S):
                    if server.protocol.router.find_neighbors(server.node):
                        found = await self._lookup(server, self._target(rounds))
                    else:
                        found = await server.bootstrap(await self._resolved(seeds))
                    news = await self._follow(found)
            except TimeoutError:
                self._notices.count("discovery_timeouts")
            except Exception:  # noqa: BLE001 - a task's root: logged and counted
                self._notices.failed("discovery_errors")
            rounds += 1
            pause_s = self._config.timing.reunion_s * FIRST_PAUSE if news else min(pause_s * 2, MAX_PAUSE_S)
            await asyncio.sleep(pause_s * (0.75 + 0.5 * self._random.random()))

    def _target(self, rounds: int) -> bytes:
        """The own surroundings and far ones in turn."""
        own = rounds % 2 == 0
        return kademlia_key(self._config.id if own else Id(self._random.getrandbits(ID_BITS)))
