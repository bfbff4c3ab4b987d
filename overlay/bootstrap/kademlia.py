"""The `kademlia` package behind a strict protocol.

Its datagram handling is replaced by strict, synchronous and bounded code: the package starts a task per
datagram, trusts every field, and would resolve host names found in replies while the event loop waits. STORE and
FIND_VALUE are not served, the routing table is bounded, nothing periodic runs, and the package's loggers are off. Its
5 s timeouts remain: a lookup needs a task of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal

import msgspec
from kademlia.crawling import NodeSpiderCrawl
from kademlia.network import Server
from kademlia.node import Node as Contact
from kademlia.protocol import KademliaProtocol
from kademlia.routing import RoutingTable
from kademlia.storage import IStorage
from msgspec import Meta

from ringmq.overlay.config import Address
from ringmq.overlay.core.ids import ID_BYTES, Id
from ringmq.overlay.links.incidents import Incidents

KEY_BYTES: Final = 20
"""Kademlia's ids have 160 bits: ours come first, so that their numerical order is kept."""
BUCKET: Final = 8
"""Kademlia's k, as in the Mainline DHT. Hints need no more; a reply stays below 500 bytes, 5 times its request."""
MAX_CONTACTS: Final = 512
"""Contacts in the whole routing table: bounds the memory that made-up ids can take."""
MAX_PENDING: Final = 64
"""Requests without an answer yet; a lookup has 3, and each new contact may cause a ping."""

Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Request = tuple[Literal["ping", "find_node"], Annotated[list[Key], Meta(min_length=1, max_length=2)]]
Found = tuple[Key, Annotated[str, Meta(max_length=64)], Annotated[int, Meta(ge=1, le=65535)]]
_HEAD_BYTES: Final = 21
"""A datagram begins with its kind, 0 for a request and 1 for a reply, and 20 bytes that pair the two."""

_request_of = msgspec.msgpack.Decoder(Request).decode
_reply_of = msgspec.msgpack.Decoder(Key | Annotated[list[Found], Meta(max_length=20)]).decode
_encode = msgspec.msgpack.Encoder().encode


def kademlia_key(peer_id: Id) -> bytes:
    return peer_id.packed().ljust(KEY_BYTES, b"\0")


def id_of(key: bytes) -> Id:
    return Id.unpack(key[:ID_BYTES])


def dialable(host: str, version: int) -> bool:
    """Whether a host from a stranger is an address, of one machine, that needs no resolving."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.version == version and not (
        address.is_unspecified or address.is_multicast or (address.is_reserved and not address.is_loopback)
    )


def ip_version(transport: asyncio.BaseTransport) -> int:
    """IP version of the addresses that a UDP socket can send to."""
    return 6 if ":" in transport.get_extra_info("sockname")[0] else 4


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


class _Table(RoutingTable):  # type: ignore[misc]
    """The package's, which looks for an id at the upper end of a bucket in the next one and so keeps it twice."""

    def get_bucket_for(self, contact: Contact) -> int:
        return next(at for at, bucket in enumerate(self.buckets) if contact.long_id <= bucket.range[1])


