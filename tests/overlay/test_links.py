"""Links over real sockets: one a pair, bounded, and honest about losses."""

import asyncio
import contextlib
import dataclasses
import itertools
import random
from collections.abc import AsyncIterator, Callable

import pytest

from overlay.config import OverlayConfig
from overlay.errors import OverlayError
from overlay.frames import FrameReader, Kind, frame
from overlay.handshake import Hello, Reason, decode_goodbye, decode_hello, encode_hello
from overlay.ids import Id
from overlay.links import Links
from overlay.messages import Heartbeat, Message, Parcel, Peer, Ping, Probe, Route
from overlay.notices import Notices
from overlay.wire import encode

LOW, HIGH = Id(1000), Id(2000)
PATIENCE_S = 10.0


class Recorder:
    """An owner that notes what it is told."""

    def __init__(self) -> None:
        self.messages: list[tuple[Peer, Message]] = []
        self.losses: list[tuple[Peer, bool]] = []

    def received(self, sender: Peer, message: Message) -> None:
        self.messages.append((sender, message))

    def settled(self) -> None: ...

    def lost(self, peer: Peer, refused: bool) -> None:
        self.losses.append((peer, refused))

    def status_body(self) -> bytes:
        return b'{"hello":"there"}'


class Side:
    """One peer's links, and who it is."""

    def __init__(self, config: OverlayConfig) -> None:
        self.config = config
        self.owner = Recorder()
        self.notices = Notices()
        self.links = Links(config, self.owner, self.notices)
        self.me = self.links.me

    async def start(self) -> None:
        port = await self.links.bind()
        self.me = Peer(self.config.id, "127.0.0.1", port, self.config.boot)
        await self.links.serve(self.me)

    def parcels(self) -> list[bytes]:
        return [message.payload for _, message in self.owner.messages if isinstance(message, Parcel)]

    def link(self, other: "Side"):
        return self.links.get(other.me.id)


@pytest.fixture
async def side() -> AsyncIterator[Callable[..., object]]:
    """Starts a side; all are closed in the end, and nothing is left running."""
    started: list[Side] = []

    async def start(point: int, **changes: object) -> Side:
        config = OverlayConfig(id=Id(point), boot=1, listen=("127.0.0.1", 0))
        made = Side(dataclasses.replace(config, **changes))
        started.append(made)
        await made.start()
        return made

    yield start
    await asyncio.gather(*(made.links.close() for made in started))
    assert not [made for made in started if made.links._sockets]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - anything may become true, and nothing else should have to tell
            await asyncio.sleep(0.001)


