"""The shell around a core: seeds, timers, status and bad input."""

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from overlay.config import OverlayConfig, show
from overlay.errors import OverlayError
from overlay.frames import Kind, frame
from overlay.ids import Id
from overlay.messages import Heartbeat, Message, Parcel, Peer, Ping
from overlay.node import Node, ask_status
from overlay.timing import LOCAL, Timing

PATIENCE_S = 10.0
QUICK = dataclasses.replace(LOCAL, join_s=0.1, reunion_s=0.02)


class FakeCore:
    """Notes what the shell does; active once it founded, or joined somebody."""

    def __init__(self, me: Peer, timing: Timing, application: object) -> None:
        self.me = me
        self.active = False
        self.application = application
        self.calls: list[tuple[object, ...]] = []
        self.outbox: list[tuple[Peer, Message]] = []
        self.due = math.inf
        self.leaves: set[Id] = set()
        self.table: set[Id] = set()
        self.then: Callable[[], None] = lambda: None

    def _called(self, *call: object) -> None:
        self.calls.append(call)
        self.then()

    def named(self, name: str) -> list[tuple[object, ...]]:
        return [call for call in self.calls if call[0] == name]

    def found(self, now: float) -> None:
        self.active = True
        self._called("found")

    def join(self, contact: Peer, now: float) -> None:
        self.active = True
        self._called("join", contact)

    def meet(self, peer: Peer, now: float) -> None:
        self._called("meet", peer)

    def leave(self, now: float) -> None:
        self._called("leave")

    def receive(self, sender: Peer, message: Message, now: float) -> None:
        self._called("receive", sender, message)

    def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
        self._called("link_lost", peer, refused)

    def route(self, key: Id, payload: bytes, now: float) -> bool:
        self._called("route", key, payload)
        return True

    def send(self, peer: Peer, payload: bytes) -> None:
        self.outbox.append((peer, Parcel(payload)))

    def tick(self, now: float) -> None:
        assert now >= self.due
        self.due = math.inf
        self._called("tick", now)

    def deadline(self) -> float:
        return self.due

    def take_outbox(self) -> list[tuple[Peer, Message]]:
        taken, self.outbox = self.outbox, []
        return taken

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(
            active=self.active,
            clockwise=(self.me,),
            counterclockwise=(),
            table_size=3,
            suspects=0,
            dead=0,
            counters={"x": 1},
        )


class Patient(FakeCore):
    """Never gets into a ring by joining."""

    def join(self, contact: Peer, now: float) -> None:
        self._called("join", contact)


class App:
    def __init__(self) -> None:
        self.received: list[tuple[Peer, bytes]] = []

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.received.append((sender, payload))


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., object]]:
    """Starts nodes on fake cores; all are stopped in the end, and nothing is left running."""
    started: list[Node] = []

    async def run(point: int, core: object = FakeCore, **changes: object) -> Node:
        config = OverlayConfig(
            id=Id(point), boot=1, listen=("127.0.0.1", 0), timing=QUICK, discovery=False, linger_s=0.5
        )
        node = Node(dataclasses.replace(config, **changes), App(), core)
        started.append(node)
        await node.start()
        return node

    yield run
    await asyncio.gather(*(node.stop() for node in started))
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - anything may become true, and nothing else should have to tell
            await asyncio.sleep(0.001)


