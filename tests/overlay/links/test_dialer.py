"""Outbound links on their way: one dial per peer, and the messages that wait for it."""

import asyncio
import errno
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Parcel, Peer, Ping
from ringmq.overlay.links.dialer import REDIALS, Dialer
from ringmq.overlay.links.frames import HEADER_BYTES, Kind
from ringmq.overlay.links.handshake import LinkState, Reason
from ringmq.overlay.links.incidents import Incidents

LOW, HIGH = Id(1000), Id(2000)
PEER = Peer(HIGH, "there", 1, 1)
MUTE = "connects, and says nothing"
LOST = "never connects"


class Desk:
    """Dials on a loop whose connections are made up; `outcomes` are by port: an exception, MUTE, LOST, or a Reason
    for which the other side says goodbye.
    """

    def __init__(self, loop, board, wire: Callable, **changes: object) -> None:
        self.loop, self.board = loop, board
        self.outcomes: dict[int, object] = {1: MUTE}
        self.dialled: list[tuple[float, str, int]] = []
        self.wires: list = []
        self.failures: list[tuple[Peer, str, bool]] = []
        self.given_back: list[bytes] = []
        self.incidents = Incidents()
        config = OverlayConfig(id=LOW, boot=1, listen=("127.0.0.1", 0), **changes)
        self.dialer = Dialer(config, board, self.incidents, self._failed)
        board.on_ended = lambda link, reason, detail: self.dialer.ended(link, reason, detail or reason)
        loop.create_connection = self._connect
        self._wire = wire

    def _failed(self, peer: Peer, why: str, refused: bool, parcels: list[bytes]) -> None:
        self.failures.append((peer, why, refused))
        self.given_back += parcels

    async def _connect(self, factory: Callable, host: str, port: int, ssl: object = None) -> tuple:
        self.dialled.append((self.loop.time(), host, port))
        outcome = self.outcomes[port]
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is LOST:
            await self.loop.create_future()
        link = factory()
        self.wires.append(self._wire(link))
        link.connection_made(self.wires[-1])
        if isinstance(outcome, Reason):
            self.loop.call_soon(link.close, outcome)
        return self.wires[-1], link

    def parcel(self, body: bytes = b"x", peer: Peer = PEER) -> bool:
        return self.dialer.enqueue(peer, Kind.PARCEL, body)

    def control(self, body: bytes = b"x", peer: Peer = PEER) -> bool:
        return self.dialer.enqueue(peer, Kind.CONTROL, body)


@pytest.fixture
def desk(virtually, board, wire) -> Callable:
    """Run a story with a desk; its dials are closed at the end."""

    def run(story: Callable, **changes: object) -> None:
        async def whole(loop) -> None:
            made = Desk(loop, board, wire, **changes)
            await story(made)
            await made.dialer.close()

        virtually(whole)

    return run


# -- one dial a peer


def test_one_dial_serves_all_messages_for_a_peer(desk) -> None:
    async def story(desk: Desk) -> None:
        for number in range(50):
            assert desk.parcel(b"%d" % number)
        await desk.loop.moment(0.1)
        assert desk.dialled == [(0.0, "there", 1)]
        assert desk.incidents.counters["dials"] == 1
        assert desk.parcel(peer=Peer(Id(3), "elsewhere", 1, 1))
        await desk.loop.moment(0.2)
        assert desk.dialled[1:] == [(0.1, "elsewhere", 1)]

    desk(story)


def test_queued_messages_are_handed_over_in_order(desk) -> None:
    async def story(desk: Desk) -> None:
        assert desk.dialer.state_of(HIGH) is LinkState.APART
        desk.parcel(b"one")
        desk.control(b"two")
        assert desk.dialer.state_of(HIGH) is LinkState.CONNECTING
        await desk.loop.moment(0.1)
        assert desk.dialer.state_of(HIGH) is LinkState.GREETED
        desk.parcel(b"three")
        (link,) = desk.board.linked
        assert desk.dialer.finish(HIGH, link) == [
            (Kind.PARCEL, b"one"),
            (Kind.CONTROL, b"two"),
            (Kind.PARCEL, b"three"),
        ]
        link.open(PEER, None)
        assert desk.dialer.state_of(HIGH) is LinkState.APART
        assert desk.dialer.finish(HIGH) == []
        await desk.loop.moment(10.0)
        assert desk.failures == []
        assert not desk.wires[0].is_closing()

    desk(story)


