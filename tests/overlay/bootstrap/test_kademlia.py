"""The kademlia package behind its strict door: garbage is harmless, and everything bounded."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kademlia.node import Node as Contact

from ringmq.overlay.bootstrap.kademlia import (
    BUCKET,
    MAX_CONTACTS,
    MAX_PENDING,
    Lookups,
    dialable,
    id_of,
    ip_version,
    kademlia_key,
)
from ringmq.overlay.config import Address
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.links.incidents import Incidents

ids = st.integers(0, SPACE - 1).map(Id)
NUMBER = b"n" * 20
STRANGER = kademlia_key(Id(77))


class Side:
    """A peer with nothing but lookups."""

    def __init__(self, peer_id: int) -> None:
        self.incidents = Incidents()
        self.lookups = Lookups(kademlia_key(Id(peer_id)), self.incidents)
        self.address: Address = ("127.0.0.1", 0)

    async def start(self) -> None:
        await self.lookups.listen(0, "127.0.0.1")
        self.address = self.lookups.transport.get_extra_info("sockname")[:2]

    @property
    def protocol(self):
        return self.lookups.protocol

    def contacts(self) -> int:
        return sum(len(bucket.nodes) + len(bucket.replacement_nodes) for bucket in self.protocol.router.buckets)


@pytest.fixture
async def side() -> AsyncIterator[Callable[..., object]]:
    """Starts a side; all are ended, and nothing is left running."""
    started: list[Side] = []

    async def begin(peer_id: int) -> Side:
        started.append(Side(peer_id))
        await started[-1].start()
        return started[-1]

    yield begin
    for made in started:
        await made.lookups.end()
        assert not made.protocol._outstanding
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Probe(asyncio.DatagramProtocol):
    """Sends any bytes, and records the replies."""

    def __init__(self) -> None:
        self.replies: list[bytes] = []
        self.calls: list[bytes] = []

    def datagram_received(self, data: bytes, addr: object) -> None:
        (self.calls if data[:1] == b"\x00" else self.replies).append(data)


@pytest.fixture
async def probe() -> AsyncIterator[tuple[asyncio.DatagramTransport, Probe]]:
    transport, protocol = await asyncio.get_running_loop().create_datagram_endpoint(Probe, local_addr=("127.0.0.1", 0))
    yield transport, protocol
    transport.abort()


def request(name: str, *keys: object) -> bytes:
    return b"\x00" + NUMBER + msgspec.msgpack.encode([name, list(keys)])


@given(ids, ids)
def test_keys_keep_the_order_of_ids(ours: Id, other: Id) -> None:
    assert len(kademlia_key(ours)) == 20
    assert id_of(kademlia_key(ours)) == ours
    assert (ours < other) == (kademlia_key(ours) < kademlia_key(other))


@pytest.mark.parametrize(
    ("host", "version", "verdict"),
    [
        ("10.0.0.1", 4, True),
        ("127.0.0.1", 4, True),
        ("::1", 6, True),
        ("fe80::1", 6, True),
        ("::1", 4, False),
        ("10.0.0.1", 6, False),
        ("0.0.0.0", 4, False),
        ("224.0.0.1", 4, False),
        ("255.255.255.255", 4, False),
        ("example.org", 4, False),
        ("", 4, False),
    ],
)
def test_only_addresses_of_one_machine_are_taken_from_strangers(host: str, version: int, verdict: bool) -> None:
    assert dialable(host, version) is verdict


async def test_requests_are_answered(side, probe, until) -> None:
    ours = await side(1)
    transport, sender = probe
    transport.sendto(request("ping", STRANGER), ours.address)
    await until(lambda: sender.replies)
    assert sender.replies == [b"\x01" + NUMBER + msgspec.msgpack.encode(kademlia_key(Id(1)))]
    transport.sendto(request("find_node", kademlia_key(Id(78)), STRANGER), ours.address)
    await until(lambda: len(sender.replies) == 2)


NONSENSE = {
    "one byte": b"\x00",
    "short": b"\x00" * 21,
    "no message": b"\x02" + NUMBER + b"\x90",
    "no such call": request("stun"),
    "store": request("store", STRANGER, STRANGER, b"value"),
    "find_value": request("find_value", STRANGER, STRANGER),
    "short id": request("ping", b"x" * 19),
    "long id": request("ping", b"x" * 21),
    "text id": request("ping", "x" * 20),
    "too few": request("find_node", STRANGER),
    "too many": request("ping", STRANGER, STRANGER),
    "private": request("_timeout", STRANGER),
    "deep": b"\x00" + NUMBER + b"\x91" * 60_000,
    "huge": b"\x00" + NUMBER + b"\xdd\xff\xff\xff\xff",
    "unasked reply": b"\x01" + NUMBER + msgspec.msgpack.encode(STRANGER),
    "bad reply": b"\x01" + NUMBER + b"\xc1",
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE.keys())
async def test_nonsense_is_counted_and_forgotten(side, probe, until, data: bytes) -> None:
    ours = await side(1)
    transport, sender = probe
    transport.sendto(data, ours.address)
    transport.sendto(request("ping", STRANGER), ours.address)
    await until(lambda: sender.replies)
    assert len(sender.replies) == 1
    assert ours.incidents.counters["discovery_garbage"] == 1
    assert ours.incidents.counters["discovery_errors"] == 0
    assert list(ours.protocol.storage) == []


async def test_random_datagrams_harm_nothing(side) -> None:
    ours = await side(1)
    dice = random.Random(5)
    good = [request("ping", STRANGER), request("find_node", STRANGER, STRANGER)]
    for number in range(30_000):
        data = bytearray(dice.choice(good))
        if number % 2:
            data[dice.randrange(len(data))] = dice.randrange(256)
        else:
            data = bytearray([dice.randrange(3)]) + dice.randbytes(dice.randrange(80))
        ours.protocol.datagram_received(bytes(data), ("127.0.0.1", 9))
    assert ours.incidents.counters["discovery_errors"] == 0
    assert ours.incidents.counters["discovery_garbage"] > 15_000
    assert ours.contacts() <= MAX_CONTACTS


async def test_made_up_ids_take_bounded_memory(side) -> None:
    """Each id shares another length of prefix with the last, as one would do to split buckets without end."""
    ours = await side(1)
    dice = random.Random(6)
    for number in range(20_000):
        peer_id = (1 << dice.randrange(160)) if number % 3 == 0 else dice.getrandbits(160) >> dice.randrange(160)
        data = request("ping", peer_id.to_bytes(20, "big"))
        ours.protocol.datagram_received(data, ("127.0.0.1", 1 + number % 60_000))
        ours.protocol.datagram_received(request("find_node", STRANGER, data[-20:]), ("127.0.0.1", 9))
    assert ours.contacts() <= MAX_CONTACTS
    assert len(ours.protocol._outstanding) <= MAX_PENDING
    assert len(ours.protocol.router.buckets) < MAX_CONTACTS
    assert ours.incidents.counters["discovery_errors"] == 0
    assert len(asyncio.all_tasks()) < 200 + MAX_CONTACTS


async def test_hostile_replies_bring_neither_names_nor_errors(side, probe, until) -> None:
    """A reply may list hosts that would have to be resolved, and answers of another kind."""
    ours = await side(1)
    transport, sender = probe
    call = asyncio.ensure_future(ours.protocol.find_node(transport.get_extra_info("sockname"), STRANGER, STRANGER))
    await until(lambda: sender.calls)
    hosts = [[STRANGER, "example.org", 1], [STRANGER, "10.0.0.1", 2], [kademlia_key(Id(1)), "10.0.0.1", 3]]
    transport.sendto(b"\x01" + sender.calls[0][1:21] + msgspec.msgpack.encode(hosts), ours.address)
    assert await call == (True, [(STRANGER, "10.0.0.1", 2)])
    crossed = asyncio.ensure_future(ours.lookups.bootstrap_node(transport.get_extra_info("sockname")))
    await until(lambda: len(sender.calls) == 2)
    transport.sendto(b"\x01" + sender.calls[1][1:21] + msgspec.msgpack.encode(hosts), ours.address)
    assert await crossed is None


# -- storage


async def test_the_storage_takes_nothing_and_has_nothing(side) -> None:
    ours = await side(1)
    storage = ours.protocol.storage
    storage[STRANGER] = b"value"
    with pytest.raises(KeyError):
        storage[STRANGER]
    assert storage.get(STRANGER) is None
    assert storage.get(STRANGER, b"default") == b"default"
    assert list(storage) == list(storage.iter_older_than(0.0)) == []


async def test_store_and_find_value_get_no_reply(side, probe, until) -> None:
    ours = await side(1)
    transport, sender = probe
    for data in (request("store", STRANGER, STRANGER, b"value"), request("find_value", STRANGER, STRANGER)):
        transport.sendto(data, ours.address)
    transport.sendto(b"\x00" + b"m" * 20 + msgspec.msgpack.encode(["ping", [STRANGER]]), ours.address)
    await until(lambda: sender.replies)
    assert [reply[1:21] for reply in sender.replies] == [b"m" * 20]


async def test_a_newcomer_is_handed_no_values(side, probe, until) -> None:
    """The package would call STORE at a new contact for all that it keeps."""
    ours = await side(1)
    ours.protocol.storage[STRANGER] = b"value"
    transport, sender = probe
    transport.sendto(request("ping", STRANGER), ours.address)
    await until(lambda: sender.replies)
    assert ours.contacts() == 1
    assert sender.calls == []


# -- the table


async def test_the_table_knows_each_once_and_not_itself(side) -> None:
    ours = await side(1)
    dice = random.Random(7)
    keys = [kademlia_key(Id(dice.getrandbits(128))) for _ in range(300)]
    for key in [*keys, *keys, kademlia_key(Id(1))]:
        ours.protocol.welcome_if_new(Contact(key, "127.0.0.1", 9))
    held = [contact.id for bucket in ours.protocol.router.buckets for contact in bucket.get_nodes()]
    assert len(held) == len(set(held))
    assert kademlia_key(Id(1)) not in held
    assert all(len(bucket.get_nodes()) <= BUCKET for bucket in ours.protocol.router.buckets)


async def test_an_id_at_the_upper_end_of_a_bucket_is_in_one_bucket(side) -> None:
    ours = await side(1)
    table = ours.protocol.router
    dice = random.Random(8)
    for _ in range(100):
        ours.protocol.welcome_if_new(Contact(kademlia_key(Id(dice.getrandbits(128))), "127.0.0.1", 9))
    assert len(table.buckets) > 1
    for at, bucket in enumerate(table.buckets):
        for peer_id in (bucket.range[0], min(bucket.range[1], (1 << 160) - 1)):
            assert table.get_bucket_for(Contact(peer_id.to_bytes(20, "big"))) == at


async def test_the_largest_reply_is_small(side, probe, until) -> None:
    ours = await side(1)
    dice = random.Random(9)
    for _ in range(100):
        ours.protocol.welcome_if_new(Contact(kademlia_key(Id(dice.getrandbits(128))), "255.255.255.254", 65535))
    transport, sender = probe
    transport.sendto(request("find_node", STRANGER, kademlia_key(Id(1))), ours.address)
    await until(lambda: sender.replies)
    (found,) = sender.replies
    assert len(msgspec.msgpack.decode(found[21:])) == BUCKET
    assert len(found) < 500


# -- requests under way


async def test_requests_under_way_are_bounded(side, until) -> None:
    ours = await side(1)
    nobody = Contact(STRANGER, "127.0.0.1", 9)
    calls = [asyncio.ensure_future(ours.protocol.call_ping(nobody)) for _ in range(MAX_PENDING)]
    await until(lambda: len(ours.protocol._outstanding) == MAX_PENDING)
    assert await ours.protocol.call_ping(nobody) == (False, None)
    assert await ours.protocol.call_find_node(nobody, nobody) == (False, None)
    assert len(ours.protocol._outstanding) == MAX_PENDING
    await ours.lookups.end()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*calls, return_exceptions=True))


async def test_a_contact_that_answers_with_another_kind_is_dropped(side, probe, until) -> None:
    ours = await side(1)
    transport, sender = probe
    asked = Contact(STRANGER, *transport.get_extra_info("sockname"))
    ours.protocol.welcome_if_new(asked)
    assert ours.contacts() == 1
    call = asyncio.ensure_future(ours.protocol.call_find_node(asked, Contact(kademlia_key(Id(5)))))
    await until(lambda: sender.calls)
    transport.sendto(b"\x01" + sender.calls[0][1:21] + msgspec.msgpack.encode(STRANGER), ours.address)
    assert (await call)[0] is False
    assert ours.contacts() == 0


async def test_a_reply_counts_once(side, probe, until) -> None:
    ours = await side(1)
    transport, sender = probe
    call = asyncio.ensure_future(ours.lookups.bootstrap_node(transport.get_extra_info("sockname")))
    await until(lambda: sender.calls)
    reply = b"\x01" + sender.calls[0][1:21] + msgspec.msgpack.encode(STRANGER)
    transport.sendto(reply, ours.address)
    transport.sendto(reply, ours.address)
    assert (await call).id == STRANGER
    await until(lambda: ours.incidents.counters["discovery_garbage"] == 1)
    assert ours.contacts() == 1


# -- lookups


async def test_a_lookup_finds_the_closest_of_all(side) -> None:
    sides = [await side(peer_id << 120) for peer_id in range(1, 13)]
    for newer, older in zip(sides[1:], sides, strict=False):
        assert (await newer.lookups.bootstrap([older.address])) != []
    found = await sides[-1].lookups.lookup(kademlia_key(Id((1 << 120) + 1)))
    assert found[0].id == kademlia_key(Id(1 << 120))
    assert (found[0].ip, found[0].port) == sides[0].address
    assert all(each.incidents.counters["discovery_errors"] == 0 for each in sides)


async def test_the_package_is_quiet_and_does_nothing_by_itself(side) -> None:
    ours = await side(1)
    for name in ("kademlia", "rpcudp"):
        assert not logging.getLogger(name).isEnabledFor(logging.CRITICAL)
    assert ours.lookups.refresh_loop is None
    assert ours.lookups.save_state_loop is None
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert ip_version(ours.lookups.transport) == 4