class _Protocol(KademliaProtocol):  # type: ignore[misc]
    """The package's protocol with strict checks.

    Caution: in a subclass of it, any attribute that does not exist is a remote call.
    """

    def __init__(self, source: Contact, storage: IStorage, bucket: int, incidents: Incidents) -> None:
        super().__init__(source, storage, bucket)
        self.router = _Table(self, bucket, source)
        self._incidents = incidents
        self._version = 4

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._version = ip_version(transport)

    def datagram_received(self, data: bytes, address: tuple[Any, ...]) -> None:
        try:
            if len(data) > _HEAD_BYTES and data[0] == 0:
                self._request(data[1:_HEAD_BYTES], data[_HEAD_BYTES:], address)
            elif len(data) > _HEAD_BYTES and data[0] == 1:
                self._reply(data[1:_HEAD_BYTES], data[_HEAD_BYTES:])
            else:
                self._incidents.count("discovery_garbage")
        except (msgspec.MsgspecError, ValueError, RecursionError, OSError):
            self._incidents.count("discovery_garbage")
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("discovery_errors")

    def error_received(self, exc: Exception) -> None:
        """ICMP reports an absent peer: the timeout of its request handles that."""

    def _request(self, number: bytes, body: bytes, address: tuple[Any, ...]) -> None:
        name, keys = _request_of(body)
        if len(keys) != (1 if name == "ping" else 2):
            self._incidents.count("discovery_garbage")
            return
        # The package looks a method up by the name in the datagram: strangers could call all that begin with `rpc_`.
        reply = self.rpc_ping(address, *keys) if name == "ping" else self.rpc_find_node(address, *keys)
        self.transport.sendto(b"\x01" + number + _encode(reply), address)

    def _reply(self, number: bytes, body: bytes) -> None:
        reply = _reply_of(body)
        if number not in self._outstanding:
            self._incidents.count("discovery_garbage")
            return
        if isinstance(reply, list):
            # The package would resolve host names from a reply while the event loop waits.
            mine = self.source_node.id
            reply = [found for found in reply if found[0] != mine and dialable(found[1], self._version)]
        self._resolve(number, (True, reply))

    def _timeout(self, number: bytes) -> None:
        self._resolve(number, (False, None))

    def _resolve(self, number: bytes, result: tuple[bool, object]) -> None:
        future, timer = self._outstanding.pop(number)
        timer.cancel()
        # The timeout of a lookup cancels its future, and a second result would raise InvalidStateError.
        if not future.done():
            future.set_result(result)

    async def call_find_node(self, asked: Contact, wanted: Contact) -> object:
        if len(self._outstanding) >= MAX_PENDING:
            return (False, None)
        answered, found = await self.find_node((asked.ip, asked.port), self.source_node.id, wanted.id)
        # A stranger may answer with a key, as to a ping, which the package's crawl would take for a list of contacts.
        return self.handle_call_response((answered and isinstance(found, list), found), asked)

    async def call_ping(self, asked: Contact) -> object:
        if len(self._outstanding) >= MAX_PENDING:
            return (False, None)
        return await super().call_ping(asked)

    def welcome_if_new(self, contact: Contact) -> None:
        """Replaces the package's method: no transfer of stored values, and at most MAX_CONTACTS."""
        if contact.id == self.source_node.id or not self.router.is_new_node(contact):
            return
        if sum(len(bucket.nodes) + len(bucket.replacement_nodes) for bucket in self.router.buckets) < MAX_CONTACTS:
            self.router.add_contact(contact)

    def end(self) -> None:
        """Cancel all timers and requests."""
        for future, timer in self._outstanding.values():
            timer.cancel()
            future.cancel()
        self._outstanding.clear()


class Lookups(Server):  # type: ignore[misc]
    """The package's lookups without its periodic work."""

    def __init__(self, key: bytes, incidents: Incidents) -> None:
        super().__init__(ksize=BUCKET, node_id=key, storage=_Nowhere())
        # The package warns for each datagram that it does not understand, so strangers could fill the log.
        for name in ("kademlia", "rpcudp"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._incidents = incidents

    def _create_protocol(self) -> _Protocol:
        return _Protocol(self.node, self.storage, self.ksize, self._incidents)

    async def bootstrap_node(self, addr: Address) -> Contact | None:
        answered, key = await self.protocol.ping(addr, self.node.id)
        # The package takes any reply for a key, also a list.
        if not answered or not isinstance(key, bytes):
            return None
        contact = Contact(key, *addr)
        self.protocol.welcome_if_new(contact)
        return contact

    async def lookup(self, key: bytes) -> list[Contact]:
        """The contacts closest to a key, found by the package's crawl."""
        wanted = Contact(key)
        nearest = self.protocol.router.find_neighbors(wanted, self.alpha)
        crawl = NodeSpiderCrawl(self.protocol, wanted, nearest, self.ksize, self.alpha)
        return list(await crawl.find())

    def refresh_table(self, interval: int = 3600) -> None:
        """Nothing: our own lookups refresh the table, at growing pauses while they bring no new peer."""

    async def end(self) -> None:
        """Close the socket; end all timers and tasks."""
        self.stop()
        self.protocol.end()
        # The tasks of the package's pings end in the next iteration, as their requests are cancelled.
        await asyncio.sleep(0)
