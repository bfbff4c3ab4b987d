"""All links of a peer over real sockets: one a pair, bounded in number, and honest about losses."""

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable

import pytest

from ringmq.overlay.core.codec import encode
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Heartbeat, Parcel, Peer, Ping, Route
from ringmq.overlay.core.timing import LAN
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.contests import runs_at
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import Hello, Reason, decode_hello, encode_hello
from ringmq.overlay.links.table import MAX_UNFINISHED_BYTES

LOW, HIGH = Id(1000), Id(2000)


# -- the good case


async def test_messages_both_ways_over_one_connection(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    assert ours.links.send(other.me, Heartbeat())
    assert ours.links.send(other.me, Parcel(b"bytes"))
    await until(lambda: len(other.owner.messages) == 2)
    assert other.owner.messages == [(ours.me, Heartbeat()), (ours.me, Parcel(b"bytes"))]
    assert other.links.send(ours.me, Route(other.me, 1, Id(3), 0, b"x"))
    await until(lambda: ours.owner.messages)
    assert ours.incidents.counters["dials"] == 1
    assert other.incidents.counters["dials"] == 0
    assert ours.owner.losses == other.owner.losses == []


async def test_more_than_a_frame_is_refused_and_counted(side, until) -> None:
    ours, other = await side(LOW, max_frame_bytes=65536), await side(HIGH)
    assert not ours.links.send(other.me, Parcel(bytes(65536)))
    assert ours.links.send(other.me, Parcel(bytes(65535)))
    await until(lambda: other.owner.messages)
    assert ours.incidents.counters["unsendable"] == 1


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system has no such limit")
async def test_a_link_through_a_cut_network_breaks_by_itself(side, until) -> None:
    """Or what is sent after the healing would wait for TCP, which tries again after a minute."""
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    for end in (ours, other):
        (link,) = end.links.open_links()
        connection = link.transport.get_extra_info("socket")
        limit_s = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000
        assert 0 < limit_s <= LAN.silence_s + LAN.fastest_verdict_s


async def test_a_changed_address_is_announced_first(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    ours.links.me = Peer(LOW, "127.0.0.1", ours.me.port, 2)
    ours.links.send(other.me, Ping())
    await until(lambda: len(other.owner.messages) == 2)
    assert [sender.boot for sender, _ in other.owner.messages] == [1, 2]


async def test_introduction_and_status_leave_no_link(side, stranger_to) -> None:
    ours = await side(LOW)
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours, target=None)
        assert await stranger.hears_goodbye(2) is Reason.INTRODUCED
        assert decode_hello(stranger.heard[0][1]).peer == ours.me
        assert await stranger.ended()
    async with stranger_to(ours) as stranger:
        await stranger.say(frame(Kind.STATUS_REQUEST))
        assert (await stranger.hears())[0] == (Kind.STATUS_REPLY, b'{"hello":"there"}')
    async with stranger_to(ours) as stranger:
        await stranger.say(frame(Kind.REQUEST, b"peers"))
        assert (await stranger.hears())[0] == (Kind.REPLY, b'{"asked":"peers"}')
    assert not list(ours.links.open_links())
    assert ours.owner.losses == []


async def test_an_answer_to_somebody_who_has_gone_is_dropped(side, stranger_to, until, monkeypatch) -> None:
    ours = await side(LOW)
    replies: list[Callable[[bytes], None]] = []
    monkeypatch.setattr(ours.owner, "requested", lambda request, reply: replies.append(reply))
    async with stranger_to(ours) as stranger:
        await stranger.say(frame(Kind.REQUEST, b"peers"))
        await until(lambda: replies)
    await until(lambda: not ours.links._sockets)
    replies[0](b"{}")
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours, target=None)
        assert await stranger.hears_goodbye(2) is Reason.INTRODUCED


# -- both at once


@pytest.mark.parametrize("number", range(100))
async def test_two_sides_dial_at_once(side, until, number: int) -> None:
    """Again and again, at every relative timing: one link, all parcels in order, no loss reported."""
    dice = random.Random(number)
    ours, other = await side(LOW), await side(HIGH)
    for sender, receiver in dice.sample([(ours, other), (other, ours)], 2):
        for turn in range(5):
            sender.links.send(receiver.me, Parcel(b"%d" % turn))
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
    await until(lambda: len(ours.parcels()) >= 5 and len(other.parcels()) >= 5)
    assert ours.parcels() == other.parcels() == [b"%d" % turn for turn in range(5)]
    await until(lambda: len(ours.links._sockets) == len(other.links._sockets) == 1)
    assert ours.owner.losses == other.owner.losses == []
    for sender, receiver in ((ours, other), (other, ours)):
        assert sender.links.send(receiver.me, Parcel(b"after"))
    await until(lambda: ours.parcels()[-1] == other.parcels()[-1] == b"after")
    assert len(ours.links._sockets) == 1


