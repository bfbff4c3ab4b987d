"""Links and the expelled: closed at once, refused later, and known everywhere."""

from __future__ import annotations

import asyncio
import time

import pytest

from ringmq.overlay.core.messages import Parcel, Ping
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import Reason
from ringmq.overlay.queries import ask_status, introduce
from ringmq.peer.identity import certifying
from tests.identities import Authority
from tests.overlay.links.test_proven_links import goodbye


async def linked(until, *sides) -> None:
    """Each has a link with each other."""
    for number, ours in enumerate(sides):
        for other in sides[number + 1 :]:
            ours.links.send(other.me, Ping())
            await until(lambda ours=ours, other=other: ours.link(other) and other.link(ours))


async def test_all_links_with_an_expelled_peer_are_closed_within_a_second(secured, until) -> None:
    ours, other, third, expelled = [await secured() for _ in range(4)]
    await linked(until, ours, other, third, expelled)
    began = time.monotonic()
    ours.config.credentials.expel(expelled.me.id)
    for side in (ours, other, third):
        await until(lambda side=side: not side.link(expelled))
        assert expelled.me.id in side.config.credentials.expelled
        assert (expelled.me, False) in side.owner.losses
    assert time.monotonic() - began < 1.0
    await until(lambda: expelled.me.id in expelled.config.credentials.expelled)
    # The others go on.
    ours.links.send(other.me, Parcel(b"among us"))
    await until(lambda: other.parcels() == [b"among us"])


async def test_an_expelled_peer_is_refused_and_learns_why(secured, until) -> None:
    ours, expelled = await secured(), await secured()
    ours.config.credentials.expel(expelled.me.id)
    expelled.links.send(ours.me, Parcel(b"let me in"))
    await until(lambda: expelled.me.id in expelled.config.credentials.expelled)
    await until(lambda: expelled.owner.losses)
    assert not ours.parcels()
    again = await secured()
    again.config.credentials.expelled = set()
    ours.config.credentials.expel(again.me.id)
    with pytest.raises(OverlayError, match="refuses: expelled"):
        await introduce(again.config, again.me, False, ("127.0.0.1", ours.me.port))
    assert again.me.id in again.config.credentials.expelled
    with pytest.raises(OverlayError, match="refuses: unproven"):
        await ask_status(("127.0.0.1", ours.me.port), caller=again.config.credentials)


async def test_nobody_dials_an_expelled_peer(secured) -> None:
    ours, expelled = await secured(), await secured()
    ours.config.credentials.expel(expelled.me.id)
    assert not ours.links.send(expelled.me, Parcel(b"hello"))
    assert not ours.incidents.counters["dials"]


async def test_a_peer_that_was_away_obeys_at_its_first_link(secured, until) -> None:
    ours, away, expelled = await secured(), await secured(), await secured()
    ours.config.credentials.expel(expelled.me.id)
    await linked(until, away, expelled)
    await linked(until, away, ours)
    await until(lambda: not away.link(expelled))
    assert expelled.me.id in away.config.credentials.expelled


async def test_after_a_split_all_obey_both_parts(secured, until) -> None:
    sides = [await secured() for _ in range(4)]
    bad, worse = await secured(), await secured()
    await linked(until, sides[0], sides[1])
    await linked(until, sides[2], sides[3])
    sides[0].config.credentials.expel(bad.me.id)
    sides[2].config.credentials.expel(worse.me.id)
    await linked(until, sides[1], sides[3])
    for side in sides:
        await until(lambda side=side: side.config.credentials.expelled == {bad.me.id, worse.me.id})


async def test_those_that_an_expelled_issuer_has_admitted_go_with_it(secured, until, authority: Authority) -> None:
    ours, issuing = await secured(), await secured()
    issuer = certifying.certify_issuer(authority.issuer, issuing.me.id)
    admitted = await secured(authority.certified(issuer=issuer))
    await linked(until, ours, issuing, admitted)
    ours.config.credentials.expel(issuing.me.id)
    await until(lambda: not ours.link(issuing) and not ours.link(admitted))


async def test_a_list_that_is_not_of_this_ring_closes_the_link(secured, until, authority: Authority) -> None:
    ours = await secured()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", ours.me.port, ssl=authority.certified().client, server_hostname=""
    )
    writer.write(frame(Kind.EXPULSIONS, b"not signed"))
    assert (await goodbye(reader))[0] is Reason.PROTOCOL
    writer.transport.abort()
    await until(lambda: ours.incidents.counters["protocol_errors"] == 1)


async def test_many_lists_of_one_peer_are_checked_one_by_one(secured, until, authority: Authority) -> None:
    """A hostile member sends one after the other: only the last waits."""
    ours, checked, gate = await secured(), [], asyncio.Event()

    async def learn(evidence: bytes) -> None:
        checked.append(evidence)
        await gate.wait()

    ours.config.credentials.learn = learn
    _, writer = await asyncio.open_connection(
        "127.0.0.1", ours.me.port, ssl=authority.certified().client, server_hostname=""
    )
    writer.write(frame(Kind.EXPULSIONS, b"first"))
    await until(lambda: checked == [b"first"])
    for number in range(50):
        writer.write(frame(Kind.EXPULSIONS, b"%d" % number))
    await until(lambda: list(ours.links._evidence.values()) == [b"49"])
    gate.set()
    await until(lambda: not ours.links._evidence)
    assert checked == [b"first", b"49"]
    writer.transport.abort()


async def test_a_stranger_cannot_name_the_expelled(side, stranger_to) -> None:
    """Neither without a certificate, nor in a ring without identity."""
    ours = await side(5)
    async with stranger_to(ours) as stranger:
        await stranger.say(frame(Kind.EXPULSIONS, b"[]"))
        assert await stranger.hears_goodbye() is Reason.PROTOCOL