class CountingTransport:
    """Passes on what it is asked, and counts the writes."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.writes = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._transport, name)

    def writelines(self, chunks: list[bytes]) -> None:
        self.writes += 1
        self._transport.writelines(chunks)


class Stranger:
    """Raw bytes to a side's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.frames: list[tuple[int, bytes]] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, one: Side) -> AsyncIterator["Stranger"]:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.me.port, limit=1 << 16)
        try:
            yield cls(reader, writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(OSError):
            await self.writer.drain()

    async def hears(self, count: int = 1) -> list[tuple[int, bytes]]:
        """The next frames; fewer when the connection ends."""
        cutter = FrameReader(1 << 20)
        heard: list[tuple[int, bytes]] = []
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(OSError):
                while len(heard) < count and (data := await self.reader.read(65536)):
                    heard += cutter.feed(data)
        return heard

    async def ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(OSError):
                while await self.reader.read(65536):
                    pass
        return True

    async def greet(self, one: Side, point: int = 5, boot: int = 1, **changes: object) -> None:
        hello = Hello("ringmq", Peer(Id(point), "127.0.0.1", 1, boot), True, one.me.id)
        body = encode_hello(Hello(**{**{name: getattr(hello, name) for name in hello.__struct_fields__}, **changes}))
        await self.say(frame(Kind.HELLO, body))


def goodbye(heard: list[tuple[int, bytes]]) -> Reason:
    kind, body = heard[-1]
    assert kind == Kind.GOODBYE, heard
    return decode_goodbye(body)[0]


# -- the good case


async def test_messages_both_ways_over_one_connection(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    assert one.links.send(other.me, Heartbeat())
    assert one.links.send(other.me, Parcel(b"bytes"))
    await until(lambda: len(other.owner.messages) == 2)
    assert other.owner.messages == [(one.me, Heartbeat()), (one.me, Parcel(b"bytes"))]
    assert other.links.send(one.me, Route(other.me, 1, Id(3), 0, b"x"))
    await until(lambda: one.owner.messages)
    assert one.notices.counters["dials"] == 1
    assert other.notices.counters["dials"] == 0
    assert one.owner.losses == other.owner.losses == []


async def test_what_is_sent_in_one_turn_is_one_write(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    link = one.link(other)
    link.transport = counted = CountingTransport(link.transport)
    for number in range(100):
        one.links.send(other.me, Parcel(b"%d" % number))
    await until(lambda: len(other.owner.messages) == 101)
    assert counted.writes == 1
    assert other.parcels() == [b"%d" % number for number in range(100)]


async def test_a_large_parcel(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    payload = random.Random(1).randbytes(10 << 20)
    assert one.links.send(other.me, Parcel(payload))
    await until(lambda: other.owner.messages)
    assert other.parcels() == [payload]


async def test_more_than_a_frame_is_refused_and_counted(side) -> None:
    one, other = await side(LOW, max_frame_bytes=65536), await side(HIGH)
    assert not one.links.send(other.me, Parcel(bytes(65536)))
    assert one.links.send(other.me, Parcel(bytes(65535)))
    await until(lambda: other.owner.messages)
    assert one.notices.counters["unsendable"] == 1


async def test_a_changed_address_is_announced_first(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    one.links.me = Peer(LOW, "127.0.0.1", one.me.port, 2)
    one.links.send(other.me, Ping())
    await until(lambda: len(other.owner.messages) == 2)
    assert [sender.boot for sender, _ in other.owner.messages] == [1, 2]


async def test_introduction_and_status_leave_no_link(side) -> None:
    one = await side(LOW)
    async with Stranger.to(one) as stranger:
        await stranger.greet(one, target=None)
        heard = await stranger.hears(2)
        assert decode_hello(heard[0][1]).peer == one.me
        assert goodbye(heard) is Reason.INTRODUCED
        assert await stranger.ended()
    async with Stranger.to(one) as stranger:
        await stranger.say(frame(Kind.STATUS_REQUEST))
        assert (await stranger.hears())[0] == (Kind.STATUS_REPLY, b'{"hello":"there"}')
    assert not list(one.links.open_links())
    assert one.owner.losses == []


# -- both at once


@pytest.mark.parametrize("number", range(100))
async def test_two_sides_dial_at_once(side, number: int) -> None:
    """Again and again, at every relative timing: one link, all parcels in order, no loss told."""
    dice = random.Random(number)
    one, other = await side(LOW), await side(HIGH)
    for sender, receiver in dice.sample([(one, other), (other, one)], 2):
        for turn in range(5):
            sender.links.send(receiver.me, Parcel(b"%d" % turn))
        for _ in range(dice.randrange(6)):
            await asyncio.sleep(0)
    await until(lambda: len(one.parcels()) >= 5 and len(other.parcels()) >= 5)
    assert one.parcels() == other.parcels() == [b"%d" % turn for turn in range(5)]
    await until(lambda: len(one.links._sockets) == len(other.links._sockets) == 1)
    assert one.owner.losses == other.owner.losses == []
    for sender, receiver in ((one, other), (other, one)):
        assert sender.links.send(receiver.me, Parcel(b"after"))
    await until(lambda: one.parcels()[-1] == other.parcels()[-1] == b"after")
    assert len(one.links._sockets) == 1


async def test_never_two_dials_for_one_peer(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    for _ in range(50):
        one.links.send(other.me, Ping())
    await until(lambda: len(other.owner.messages) == 50)
    assert one.notices.counters["dials"] == 1


# -- the end of a link


async def test_a_broken_connection_is_told_once(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: other.link(one) and one.link(other))
    other.link(one).transport.abort()
    await until(lambda: one.owner.losses and other.owner.losses)
    await until(lambda: not one.links._sockets)
    assert one.owner.losses == [(other.me, False)]
    assert other.owner.losses == [(one.me, False)]
    one.links.send(other.me, Ping())
    await until(lambda: len(other.owner.messages) == 2)
    assert len(one.owner.losses) == 1


async def test_a_refused_dial_is_told_and_parcels_wait_out_the_pause(side) -> None:
    one, gone = await side(LOW), await side(HIGH)
    await gone.links.close()
    assert one.links.send(gone.me, Ping())
    await until(lambda: one.owner.losses)
    assert one.owner.losses == [(gone.me, True)]
    assert not one.links.send(gone.me, Parcel(b"x"))
    assert one.notices.counters["parcels_refused"] == 1
    assert one.notices.counters["messages_lost"] == 1
    assert one.notices.counters["dials"] == 1


async def test_a_host_that_cannot_be_resolved_is_refused(side) -> None:
    one = await side(LOW)
    for number, host in enumerate(["no such host", "a" * 70 + ".example", "..", "\u2028"]):
        one.links.send(Peer(Id(number), host, 1, 1), Ping())
    await until(lambda: len(one.owner.losses) == 4)
    assert all(refused for _, refused in one.owner.losses)


async def test_somebody_else_at_the_address(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    ghost = Peer(Id(77), "127.0.0.1", other.me.port, 1)
    one.links.send(ghost, Ping())
    await until(lambda: one.owner.losses)
    assert one.owner.losses == [(ghost, True)]
    assert other.owner.messages == []


async def test_an_idle_link_is_closed_without_a_loss(side) -> None:
    one, other = await side(LOW, idle_link_s=0.08), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    await until(lambda: not one.links._sockets and not other.links._sockets)
    assert one.owner.losses == other.owner.losses == []
    assert one.notices.counters["links_ended_idle"] == 1
    other.links.send(one.me, Ping())
    await until(lambda: one.owner.messages)


async def test_what_crosses_an_idle_goodbye_arrives(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: one.link(other) and other.link(one))
    for number in range(20):
        other.links.send(one.me, Parcel(b"%d" % number))
    one.link(other).close(Reason.IDLE)
    await until(lambda: len(one.parcels()) == 20)
    assert one.owner.losses == other.owner.losses == []


async def test_stopping_is_no_loss_and_flushes(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    for number in range(1000):
        one.links.send(other.me, Parcel(b"%d" % number))
    await one.links.close()
    await until(lambda: len(other.parcels()) == 1000)
    await until(lambda: not other.links._sockets)
    assert other.owner.losses == []
    await one.links.close()


# -- limits


async def test_a_peer_that_never_reads_takes_bounded_memory(side) -> None:
    limit = 256 * 1024
    one = await side(LOW, max_link_buffer_bytes=limit, linger_s=0.2)
    async with Stranger.to(one) as deaf:
        await deaf.greet(one)
        await until(lambda: one.links.get(Id(5)))
        peer = one.links.get(Id(5)).peer
        payload = bytes(10_000)
        refused = 0
        for _ in range(20_000):
            refused += not one.links.send(peer, Parcel(payload))
            if refused % 50 == 1:
                await asyncio.sleep(0)
            link = one.links.get(Id(5))
            assert link.queued_bytes <= limit
            assert link.transport.get_write_buffer_size() <= limit
        assert refused > 10_000
        assert one.notices.counters["parcels_refused"] == refused
        assert one.links.room(Id(5)) < 10_005
        assert one.owner.losses == []
        # control messages have some room more; then the link is stuck
        sent = itertools.takewhile(lambda _: one.links.send(peer, Probe((peer,) * 60)), itertools.count())
        assert 5 < sum(1 for _ in sent) < 200
        assert one.owner.losses == [(peer, False)]
        assert one.links.get(Id(5)) is None
        await until(lambda: not one.links._sockets)


async def test_what_waits_for_a_dial_is_bounded(side) -> None:
    one = await side(LOW, max_link_buffer_bytes=100_000, handshake_s=0.3)
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    peer = Peer(HIGH, "127.0.0.1", mute.sockets[0].getsockname()[1], 1)
    taken = sum(one.links.send(peer, Parcel(bytes(1000))) for _ in range(500))
    assert 90 < taken <= 100
    await until(lambda: one.owner.losses)
    assert one.owner.losses == [(peer, True)]
    assert one.notices.counters["parcels_lost"] == taken
    mute.close()


async def test_dials_are_bounded(side) -> None:
    one = await side(LOW, max_dials=3, handshake_s=0.2)
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    sent = [one.links.send(Peer(Id(number), "127.0.0.1", port, 1), Ping()) for number in range(5)]
    assert sent == [True] * 3 + [False] * 2
    await until(lambda: len(one.owner.losses) == 3)
    mute.close()


async def test_links_are_bounded(side) -> None:
    one = await side(LOW, max_links=2)
    others = [await side(HIGH + number) for number in range(4)]
    for other in others[:3]:
        other.links.send(one.me, Ping())
        await until(lambda other=other: other.owner.losses or other.link(one))
    assert len(list(one.links.open_links())) == 2
    assert others[2].owner.losses == [(one.me, False)]
    one.links.send(others[3].me, Ping())
    await until(lambda: others[3].owner.messages)
    assert len(list(one.links.open_links())) == 2
    assert one.notices.counters["links_evicted"] == 1
    assert one.owner.losses == []


async def test_slowloris(side) -> None:
    one = await side(LOW, handshake_s=0.1)
    async with Stranger.to(one) as slow:
        await slow.say(b"\0\0")
        assert goodbye(await slow.hears()) is Reason.SLOW
        assert await slow.ended()
    await until(lambda: not one.links._sockets)
    assert one.notices.counters["handshakes_slow"] == 1
    assert one.owner.losses == []


async def test_strangers_are_bounded(side) -> None:
    one, other = await side(LOW, max_strangers=3), await side(HIGH)
    async with contextlib.AsyncExitStack() as crowd:
        for _ in range(3):
            await crowd.enter_async_context(Stranger.to(one))
        await until(lambda: len(one.links._strangers) == 3)
        late = await crowd.enter_async_context(Stranger.to(one))
        assert await late.ended()
    await until(lambda: not one.links._strangers)
    other.links.send(one.me, Ping())
    await until(lambda: one.owner.messages)
    assert one.notices.counters["strangers_refused"] == 1


# -- hostility


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        (4097).to_bytes(4, "big"),
        frame(Kind.HELLO),
        frame(Kind.HELLO, b"\x01garbage"),
        frame(Kind.PARCEL, b"x"),
        frame(Kind.CONTROL, encode(Heartbeat())),
        frame(Kind.STATUS_REPLY, b"{}"),
        b"\0\0\0\1\x63",
    ],
)
async def test_garbage_before_hello(side, data: bytes) -> None:
    one, other = await side(LOW), await side(HIGH)
    other.links.send(one.me, Ping())
    await until(lambda: one.owner.messages)
    async with Stranger.to(one) as stranger:
        await stranger.say(data)
        assert goodbye(await stranger.hears()) is Reason.PROTOCOL
        assert await stranger.ended()
    assert one.notices.counters["protocol_errors"] == 1
    assert one.owner.losses == []
    other.links.send(one.me, Ping())
    await until(lambda: len(one.owner.messages) == 2)


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
async def test_garbage_after_hello_closes_that_link_and_no_other(side, data: bytes) -> None:
    one, other = await side(LOW), await side(HIGH)
    other.links.send(one.me, Ping())
    await until(lambda: one.owner.messages)
    async with Stranger.to(one) as stranger:
        await stranger.greet(one)
        await until(lambda: one.links.get(Id(5)))
        await stranger.say(frame(Kind.PARCEL, b"good") + data + frame(Kind.PARCEL, b"too late"))
        assert goodbye(await stranger.hears(2)) is Reason.PROTOCOL
    assert one.parcels() == [b"good"]
    assert one.notices.counters["protocol_errors"] == 1
    assert [(peer.id, refused) for peer, refused in one.owner.losses] == [(Id(5), False)]
    other.links.send(one.me, Ping())
    await until(lambda: len(one.owner.messages) == 3)


async def test_a_thousand_random_streams_harm_nobody(side) -> None:
    dice = random.Random(4)
    one, other = await side(LOW, handshake_s=0.5, linger_s=0.5), await side(HIGH)
    other.links.send(one.me, Ping())
    await until(lambda: one.owner.messages)

    async def attack(seed: int) -> None:
        data = random.Random(seed).randbytes(dice.randrange(1, 200))
        async with Stranger.to(one) as stranger:
            if seed % 2:
                await stranger.greet(one, point=seed + 3000)
            await stranger.say(data)

    for batch in range(20):
        await asyncio.gather(*(attack(batch * 50 + number) for number in range(50)))
    await until(lambda: len(one.links._sockets) == 1)
    assert one.link(other).phase.name == "OPEN"
    assert other.owner.losses == []


# -- who is who


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ring": "another"}, Reason.RING),
        ({"target": Id(99)}, Reason.NOT_ME),
        ({"peer": Peer(LOW, "127.0.0.1", 9, 1)}, Reason.ID_TAKEN),
    ],
)
async def test_refused_hellos(side, changes: dict[str, object], reason: Reason) -> None:
    one = await side(LOW)
    async with Stranger.to(one) as stranger:
        await stranger.greet(one, **changes)
        assert goodbye(await stranger.hears()) is reason
        assert await stranger.ended()
    assert one.notices.counters["handshakes_refused"] == 1
    assert not list(one.links.open_links())
    assert one.owner.losses == []


async def test_another_version(side) -> None:
    one = await side(LOW)
    async with Stranger.to(one) as stranger:
        await stranger.say(frame(Kind.HELLO, b"\x02whatever comes then"))
        assert goodbye(await stranger.hears()) is Reason.VERSION


async def test_a_dial_into_another_ring_fails(side) -> None:
    one, other = await side(LOW), await side(HIGH, ring="another")
    one.links.send(other.me, Ping())
    await until(lambda: one.owner.losses)
    assert one.owner.losses == [(other.me, True)]


async def test_a_connection_to_itself(side) -> None:
    one = await side(LOW)
    mirror = Peer(HIGH, "127.0.0.1", one.me.port, 1)
    one.links.send(mirror, Ping())
    await until(lambda: one.owner.losses)
    assert one.owner.losses == [(mirror, True)]
    assert not one.links.send(one.me, Ping())
    assert one.owner.messages == []


async def test_a_higher_boot_replaces_and_a_lower_is_refused(side) -> None:
    one = await side(LOW)
    async with Stranger.to(one) as first, Stranger.to(one) as second, Stranger.to(one) as third:
        await first.greet(one, boot=5)
        await until(lambda: one.links.get(Id(5)))
        await second.greet(one, boot=6)
        assert goodbye(await first.hears(2)) is Reason.REPLACED
        assert one.links.get(Id(5)).peer.boot == 6
        await third.greet(one, boot=5)
        assert goodbye(await third.hears()) is Reason.OLD_BOOT
        await second.say(frame(Kind.PARCEL, b"still here"))
        await until(one.parcels)
    await until(lambda: not one.links._sockets)
    assert [peer.boot for peer, _ in one.owner.losses] == [6]


async def test_a_restarted_peer_at_another_port_is_dialled_there(side) -> None:
    one, old = await side(LOW), await side(HIGH)
    one.links.send(old.me, Ping())
    await until(lambda: old.owner.messages)
    new = await side(HIGH, boot=2)
    one.links.send(new.me, Ping())
    await until(lambda: new.owner.messages)
    assert one.owner.losses == []


async def test_a_peer_that_lost_the_link_may_dial_again(side) -> None:
    """Our end still looks open: the new connection takes its place."""
    one = await side(LOW)
    async with Stranger.to(one) as first, Stranger.to(one) as second:
        await first.greet(one)
        await until(lambda: one.links.get(Id(5)))
        await second.greet(one)
        await until(lambda: one.notices.counters["links_replaced"])
        await second.say(frame(Kind.PARCEL, b"again"))
        await until(one.parcels)
    await until(lambda: one.owner.losses)


# -- the rest


async def test_emulated_latency_holds_frames_in_order(side) -> None:
    loop = asyncio.get_running_loop()
    one, other = await side(LOW, delay_s=(0.05, 0.05)), await side(HIGH, delay_s=(0.05, 0.05))
    one.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    began = loop.time()
    for number in range(100):
        one.links.send(other.me, Parcel(b"%d" % number))
    await until(lambda: len(other.parcels()) == 100)
    assert loop.time() - began > 0.045
    assert other.parcels() == [b"%d" % number for number in range(100)]


async def test_reading_can_be_paused(side) -> None:
    one, other = await side(LOW), await side(HIGH)
    one.links.send(other.me, Ping())
    await until(lambda: other.owner.messages)
    other.links.set_reading(False)
    one.links.send(other.me, Parcel(b"later"))
    third = await side(Id(3))
    third.links.send(one.me, Ping())
    await until(lambda: one.owner.messages)
    assert other.parcels() == []
    other.links.set_reading(True)
    await until(other.parcels)


async def test_a_port_in_use_is_one_clear_line(side) -> None:
    one = await side(LOW)
    with pytest.raises(OverlayError, match=rf"^cannot listen on 127.0.0.1:{one.me.port}: address already in use$"):
        await side(HIGH, listen=("127.0.0.1", one.me.port))
    with pytest.raises(OverlayError, match=r"^cannot listen on no\.such\.host\.invalid:0: "):
        await side(HIGH, listen=("no.such.host.invalid", 0))
