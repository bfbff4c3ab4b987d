"""The shell around a core: its timer, its messages, its start and its end."""

import asyncio
import contextlib
import dataclasses

import pytest
from structlog.testing import capture_logs

from ringmq.overlay.config import show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Heartbeat, Parcel, Peer, Ping, Relay
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LOCAL, Timing
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.node import MAX_REFUSALS, Node, ask_status

# -- the core's time and messages


async def test_one_timer_follows_the_deadline(start, until) -> None:
    node = await start(1)
    loop = asyncio.get_running_loop()
    for ahead in (0.05, 0.01):
        node.ring.timers.next_at = loop.time() + ahead
        node.flush_outbox()
    await until(lambda: node.ring.named("tick"))
    assert node.ring.named("tick")[0][1] < loop.time() + 0.03
    node.ring.timers.next_at = loop.time() - 5
    node.flush_outbox()
    await until(lambda: len(node.ring.named("tick")) == 2)


async def test_an_overdue_call_comes_also_under_load(start) -> None:
    node = await start(1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    node.ring.timers.next_at = began - 5
    while not node.ring.named("tick"):
        assert loop.time() < began + 10
        node.flush_outbox()
        await asyncio.sleep(0)


async def test_a_deadline_that_stands_still_does_not_spin(start, until) -> None:
    node = await start(1)
    loop = asyncio.get_running_loop()
    began = node.ring.timers.next_at = loop.time()

    def stuck() -> None:
        node.ring.timers.next_at = began

    node.ring.then = stuck
    node.flush_outbox()
    await until(lambda: loop.time() > began + 0.1)
    assert 10 < len(node.ring.named("tick")) <= 110


async def test_the_outbox_goes_out_after_each_call(start, until) -> None:
    ours, other = await start(1), await start(2)
    ours.ring.then = lambda: ours.ring.outbox.append((other.ring.me, Heartbeat()))
    assert ours.route(Id(5), b"x")
    await until(lambda: other.ring.named("receive"))
    assert other.ring.named("receive") == [("receive", ours.ring.me, Heartbeat())]
    other.ring.outbox.append((ours.ring.me, Ping()))
    other.flush_outbox()
    await until(lambda: ours.ring.named("receive"))


async def test_payloads_take_the_detours_of_the_core(start, until) -> None:
    ours, helper = await start(1), await start(2)
    far = Peer(Id(3), "127.0.0.1", 1, 1)
    ours.ring.detours[far.id] = helper.ring.me
    assert ours.send(far, b"around")
    await until(lambda: helper.ring.named("receive"))
    assert helper.ring.named("receive")[0][2] == Relay(ours.ring.me, far, 0, True, b"around")
    # As much as fits on the way to the helper may be sent, and what does not fit is refused: the link stays.
    assert ours.room(far.id) == ours.room(helper.ring.me.id)
    sent = [ours.send(far, bytes(1 << 20)) for _ in range(64)]
    assert not all(sent)
    assert ours._links.get(helper.ring.me.id) is not None
    ours.find_way(far)
    assert ours.ring.named("find_way") == [("find_way", far)]


async def test_sending_past_the_core(start, until) -> None:
    ours, other = await start(1), await start(2)
    assert ours.send(other.ring.me, b"payload")
    await until(lambda: other.ring.named("receive"))
    assert other.ring.named("receive")[0][2] == Parcel(b"payload")
    assert ours.send(ours.ring.me, b"to myself")
    assert ours._application.received == [(ours.ring.me, b"to myself")]
    assert ours.room(other.ring.me.id) > 0
    with pytest.raises(OverlayError, match="a payload must have at most 16777215 bytes, got 16777216"):
        ours.send(other.ring.me, bytes(16 << 20))


async def test_a_lost_link_is_reported_at_once(start, until) -> None:
    ours, other = await start(1), await start(2)
    ours.send(other.ring.me, b"x")
    await until(lambda: ours.linked(other.ring.me.id))
    ours._links.get(other.ring.me.id).transport.abort()
    await until(lambda: ours.ring.named("link_lost") and other.ring.named("link_lost"))
    assert ours.ring.named("link_lost") == [("link_lost", other.ring.me, False)]
    await other.stop()
    ours.ring.outbox.append((other.ring.me, Ping()))
    ours.flush_outbox()
    await until(lambda: len(ours.ring.named("link_lost")) == 2)
    assert ours.ring.named("link_lost")[1] == ("link_lost", other.ring.me, True)


async def test_an_error_of_the_core_or_the_application_is_logged_and_harms_nothing_else(start, until) -> None:
    ours, other = await start(1), await start(2)

    def fail() -> None:
        raise ZeroDivisionError("in a callback")

    other.ring.then = fail
    with capture_logs() as lines:
        ours.send(other.ring.me, b"1")
        ours.send(other.ring.me, b"2")
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
    node.flush_outbox()
    with pytest.raises(OverlayError):
        await node.wait_active(0.01)


# -- start and stop


async def test_stop_leaves_tells_the_neighbours_and_can_be_repeated(start, until) -> None:
    ours, other = await start(1), await start(2)
    ours.send(other.ring.me, b"x")
    await until(lambda: other.ring.named("receive"))
    ours.ring.then = lambda: ours.ring.outbox.append((other.ring.me, Heartbeat()))
    await ours.stop()
    await ours.stop()
    assert ours.ring.named("leave") == [("leave",)]
    await until(lambda: len(other.ring.named("receive")) == 2)
    await until(lambda: not other.linked(ours.ring.me.id))
    assert other.ring.named("link_lost") == []


async def test_a_port_in_use(start) -> None:
    ours = await start(1)
    with pytest.raises(OverlayError, match=rf"^cannot listen on {show(ours.address)}: address already in use$"):
        await start(2, listen=ours.address)


async def test_others_learn_the_advertised_name(start, until) -> None:
    ours = await start(1, advertise="localhost")
    other = await start(2, seeds=(("127.0.0.1", ours.ring.me.port),))
    await other.wait_active(10.0)
    assert other.ring.calls[0][1].host == "localhost"
    other.send(ours.ring.me, b"x")
    await until(lambda: ours.ring.named("receive"))


async def test_garbage_to_a_node_is_counted_and_forgotten(start, until) -> None:
    node = await start(1)
    for _ in range(3):
        reader, writer = await asyncio.open_connection(*node.address)
        writer.write(b"\xff" * 1000)
        with contextlib.suppress(OSError):
            await reader.read()
        writer.transport.abort()
    await until(lambda: node.counters["protocol_errors"] == 3)
    assert (await ask_status(node.address))["counters"]["protocol_errors"] == 3


# -- a ring whose first peer stays away

BRIEF = dataclasses.replace(LOCAL, join_s=0.05, found_s=0.5, reunion_s=0.1)


class Quiet:
    """An application that has nothing to do."""

    def link_lost(self, peer: Peer) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None: ...


class Real(Ring):
    """The core itself, with nothing above it."""

    def __init__(self, me: Peer, timing: Timing, _: object) -> None:
        super().__init__(me, timing, Quiet())  # type: ignore[arg-type]


def points(*nodes: Node) -> list[set[Id]]:
    """The leaf set of each node; itself as well if it serves keys."""
    return [node.ring.leaves.ids | ({node.ring.me.id} if node.active else set()) for node in nodes]


def founders(*nodes: Node) -> list[int]:
    return [node.ring.me.id for node in nodes if node.counters.get("rings_founded")]


@pytest.fixture
def addresses(free_port):
    """Free addresses for the nodes."""

    async def choose(count: int) -> list[tuple[str, int]]:
        return [("127.0.0.1", await free_port()) for _ in range(count)]

    return choose


async def test_peers_that_reach_each_other_become_one_ring(start, until, addresses) -> None:
    away, *there = await addresses(4)
    timing = dataclasses.replace(BRIEF, join_s=0.1, found_s=2.0)
    nodes = [
        await start(number, Real, listen=address, seeds=(away, *there), timing=timing)
        for number, address in zip((30, 10, 20), there, strict=True)
    ]
    await until(lambda: points(*nodes) == [{10, 20, 30}] * 3)
    assert founders(*nodes) == [10]
    assert [node.status()["search"] for node in nodes] == [None] * 3


async def test_each_joins_the_next_in_a_cycle(start, until, addresses) -> None:
    """The middle one does not know of the lowest, so that two may found: the two rings become one."""
    where = await addresses(3)
    nodes = [
        await start(10 * (place + 1), Real, listen=where[place], seeds=(where[(place + 1) % 3],), timing=BRIEF)
        for place in range(3)
    ]
    await until(lambda: points(*nodes) == [{10, 20, 30}] * 3)


async def test_rings_founded_apart_merge_when_the_missing_peer_is_back(start, until, addresses) -> None:
    """The most that can be apart: all know the missing one alone."""
    (away,) = await addresses(1)
    nodes = [await start(number, Real, seeds=(away,), timing=BRIEF) for number in range(10, 50, 10)]
    await until(lambda: points(*nodes) == [{10}, {20}, {30}, {40}])
    assert founders(*nodes) == [10, 20, 30, 40]
    assert nodes[0].status()["search"] == f"alone in its ring; asks {show(away)} now and then"
    back = await start(25, Real, listen=away, timing=BRIEF)
    await until(lambda: points(*nodes, back) == [{10, 20, 25, 30, 40}] * 5)


async def test_two_rings_founded_at_the_same_time_merge(start, until, addresses) -> None:
    where = await addresses(2)
    patient = dataclasses.replace(BRIEF, found_s=60.0)
    ours, other = [
        await start(number, Real, listen=where[number - 1], seeds=(where[2 - number],), timing=patient)
        for number in (1, 2)
    ]
    await until(lambda: "founding in" in ours.status()["search"] and "unless" in other.status()["search"])
    ours.found()
    other.found()
    assert points(ours, other) == [{1}, {2}]
    await until(lambda: points(ours, other) == [{1, 2}] * 2)


async def test_the_seeds_learn_of_a_ring_found_in_any_way(start, patient, addresses) -> None:
    """Discovery does so too."""
    node = await start(1, patient, seeds=tuple(await addresses(1)))
    assert (await ask_status(node.address))["search"].startswith("no ring found; asked 127.0.0.1:")
    node.introduced(Hello("ringmq", Peer(Id(2), "127.0.0.1", 1, 1), True, None))
    assert (await ask_status(node.address))["search"] == "found a ring; waits for a place in it"


# -- another peer with the same id


async def test_a_joining_peer_whose_id_is_taken_ends_with_the_word_of_the_one_that_has_it(
    start, patient, until
) -> None:
    original = await start(1)
    third = await start(2)
    third.send(original.ring.me, b"x")
    await until(lambda: third.linked(original.ring.me.id))
    copy = await start(1, core=patient, boot=2, seeds=(("127.0.0.1", 9),))
    taken = []
    copy.on_taken = taken.append
    copy.send(third.ring.me, b"let me in")
    await until(lambda: taken)
    assert taken[0].address == original.address
    assert str(taken[0]).startswith(f"id taken: is this a copy of {show(original.address)}'s data folder?")
    assert third.linked(original.ring.me.id)


async def test_a_joining_peer_ends_when_a_seed_has_its_id(start, patient, until) -> None:
    original = await start(1)
    taken = []
    copy = await start(1, core=patient, boot=2, seeds=(original.address,))
    copy.on_taken = taken.append
    await until(lambda: taken)
    assert taken[0].address == original.address


async def test_a_joining_peer_that_cannot_ask_ends_after_some_refusals(start, patient) -> None:
    copy = await start(1, core=patient, seeds=(("127.0.0.1", 9),))
    taken = []
    copy.on_taken = taken.append
    for _ in range(MAX_REFUSALS):
        assert not taken
        copy.refused("is this a copy of 127.0.0.1:9's data folder?")
    assert [error.address for error in taken] == [("127.0.0.1", 9)]


async def test_nobody_can_end_an_active_peer_by_a_false_refusal(start) -> None:
    ours = await start(1)
    assert ours.active
    taken = []
    ours.on_taken = taken.append
    for _ in range(2 * MAX_REFUSALS):
        ours.refused("is this a copy of 127.0.0.1:9's data folder?")
    ours.refused("no address")
    assert not taken