# -- the end of a link


async def test_a_broken_connection_is_reported_once(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.link(ours) and ours.link(other))
    other.link(ours).transport.abort()
    await until(lambda: ours.owner.losses and other.owner.losses)
    await until(lambda: not ours.links._sockets)
    assert ours.owner.losses == [(other.me, False)]
    assert other.owner.losses == [(ours.me, False)]
    ours.links.send(other.me, Ping())
    await until(lambda: len(other.owner.messages) == 2)
    assert len(ours.owner.losses) == 1


async def test_somebody_else_at_the_address(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ghost = Peer(Id(77), "127.0.0.1", other.me.port, 1)
    ours.links.send(ghost, Ping())
    await until(lambda: ours.owner.losses)
    assert ours.owner.losses == [(ghost, True)]
    assert ours.owner.unsent_parcels == []
    assert other.owner.messages == []


async def test_a_parcel_that_finds_no_link_comes_back(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ghost = Peer(Id(77), "127.0.0.1", other.me.port, 1)
    for message in (Parcel(b"first"), Ping(), Parcel(b"second")):
        ours.links.send(ghost, message)
    await until(lambda: ours.owner.unsent_parcels == [b"first", b"second"])
    assert ours.owner.losses == [(ghost, True)]


async def test_an_idle_link_is_closed_without_a_loss(side, until) -> None:
    ours, other = await side(LOW, idle_link_s=0.08), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    await until(lambda: not ours.links._sockets and not other.links._sockets)
    assert ours.owner.losses == other.owner.losses == []
    assert ours.incidents.counters["links_ended_idle"] == 1
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)


async def test_stopping_is_no_loss_and_flushes(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    for number in range(1000):
        ours.links.send(other.me, Parcel(b"%d" % number))
    await ours.links.close()
    await until(lambda: len(other.parcels()) == 1000)
    await until(lambda: not other.links._sockets)
    assert other.owner.losses == []
    await ours.links.close()


# -- limits


async def test_links_are_bounded(side, until) -> None:
    ours = await side(LOW, max_links=2)
    others = [await side(HIGH + number) for number in range(4)]
    for other in others[:3]:
        other.links.send(ours.me, Ping())
        await until(lambda other=other: other.owner.losses or other.link(ours))
    assert len(list(ours.links.open_links())) == 2
    assert others[2].owner.losses == [(ours.me, False)]
    ours.links.send(others[3].me, Ping())
    await until(lambda: others[3].owner.messages)
    assert len(list(ours.links.open_links())) == 2
    assert ours.incidents.counters["links_evicted"] == 1
    assert ours.owner.losses == []


async def test_strangers_are_bounded(side, until, stranger_to) -> None:
    ours, other = await side(LOW, max_strangers=3), await side(HIGH)
    async with contextlib.AsyncExitStack() as crowd:
        first, *_ = [await crowd.enter_async_context(stranger_to(ours)) for _ in range(3)]
        await until(lambda: len(ours.links._strangers) == 3)
        await crowd.enter_async_context(stranger_to(ours))
        assert await first.ended(), "the oldest makes way"
        assert len(ours.links._strangers) == 3
    await until(lambda: not ours.links._strangers)
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)
    assert ours.incidents.counters["strangers_refused"] == 1


async def test_unfinished_frames_of_all_links_are_bounded(side, until, stranger_to) -> None:
    ours, other = await side(LOW), await side(HIGH)
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)
    began = frame(Kind.PARCEL, bytes(15 << 20))[: 12 << 20]
    async with contextlib.AsyncExitStack() as crowd:
        for number in range(8):
            slow = await crowd.enter_async_context(stranger_to(ours))
            await slow.greet(ours, peer_id=5000 + number)
            await until(lambda number=number: ours.links.get(Id(5000 + number)))
            link = ours.links.get(Id(5000 + number))
            await slow.say(began)
            await until(lambda link=link: link.closed or link._reader.buffered_bytes == len(began))
            assert sum(link._reader.buffered_bytes for link in ours.links._sockets) <= MAX_UNFINISHED_BYTES
        assert other.links.send(ours.me, Parcel(bytes(15 << 20)))
        await until(lambda: len(ours.parcels()) == 1)
        assert [number for number in range(8) if ours.links.get(Id(5000 + number))] == [6, 7]
        assert ours.incidents.counters["frames_unfinished"] == 6
    assert other.owner.losses == []
    await until(lambda: len(ours.links._sockets) == 1)
    assert ours.links._unfinished_bytes == 0


