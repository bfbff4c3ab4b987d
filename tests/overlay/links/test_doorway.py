"""The doorway of a ring with identity: strangers are told why they stay outside, and hold nobody up."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from pathlib import Path

import pytest

from ringmq.overlay.core.messages import Parcel, Ping
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import NO_PROOF, Reason, decode_goodbye
from tests.identities import Authority

MOST = 8


async def are_linked(ours, other, until) -> None:
    assert ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)


async def connected(ours, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", ours.me.port, ssl=context, server_hostname="")


def stranger_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def test_whoever_speaks_no_tls_is_told_why(secured, stranger_to) -> None:
    ours = await secured()
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours)
        kind, body = (await stranger.hears())[0]
        assert (kind, *decode_goodbye(body)) == (Kind.GOODBYE, Reason.UNPROVEN, f"unproven: {NO_PROOF}")
        assert await stranger.ended()
    assert ours.incidents.counters["handshakes_refused"] == 1


async def test_a_certificate_of_another_ring_is_refused(secured, side, until, tmp_path: Path) -> None:
    ours = await secured()
    foreign = Authority(tmp_path / "foreign").certified()
    other = await side(foreign.id, credentials=foreign)
    other.links.send(ours.me, Ping())
    await until(lambda: other.owner.losses)
    await until(lambda: ours.incidents.counters["handshakes_refused"])
    assert not list(ours.links.open_links())
    # Whoever does not look at certificates itself gets no further.
    careless = stranger_context()
    careless.load_cert_chain(foreign.files.folder / "peer.pem", foreign.files.folder / "peer.key")
    with contextlib.suppress(OSError):
        reader, writer = await connected(ours, careless)
        writer.write(frame(Kind.STATUS_REQUEST))
        assert await reader.read() == b""
    await until(lambda: ours.incidents.counters["handshakes_refused"] > 1)


async def test_old_tls_is_refused(secured, until) -> None:
    ours = await secured()
    old = stranger_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connected(ours, old)
    await until(lambda: ours.incidents.counters["handshakes_refused"])


async def test_connections_that_say_nothing_are_bounded(secured, until) -> None:
    ours = await secured(max_strangers=MOST)
    silent = [await asyncio.open_connection("127.0.0.1", ours.me.port) for _ in range(4 * MOST)]
    await until(lambda: ours.incidents.counters["strangers_refused"] == 3 * MOST)
    for reader, _ in silent[: 3 * MOST]:
        with contextlib.suppress(OSError):
            assert await reader.read() == b""
    # Honest peers pass meanwhile.
    other = await secured()
    await are_linked(other, ours, until)
    for _, writer in silent:
        writer.transport.abort()


async def test_a_handshake_that_stops_is_given_up(secured, until) -> None:
    ours = await secured(handshake_s=0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", ours.me.port)
    writer.write(b"\x16\x03\x01\x00")
    with contextlib.suppress(OSError):
        assert await reader.read() == b""
    writer.transport.abort()
    await until(lambda: not ours.links._doorways._waiting)


async def test_a_slow_handshake_holds_nobody_up(secured, until, authority: Authority) -> None:
    """Its bytes come one by one, between those of others."""
    ours, friend = await secured(), authority.certified()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = friend.client.wrap_bio(incoming, outgoing)
    reader, writer = await asyncio.open_connection("127.0.0.1", ours.me.port)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    for at in range(len(hello)):
        writer.write(hello[at : at + 1])
        await writer.drain()
        await asyncio.sleep(0)
        if at == len(hello) // 2:
            other = await secured()
            await are_linked(other, ours, until)
    while True:
        incoming.write(await reader.read(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            break
    # The end of the handshake and the first frame come at once.
    tls.write(frame(Kind.STATUS_REQUEST))
    writer.write(outgoing.read())
    answer = b""
    while b"hello" not in answer:
        incoming.write(await reader.read(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            answer += tls.read()
    writer.transport.abort()


async def test_changed_bytes_of_a_handshake_end_in_a_refusal_and_nothing_else(
    secured, until, authority: Authority
) -> None:
    ours, friend = await secured(max_strangers=64), authority.certified()
    chance = random.Random(3)
    for _ in range(150):
        outgoing = ssl.MemoryBIO()
        tls = friend.client.wrap_bio(ssl.MemoryBIO(), outgoing)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = bytearray(outgoing.read())
        for _ in range(chance.choice((1, 3, 30))):
            hello[chance.randrange(len(hello))] = chance.randrange(256)
        _, writer = await asyncio.open_connection("127.0.0.1", ours.me.port)
        writer.write(bytes(hello[: chance.randrange(1, len(hello))]))
        writer.close()
    other = await secured()
    assert other.links.send(ours.me, Parcel(b"still here"))
    await until(lambda: ours.parcels() == [b"still here"])
    assert not [name for name in ours.incidents.counters if name.endswith("_errors")]
    await until(lambda: not ours.links._doorways._waiting)
