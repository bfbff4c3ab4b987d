"""Two processes with one id: the known one is asked, over its link and at its address, before the other counts."""

from __future__ import annotations

import asyncio

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer, Ping, Pong
from ringmq.overlay.links.contests import runs_at, taken_by
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import Reason

LOW, HIGH = 5, 1000
QUICK_S = 1.8
"""For handshakes; the known peer has two thirds of it to answer."""


def answering_pings(owner, links) -> None:
    """Let this side answer pings, as a ring does."""
    noted = owner.received

    def received(sender: Peer, message: object) -> None:
        noted(sender, message)
        if isinstance(message, Ping):
            links.send(sender, Pong())

    links.received = received


async def test_a_copy_of_a_running_peer_is_refused_and_told_where_it_runs(side, until) -> None:
    ours, original = await side(LOW), await side(HIGH)
    ours.links.send(original.me, Ping())
    await until(lambda: original.owner.messages)
    copy = await side(HIGH, boot=2)
    copy.links.send(ours.me, Ping())
    await until(lambda: copy.owner.refusals)
    assert [runs_at(detail) for detail in copy.owner.refusals] == [("127.0.0.1", original.me.port)]
    assert ours.link(original).peer == original.me
    assert ours.incidents.counters["ids_taken"] == 1
    ours.links.send(original.me, Ping())
    await until(lambda: len(original.owner.messages) == 2)
    assert ours.owner.losses == original.owner.losses == []


async def test_a_copy_that_others_have_named_gets_no_message_of_the_original(side, until) -> None:
    """A dial to the address of the copy, of which a third peer has told, ends there."""
    ours, original, copy = await side(LOW), await side(HIGH), await side(HIGH, boot=2)
    ours.links.send(original.me, Ping())
    await until(lambda: original.owner.messages)
    ours.links.send(copy.me, Ping())
    await until(lambda: ours.incidents.counters["dials_failed"])
    assert ours.link(original).peer == original.me
    assert copy.owner.messages == ours.owner.losses == []


@pytest.mark.parametrize("boot", [1, 7])
async def test_a_link_over_which_the_peer_answers_is_not_replaced(side, until, stranger_to, boot: int) -> None:
    """Also by a HELLO with its own boot, which anybody can copy."""
    ours, original = await side(LOW, handshake_s=QUICK_S), await side(HIGH)
    answering_pings(original.owner, original.links)
    ours.links.send(original.me, Ping())
    await until(lambda: original.owner.messages)
    for _ in range(3):
        async with stranger_to(ours) as stranger:
            await stranger.greet(ours, peer_id=HIGH, boot=boot)
            reason = await stranger.hears_goodbye()
            assert reason is (Reason.DUPLICATE if boot == 1 else Reason.ID_TAKEN)
    assert ours.incidents.counters["links_replaced"] == 0
    assert original.owner.losses == ours.owner.losses == []


async def test_a_restarted_peer_at_its_old_address_is_linked_at_once(side, until, stranger_to) -> None:
    """Although our link to its last process still looks open: at the address answers the new one."""
    ours = await side(LOW)
    restarted = await side(HIGH, boot=2)
    async with stranger_to(ours) as old:
        await old.greet(ours, peer=Peer(Id(HIGH), "127.0.0.1", restarted.me.port, 1))
        await until(lambda: ours.links.get(Id(HIGH)))
        began = asyncio.get_running_loop().time()
        restarted.links.send(ours.me, Ping())
        await until(lambda: ours.owner.messages)
        assert asyncio.get_running_loop().time() - began < ours.config.handshake_s / 3
    assert ours.link(restarted).peer == restarted.me


async def test_a_restarted_peer_whose_link_is_broken_is_linked_at_once(side, until) -> None:
    """Its old address refuses connections, or leads to another peer by now."""
    ours, other = await side(LOW), await side(7)
    for number, port in enumerate((1, other.me.port)):
        moved = await side(HIGH + number, boot=2)
        ours.owner.members[moved.me.id] = Peer(moved.me.id, "127.0.0.1", port, 1)
        began = asyncio.get_running_loop().time()
        moved.links.send(ours.me, Ping())
        await until(lambda: ours.owner.messages)
        assert asyncio.get_running_loop().time() - began < ours.config.handshake_s / 3
        assert ours.link(moved).peer == moved.me
        ours.owner.messages.clear()


async def test_a_member_without_a_link_is_asked_at_its_address(side, until) -> None:
    ours, original, copy = await side(LOW), await side(HIGH), await side(HIGH, boot=2)
    ours.owner.members[original.me.id] = original.me
    copy.links.send(ours.me, Ping())
    await until(lambda: copy.owner.refusals)
    assert ours.links.get(original.me.id) is None
    assert ours.owner.messages == []


async def test_messages_after_the_hello_wait_for_the_decision(side, until, stranger_to) -> None:
    ours = await side(LOW, handshake_s=QUICK_S)
    async with stranger_to(ours) as old, stranger_to(ours) as new:
        await old.greet(ours, peer_id=HIGH)
        await until(lambda: ours.links.get(Id(HIGH)))
        await new.greet(ours, peer_id=HIGH, boot=2)
        await new.say(frame(Kind.PARCEL, b"early") + frame(Kind.PARCEL, bytes(100_000)))
        await until(lambda: len(ours.parcels()) == 2)
    assert ours.parcels()[0] == b"early"
    assert ours.incidents.counters["protocol_errors"] == 0


async def test_a_claim_that_ends_leaves_nothing_behind(side, until, stranger_to) -> None:
    ours, original = await side(LOW), await side(HIGH)
    ours.links.send(original.me, Ping())
    await until(lambda: original.owner.messages)
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours, peer_id=HIGH, boot=2)
        await until(lambda: ours.links._contests._contests or ours.incidents.counters["ids_taken"])
    await until(lambda: not ours.links._contests._contests)


@pytest.mark.parametrize("host", ["10.0.0.1", "peer-1.site", "fd00::1"])
def test_the_address_in_a_refusal_is_found_again(host: str) -> None:
    assert runs_at(f"id taken: {taken_by(Peer(Id(1), host, 4883, 1))}") == (host, 4883)
    assert runs_at("id taken") is None
    assert runs_at("is this a copy of x:99999's data folder?") is None