def test_a_dial_that_an_inbound_link_made_needless_says_goodbye(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.parcel()
        await desk.loop.moment(0.1)
        assert desk.dialer.finish(HIGH, object()) == [(Kind.PARCEL, b"x")]
        await desk.loop.moment(10.0)
        assert desk.wires[0].frames() == [(Kind.GOODBYE, b"duplicate")]
        assert desk.wires[0].is_closing()
        assert desk.failures == []

    desk(story)


def test_a_restarted_peer_is_dialled_where_it_is_now_and_the_queue_goes_along(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: LOST, 2: MUTE}
        desk.parcel(b"one")
        await desk.loop.moment(0.1)
        moved = Peer(HIGH, "there", 2, 2)
        desk.parcel(b"two", moved)
        desk.parcel(b"of the old address", PEER)
        await desk.loop.moment(0.2)
        assert [port for _, _, port in desk.dialled] == [1, 2]
        assert desk.dialer.room(HIGH) == (16 << 20) - 3 * HEADER_BYTES - 24
        queue = desk.dialer.finish(HIGH, desk.board.linked[-1])
        assert [body for _, body in queue] == [b"one", b"two", b"of the old address"]
        desk.board.linked[-1].open(moved, None)
        assert desk.failures == []

    desk(story)


def test_a_new_boot_at_the_same_address_is_no_reason_to_dial_again(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.parcel()
        desk.parcel(peer=Peer(HIGH, "there", 1, 2))
        await desk.loop.moment(0.1)
        assert len(desk.dialled) == 1

    desk(story)


# -- bounds


def test_the_queue_of_a_dial_is_bounded_and_control_has_a_quarter_more(desk) -> None:
    async def story(desk: Desk) -> None:
        body = bytes(100 - HEADER_BYTES)
        assert [desk.parcel(body) for _ in range(12)] == [True] * 10 + [False] * 2
        assert desk.dialer.room(HIGH) == 0
        assert [desk.control(body) for _ in range(4)] == [True] * 2 + [False] * 2
        assert desk.dialer.room(Id(3)) == 1000

    desk(story, max_link_buffer_bytes=1000)


def test_the_first_may_be_larger_than_the_queue(desk) -> None:
    async def story(desk: Desk) -> None:
        assert desk.parcel(bytes(5000))
        assert not desk.parcel()
        assert desk.dialer.room(HIGH) == 0

    desk(story, max_link_buffer_bytes=1000)


def test_no_more_dials_than_allowed(desk) -> None:
    async def story(desk: Desk) -> None:
        peers = [Peer(Id(number), "there", 1, 1) for number in range(5)]
        assert [desk.control(peer=peer) for peer in peers] == [True] * 3 + [False] * 2
        assert desk.control(peer=peers[0])
        await desk.loop.moment(0.1)
        assert len(desk.dialled) == 3
        await desk.loop.moment(4.0)
        assert desk.control(peer=peers[4])

    desk(story, max_dials=3)


def test_the_list_of_the_unreachable_is_bounded(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: ConnectionRefusedError(errno.ECONNREFUSED, "no")}
        for number in range(20):
            assert desk.control(peer=Peer(Id(number), "there", 1, 1))
            await desk.loop.moment(0.01 * (number + 1))
            assert len(desk.dialer._unreachable) <= 3
        assert len(desk.failures) == 20
        await desk.loop.moment(1.0)
        desk.control(peer=Peer(Id(99), "there", 1, 1))
        await desk.loop.moment(1.1)
        assert set(desk.dialer._unreachable) == {Id(99)}

    desk(story, max_dials=3)


# -- failure


def test_after_a_failure_parcels_are_refused_for_a_while(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: ConnectionRefusedError(errno.ECONNREFUSED, "no")}
        assert desk.parcel()
        assert desk.control()
        assert desk.control()
        await desk.loop.moment(0.1)
        assert desk.failures == [(PEER, "connection refused", True)]
        assert (desk.incidents.counters["parcels_lost"], desk.incidents.counters["messages_lost"]) == (1, 2)
        assert not desk.parcel()
        assert desk.parcel(peer=Peer(Id(3), "there", 1, 1))
        await desk.loop.moment(0.19)
        assert not desk.parcel()
        await desk.loop.moment(0.21)
        assert desk.parcel()

    desk(story, redial_s=0.2)


def test_a_control_message_does_not_wait_out_the_pause(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: ConnectionRefusedError(errno.ECONNREFUSED, "no")}
        desk.control()
        await desk.loop.moment(0.01)
        assert not desk.parcel()
        assert desk.control()
        await desk.loop.moment(0.02)
        assert len(desk.dialled) == len(desk.failures) == 2

    desk(story)


def test_parcels_that_waited_in_vain_are_given_back(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: ConnectionRefusedError()}
        bodies = [b"one", b"two"]
        assert all(desk.parcel(body) for body in bodies)
        desk.dialer.enqueue(PEER, Kind.CONTROL, b"heartbeat")
        await desk.loop.moment(0.1)
        assert desk.given_back == bodies
        assert not desk.parcel(b"three"), "it would not come back before redial_s are over"

    desk(story)


@pytest.mark.parametrize("outcome", [MUTE, LOST])
def test_a_dial_without_an_answer_fails_after_handshake_s(desk, outcome: str) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: outcome}
        desk.parcel()
        await desk.loop.moment(2.99)
        assert desk.failures == []
        await desk.loop.moment(3.01)
        assert [(peer, refused) for peer, _, refused in desk.failures] == [(PEER, True)]
        assert desk.failures[0][1] in ("no answer in time", "no hello in time")
        assert all(wire.is_closing() for wire in desk.wires)

    desk(story, handshake_s=3.0)


@pytest.mark.parametrize(
    ("outcome", "refused"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), True),
        (OSError(errno.EHOSTUNREACH, "no"), True),
        (UnicodeError("a label too long"), True),
        (OverflowError("port"), True),
        (OSError(errno.EMFILE, "no"), False),
        (OSError(errno.ENFILE, "no"), False),
        (OSError(errno.ENOBUFS, "no"), False),
        (OSError(errno.EADDRNOTAVAIL, "no"), False),
        (Reason.FULL, False),
        (Reason.NOT_ME, True),
        (Reason.RING, True),
        (Reason.BROKEN, True),
    ],
)
def test_only_failures_of_the_peer_count_as_refused(desk, outcome: object, refused: bool) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: outcome}
        desk.control()
        await desk.loop.moment(0.1)
        ((peer, why, told),) = desk.failures
        assert (peer, told) == (PEER, refused)
        assert why
        assert "\n" not in why
        assert desk.incidents.counters["dial_errors"] == 0

    desk(story)