async def free_port() -> int:
    """A port that nobody listens on; raced for only by those on this machine that ask the system for one."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return int(port)


# -- seeds


async def test_without_seeds_a_ring_is_founded(start) -> None:
    node = await start(1)
    await node.wait_active(1.0)
    assert node.ring.calls == [("found",)]
    assert node.address == ("127.0.0.1", node.ring.me.port)


async def test_a_seed_is_joined_then_met_again(start) -> None:
    first = await start(1)
    node = await start(2, seeds=(first.address,))
    await node.wait_active(PATIENCE_S)
    assert node.ring.calls[0] == ("join", first.ring.me)
    await until(lambda: node.ring.named("meet"))
    assert node.ring.named("meet")[0] == ("meet", first.ring.me)
    assert first.ring.calls == [("found",)]


async def test_a_linked_seed_is_left_alone(start) -> None:
    first = await start(1)
    node = await start(2, seeds=(first.address,))
    await node.wait_active(PATIENCE_S)
    node.send(first.ring.me, b"x")
    await until(lambda: first.ring.named("receive"))
    met = len(node.ring.named("meet"))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: loop.time() > began + 6 * 3 * QUICK.reunion_s)
    assert len(node.ring.named("meet")) <= met + 1


async def test_unreachable_seeds_are_retried_and_logged_once(start) -> None:
    port = await free_port()
    with capture_logs() as lines:
        node = await start(2, seeds=(("127.0.0.1", port),))
        await until(lambda: node.counters.get("seeds_unreachable", 0) >= 3)
        first = await start(1, listen=("127.0.0.1", port))
        await node.wait_active(PATIENCE_S)
    assert node.ring.calls[0] == ("join", first.ring.me)
    assert [line["peer"] for line in lines if line["event"] == "seeds_unreachable"] == [f"127.0.0.1:{port}"]


async def test_one_reachable_seed_is_enough(start) -> None:
    first = await start(1)
    seeds = (("127.0.0.1", await free_port()), ("no.such.host.invalid", 1), first.address)
    node = await start(2, seeds=seeds)
    await node.wait_active(PATIENCE_S)
    assert node.ring.calls[0] == ("join", first.ring.me)


async def test_all_are_started_with_the_same_list(start) -> None:
    """The first one founds, and only that."""
    seeds = tuple([("127.0.0.1", await free_port()) for _ in range(3)])
    nodes = [await start(number + 1, listen=seeds[number], seeds=seeds) for number in (2, 1, 0)]
    for node in nodes:
        await node.wait_active(PATIENCE_S)
    assert [bool(node.ring.named("found")) for node in nodes] == [False, False, True]


async def test_the_first_does_not_found_where_a_ring_is(start) -> None:
    first = await start(1)
    port = await free_port()
    node = await start(2, Patient, listen=("127.0.0.1", port), seeds=(("127.0.0.1", port), first.address))
    loop = asyncio.get_running_loop()
    began = loop.time()
    await until(lambda: loop.time() > began + 3 * 2 * QUICK.join_s)
    assert len(node.ring.named("join")) >= 3
    assert not node.ring.named("found")


async def test_a_name_that_leads_back_is_no_seed(start) -> None:
    port = await free_port()
    node = await start(1, listen=("127.0.0.1", port), advertise="127.0.0.1", seeds=(("localhost", port),))
    await node.wait_active(PATIENCE_S)
    assert node.ring.calls == [("found",)]


async def test_one_that_is_in_no_ring_is_not_joined(start) -> None:
    lost = await start(1, seeds=(("127.0.0.1", await free_port()),))
    node = await start(2, seeds=(lost.address,))
    with pytest.raises(OverlayError, match=rf"^no member of ring 'ringmq' after 0\.3 s; seeds: {show(lost.address)}$"):
        await node.wait_active(0.3)
    assert node.ring.calls == []


# -- the core's time and messages


async def test_one_timer_follows_the_deadline(start) -> None:
    node = await start(1)
    loop = asyncio.get_running_loop()
    for ahead in (0.05, 0.01):
        node.ring.due = loop.time() + ahead
        node.settled()
    await until(lambda: node.ring.named("tick"))
    assert node.ring.named("tick")[0][1] < loop.time() + 0.03
    node.ring.due = loop.time() - 5
    node.settled()
    await until(lambda: len(node.ring.named("tick")) == 2)


async def test_a_deadline_that_stands_still_does_not_spin(start) -> None:
    node = await start(1)
    loop = asyncio.get_running_loop()
    began = node.ring.due = loop.time()

    def stuck() -> None:
        node.ring.due = began

    node.ring.then = stuck
    node.settled()
    await until(lambda: loop.time() > began + 0.1)
    assert 10 < len(node.ring.named("tick")) <= 110


async def test_the_outbox_goes_out_after_each_call(start) -> None:
    one, other = await start(1), await start(2)
    one.ring.then = lambda: one.ring.outbox.append((other.ring.me, Heartbeat()))
    assert one.route(Id(5), b"x")
    await until(lambda: other.ring.named("receive"))
    assert other.ring.named("receive") == [("receive", one.ring.me, Heartbeat())]
    other.ring.outbox.append((one.ring.me, Ping()))
    other.settled()
    await until(lambda: one.ring.named("receive"))


async def test_sending_past_the_core(start) -> None:
    one, other = await start(1), await start(2)
    assert one.send(other.ring.me, b"payload")
    await until(lambda: other.ring.named("receive"))
    assert other.ring.named("receive")[0][2] == Parcel(b"payload")
    assert one.send(one.ring.me, b"to myself")
    assert one._application.received == [(one.ring.me, b"to myself")]
    assert one.room(other.ring.me.id) > 0
    with pytest.raises(OverlayError, match="a payload of 16777216 bytes"):
        one.send(other.ring.me, bytes(16 << 20))


async def test_a_lost_link_is_told_at_once(start) -> None:
    one, other = await start(1), await start(2)
    one.send(other.ring.me, b"x")
    await until(lambda: one.linked(other.ring.me.id))
    one._links.get(other.ring.me.id).transport.abort()
    await until(lambda: one.ring.named("link_lost") and other.ring.named("link_lost"))
    assert one.ring.named("link_lost") == [("link_lost", other.ring.me, False)]
    await other.stop()
    one.ring.outbox.append((other.ring.me, Ping()))
    one.settled()
    await until(lambda: len(one.ring.named("link_lost")) == 2)
    assert one.ring.named("link_lost")[1] == ("link_lost", other.ring.me, True)


async def test_what_the_core_or_the_application_raises_is_logged_and_harms_nothing_else(start) -> None:
    one, other = await start(1), await start(2)

    def fail() -> None:
        raise ZeroDivisionError("in a callback")

    other.ring.then = fail
    with capture_logs() as lines:
        one.send(other.ring.me, b"1")
        one.send(other.ring.me, b"2")
        await until(lambda: len(other.ring.named("receive")) == 2)
    assert other.counters["core_errors"] == 2
    assert [line["event"] for line in lines if line.get("exc_info")] == ["core_errors"] * 2
    assert other.ring.named("link_lost") == []
    with pytest.raises(ZeroDivisionError):
        other.route(Id(1), b"our own misuse comes back to us")
    other.ring.then = lambda: None


async def test_losing_activity_is_seen(start) -> None:
    node = await start(1)
    await node.wait_active(1.0)
    node.ring.active = False
    node.settled()
    with pytest.raises(OverlayError):
        await node.wait_active(0.01)


# -- status, start and stop


async def test_status_over_the_wire(start) -> None:
    one, other = await start(1), await start(2)
    one.send(other.ring.me, b"x")
    await until(lambda: other.ring.named("receive"))
    status = await ask_status(other.address)
    assert status["id"] == Id(2).hex()
    assert status["address"] == show(other.address)
    assert (status["ring"], status["boot"], status["active"], status["table_size"]) == ("ringmq", 1, True, 3)
    assert status["neighbours"] == {
        "clockwise": {"id": Id(2).hex(), "address": status["address"]},
        "counterclockwise": None,
    }
    (link,) = status["links"]
    assert (link["id"], link["address"]) == (Id(1).hex(), show(one.address))
    assert link["frames_in"] == 2
    assert link["bytes_in"] > 0
    assert link["rtt_ms"] is None or 0 <= link["rtt_ms"] < 1000
    assert status["ring_counters"] == {"x": 1}
    assert not [link for link in other._links.open_links() if link.peer != one.ring.me]


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(Kind.STATUS_REPLY, b"{"), b"\x7f\0\0\0\6"]
)
async def test_status_of_something_else(answer: bytes) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    address = ("127.0.0.1", server.sockets[0].getsockname()[1])
    with pytest.raises(OverlayError, match=rf"^127\.0\.0\.1:{address[1]}") as caught:
        await ask_status(address)
    assert "\n" not in str(caught.value)
    server.close()
    await server.wait_closed()


async def test_status_of_nobody_and_of_the_mute() -> None:
    port = await free_port()
    with pytest.raises(OverlayError, match=rf"^127.0.0.1:{port}: connection refused$"):
        await ask_status(("127.0.0.1", port))
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    with pytest.raises(OverlayError, match=r": no answer in time$"):
        await ask_status(("127.0.0.1", mute.sockets[0].getsockname()[1]), timeout_s=0.05)
    mute.close()


async def test_stop_leaves_tells_the_neighbours_and_can_be_repeated(start) -> None:
    one, other = await start(1), await start(2)
    one.send(other.ring.me, b"x")
    await until(lambda: other.ring.named("receive"))
    one.ring.then = lambda: one.ring.outbox.append((other.ring.me, Heartbeat()))
    await one.stop()
    await one.stop()
    assert one.ring.named("leave") == [("leave",)]
    await until(lambda: len(other.ring.named("receive")) == 2)
    await until(lambda: not other.linked(one.ring.me.id))
    assert other.ring.named("link_lost") == []


async def test_a_port_in_use(start) -> None:
    one = await start(1)
    with pytest.raises(OverlayError, match=rf"^cannot listen on {show(one.address)}: address already in use$"):
        await start(2, listen=one.address)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"listen": ("0.0.0.0", 0)}, "advertise: None will not do"),
        ({"listen": ("::", 0)}, "advertise: None will not do"),
        ({"listen": ("0.0.0.0", 0), "advertise": "0.0.0.0"}, "advertise: '0.0.0.0' will not do"),
        ({"listen": ("127.0.0.1", 70000)}, "listen: "),
        ({"listen": ("", 1)}, "listen: "),
        ({"seeds": (("host", 0),)}, "seeds: "),
        ({"delay_s": (0.2, 0.1)}, "delay_s: "),
        ({"ring": ""}, "ring: '' will not do, it must be 1 to 128 characters"),
        ({"max_links": 0}, "max_links: 0 will not do"),
    ],
)
def test_wrong_values_are_one_clear_line(changes: dict[str, object], line: str) -> None:
    config = OverlayConfig(id=Id(1), boot=1, listen=("127.0.0.1", 0))
    with pytest.raises(OverlayError) as caught:
        dataclasses.replace(config, **changes)
    assert str(caught.value).startswith(f"overlay {line}")


async def test_an_advertised_name_is_what_others_are_told(start) -> None:
    one = await start(1, advertise="localhost")
    other = await start(2, seeds=(("127.0.0.1", one.ring.me.port),))
    await other.wait_active(PATIENCE_S)
    assert other.ring.calls[0][1].host == "localhost"
    other.send(one.ring.me, b"x")
    await until(lambda: one.ring.named("receive"))


async def test_garbage_to_a_node_is_counted_and_forgotten(start) -> None:
    node = await start(1)
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*node.address)
        writer.write(b"\xff" * 1000)
        with contextlib.suppress(OSError):
            await reader.read()
        writer.transport.abort()
    await until(lambda: node.counters["protocol_errors"] == 3)
    assert (await ask_status(node.address))["counters"]["protocol_errors"] == 3