async def test_a_link_that_goes_on_sending_large_frames_never_counts_as_the_oldest(side, until, stranger_to) -> None:
    ours, busy = await side(LOW), await side(HIGH)
    async with stranger_to(ours) as slow:
        for _ in range(5):
            assert busy.links.send(ours.me, Parcel(bytes(3 << 20)))
        await slow.greet(ours)
        await until(lambda: ours.links.get(Id(5)))
        await slow.say(frame(Kind.PARCEL, bytes(1 << 20))[: 1 << 19])
        await until(lambda: ours.links._unfinished and len(ours.parcels()) == 5)
        for _ in range(3):
            assert busy.links.send(ours.me, Parcel(bytes(4 << 20)))
        await until(lambda: len(ours.parcels()) == 8)
        assert [link.peer.id for link in ours.links._unfinished] == [Id(5)]
    await until(lambda: not ours.links._unfinished)


# -- hostility


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        (4097).to_bytes(4, "big"),
        frame(Kind.HELLO),
        frame(Kind.HELLO, b"\x02garbage"),
        frame(Kind.PARCEL, b"x"),
        frame(Kind.CONTROL, encode(Heartbeat())),
        frame(Kind.STATUS_REPLY, b"{}"),
        b"\0\0\0\1\x63",
    ],
)
async def test_garbage_before_hello(side, until, stranger_to, data: bytes) -> None:
    ours, other = await side(LOW), await side(HIGH)
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)
    async with stranger_to(ours) as stranger:
        await stranger.say(data)
        assert await stranger.hears_goodbye() is Reason.PROTOCOL
        assert await stranger.ended()
    assert ours.incidents.counters["protocol_errors"] == 1
    assert ours.owner.losses == []
    other.links.send(ours.me, Ping())
    await until(lambda: len(ours.owner.messages) == 2)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        frame(Kind.CONTROL, b"\x91\x7f"),
        frame(Kind.CONTROL, b"\x91" * 200_000),
        frame(Kind.STATUS_REQUEST),
        frame(Kind.HELLO, encode_hello(Hello("ringmq", Peer(Id(6), "h", 1, 1), True, LOW))),
    ],
)
async def test_garbage_after_hello_closes_that_link_and_no_other(side, until, stranger_to, data: bytes) -> None:
    ours, other = await side(LOW), await side(HIGH)
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours)
        await until(lambda: ours.links.get(Id(5)))
        await stranger.say(frame(Kind.PARCEL, b"good") + data + frame(Kind.PARCEL, b"too late"))
        assert await stranger.hears_goodbye(2) is Reason.PROTOCOL
    assert ours.parcels() == [b"good"]
    assert ours.incidents.counters["protocol_errors"] == 1
    assert [(peer.id, refused) for peer, refused in ours.owner.losses] == [(Id(5), False)]
    other.links.send(ours.me, Ping())
    await until(lambda: len(ours.owner.messages) == 3)


async def test_a_thousand_random_streams_harm_no_link(side, until, stranger_to) -> None:
    dice = random.Random(4)
    ours, other = await side(LOW, handshake_s=0.5, linger_s=0.5), await side(HIGH)
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)

    async def attack(seed: int) -> None:
        data = random.Random(seed).randbytes(dice.randrange(1, 200))
        async with stranger_to(ours) as stranger:
            if seed % 2:
                await stranger.greet(ours, peer_id=seed + 3000)
            await stranger.say(data)

    for batch in range(20):
        await asyncio.gather(*(attack(batch * 50 + number) for number in range(50)))
    await until(lambda: len(ours.links._sockets) == 1)
    assert ours.link(other).phase.name == "OPEN"
    assert other.owner.losses == []


# -- who is who


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ring": "another"}, Reason.RING),
        ({"ring_settings": "others"}, Reason.RING_SETTINGS),
        ({"target": Id(99)}, Reason.NOT_ME),
    ],
)
async def test_refused_hellos(side, stranger_to, changes: dict[str, object], reason: Reason) -> None:
    ours = await side(LOW)
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours, **changes)
        assert await stranger.hears_goodbye() is reason
        assert await stranger.ended()
    assert ours.incidents.counters["handshakes_refused"] == 1
    assert not list(ours.links.open_links())
    assert ours.owner.losses == []


async def test_a_stranger_with_our_own_id_is_named_in_the_log_and_told_where_we_are(side, stranger_to) -> None:
    ours = await side(LOW)
    async with stranger_to(ours) as stranger:
        await stranger.greet(ours, peer=Peer(LOW, "127.0.0.1", 9, 1))
        assert await stranger.hears_goodbye() is Reason.ID_TAKEN
        assert runs_at(stranger.heard[-1][1].decode()) == ("127.0.0.1", ours.me.port)
    assert ours.incidents.counters["ids_taken"] == 1
    assert not list(ours.links.open_links())
    assert ours.owner.losses == []