def test_a_duplicate_is_dialled_again_until_the_time_is_over(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: Reason.DUPLICATE}
        desk.parcel()
        await desk.loop.moment(1.9)
        assert desk.failures == []
        pauses = {
            round(later[0] - earlier[0], 6) for earlier, later in zip(desk.dialled, desk.dialled[1:], strict=False)
        }
        assert pauses == {2.0 / REDIALS}
        await desk.loop.moment(10.0)
        assert [(peer, refused) for peer, _, refused in desk.failures] == [(PEER, True)]
        assert 2 <= len(desk.dialled) <= REDIALS + 1

    desk(story, handshake_s=2.0)


def test_a_duplicate_accepted_at_the_next_try_has_lost_no_message(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: Reason.DUPLICATE}
        desk.parcel(b"patient")
        await desk.loop.moment(0.01)
        desk.outcomes = {1: MUTE}
        await desk.loop.moment(0.2)
        assert len(desk.dialled) == 2
        assert desk.dialer.finish(HIGH, desk.board.linked[-1]) == [(Kind.PARCEL, b"patient")]
        desk.board.linked[-1].open(PEER, None)
        assert desk.failures == []

    desk(story)


def test_our_own_fault_is_logged_and_ends_that_dial(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: ZeroDivisionError("our own")}
        with capture_logs() as lines:
            desk.control()
            await desk.loop.moment(0.1)
        assert [line["event"] for line in lines] == ["dial_errors"]
        assert len(desk.failures) == 1
        assert desk.dialer.state_of(HIGH) is LinkState.APART

    desk(story)


# -- the end


def test_closing_gives_up_open_dials_without_failures(desk) -> None:
    async def story(desk: Desk) -> None:
        desk.outcomes = {1: MUTE, 2: LOST}
        desk.parcel()
        desk.parcel(peer=Peer(Id(3), "there", 2, 1))
        await desk.loop.moment(0.1)
        await desk.dialer.close()
        assert desk.loop.time() == pytest.approx(0.1 + 1.0)
        assert desk.failures == []
        assert desk.wires[0].is_closing()
        assert not desk.parcel()
        assert not desk.control()
        assert len(desk.dialled) == 2

    desk(story, linger_s=2.0)


# -- over real sockets


async def test_a_peer_never_has_two_dials(side, until) -> None:
    ours, other = await side(LOW), await side(HIGH)
    for _ in range(50):
        ours.links.send(other.me, Ping())
    await until(lambda: len(other.owner.messages) == 50)
    assert ours.incidents.counters["dials"] == 1


async def test_a_refused_dial_is_reported_and_parcels_are_refused_during_the_pause(side, until) -> None:
    ours, gone = await side(LOW), await side(HIGH)
    await gone.links.close()
    assert ours.links.send(gone.me, Ping())
    await until(lambda: ours.owner.losses)
    assert ours.owner.losses == [(gone.me, True)]
    assert not ours.links.send(gone.me, Parcel(b"x"))
    assert ours.incidents.counters["parcels_refused"] == 1
    assert ours.incidents.counters["messages_lost"] == 1
    assert ours.incidents.counters["dials"] == 1


async def test_a_host_that_cannot_be_resolved_is_refused(side, until) -> None:
    ours = await side(LOW)
    for number, host in enumerate(["no such host", "a" * 70 + ".example", "..", "\u2028"]):
        ours.links.send(Peer(Id(number), host, 1, 1), Ping())
    await until(lambda: len(ours.owner.losses) == 4)
    assert all(refused for _, refused in ours.owner.losses)


async def test_the_queue_of_a_dial_is_bounded(side, until) -> None:
    ours = await side(LOW, max_link_buffer_bytes=100_000, handshake_s=0.3)
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    peer = Peer(HIGH, "127.0.0.1", mute.sockets[0].getsockname()[1], 1)
    taken = sum(ours.links.send(peer, Parcel(bytes(1000))) for _ in range(500))
    assert 90 < taken <= 100
    await until(lambda: ours.owner.losses)
    assert ours.owner.losses == [(peer, True)]
    assert ours.incidents.counters["parcels_lost"] == taken
    mute.close()


async def test_dials_are_bounded(side, until) -> None:
    ours = await side(LOW, max_dials=3, handshake_s=0.2)
    mute = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = mute.sockets[0].getsockname()[1]
    sent = [ours.links.send(Peer(Id(number), "127.0.0.1", port, 1), Ping()) for number in range(5)]
    assert sent == [True] * 3 + [False] * 2
    await until(lambda: len(ours.owner.losses) == 3)
    mute.close()