async def test_a_peer_with_other_ring_settings_is_refused(side, until) -> None:
    ours, other = await side(LOW, ring_settings="timing lan"), await side(HIGH, ring_settings="timing wan")
    ours.links.send(other.me, Ping())
    await until(lambda: ours.owner.losses)
    assert ours.owner.losses == [(other.me, True)]
    assert other.incidents.counters["handshakes_refused"] == 1
    assert other.owner.messages == []
    same = await side(Id(5), ring_settings="timing lan")
    same.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)


@pytest.mark.parametrize("version", [1, 3])
async def test_a_peer_of_another_version_is_refused_with_the_reason(side, stranger_to, version: int) -> None:
    ours = await side(LOW)
    hello = encode_hello(Hello("ring", Peer(HIGH, "127.0.0.1", 9, 1), True, LOW))
    async with stranger_to(ours) as stranger:
        await stranger.say(frame(Kind.HELLO, bytes([version]) + hello[1:]))
        assert await stranger.hears_goodbye() is Reason.VERSION
    assert ours.incidents.counters["handshakes_refused"] == 1


async def test_a_dial_into_another_ring_fails(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH, ring="another")
    ours.links.send(other.me, Ping())
    await until(lambda: ours.owner.losses)
    assert ours.owner.losses == [(other.me, True)]


async def test_a_connection_to_itself(side, until) -> None:
    ours = await side(LOW)
    mirror = Peer(HIGH, "127.0.0.1", ours.me.port, 1)
    ours.links.send(mirror, Ping())
    await until(lambda: ours.owner.losses)
    assert ours.owner.losses == [(mirror, True)]
    assert not ours.links.send(ours.me, Ping())
    assert ours.owner.messages == []


async def test_a_higher_boot_replaces_a_silent_peer_and_a_lower_is_refused(side, until, stranger_to) -> None:
    ours = await side(LOW, handshake_s=1.8)
    async with stranger_to(ours) as first, stranger_to(ours) as second:
        await first.greet(ours, boot=5)
        await until(lambda: ours.links.get(Id(5)))
        await second.greet(ours, boot=6)
        assert await first.hears_goodbye(3) is Reason.REPLACED
        assert ours.links.get(Id(5)).peer.boot == 6
        async with stranger_to(ours) as third:
            await third.greet(ours, boot=5)
            assert await third.hears_goodbye() is Reason.OLD_BOOT
        await second.say(frame(Kind.PARCEL, b"still here"))
        await until(ours.parcels)
    await until(lambda: not ours.links._sockets)
    assert [peer.boot for peer, _ in ours.owner.losses] == [6]


async def test_a_restarted_peer_at_another_port_is_dialled_there(side, until, stranger_to) -> None:
    """Our link to its last process still looks open."""
    ours = await side(LOW, handshake_s=1.8)
    async with stranger_to(ours) as old:
        await old.greet(ours, peer_id=HIGH)
        await until(lambda: ours.links.get(Id(HIGH)))
        new = await side(HIGH, boot=2)
        ours.links.send(new.me, Ping())
        await until(lambda: new.owner.messages)
    assert ours.owner.losses == []


async def test_a_peer_that_lost_the_link_may_dial_again(side, until, stranger_to) -> None:
    """Our end still looks open: the new connection takes its place."""
    ours = await side(LOW, handshake_s=1.8)
    async with stranger_to(ours) as first, stranger_to(ours) as second:
        await first.greet(ours)
        await until(lambda: ours.links.get(Id(5)))
        await second.greet(ours)
        await until(lambda: ours.incidents.counters["links_replaced"])
        await second.say(frame(Kind.PARCEL, b"again"))
        await until(ours.parcels)
    await until(lambda: ours.owner.losses)


# -- the rest


async def test_reading_can_be_paused(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    ours.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    other.links.set_reading(False)
    ours.links.send(other.me, Parcel(b"later"))
    third = await side(Id(3))
    third.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)
    assert other.parcels() == []
    other.links.set_reading(True)
    await until(other.parcels)


async def test_a_port_in_use_gives_one_clear_line(side) -> None:
    ours = await side(LOW)
    with pytest.raises(OverlayError, match=rf"^cannot listen on 127.0.0.1:{ours.me.port}: address already in use$"):
        await side(HIGH, listen=("127.0.0.1", ours.me.port))
    with pytest.raises(OverlayError, match=r"^cannot listen on no\.such\.host\.invalid:0: "):
        await side(HIGH, listen=("no.such.host.invalid", 0))
