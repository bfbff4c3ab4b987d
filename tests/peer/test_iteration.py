"""The end of an iteration has one order. Above all, an acknowledgement to another peer leaves only after the commit
that it speaks of, whatever else the same iteration of the event loop brought.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.codec import encode
from ringmq.overlay.core.messages import Ping
from ringmq.overlay.links.frames import Kind, frame
from ringmq.peer.engines.partitioned.messages import Where
from ringmq.peer.iteration import FAILED, Iteration
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import MANY, decode, encode_control, taken_apart
from tests.peer.messaging.shell.test_adapter import Client, PeerHere, lasting, until

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


async def _ended(iteration: Iteration) -> None:
    """Return after the iteration that has begun, and those that its end begins."""
    iteration.begin()
    while iteration._begun:  # noqa: ASYNC110 - an end may begin another iteration
        await asyncio.sleep(0)


async def test_stages_come_in_their_order_whatever_was_added_first() -> None:
    iteration, order = Iteration(), list[str]()
    iteration.continuations.append(lambda: order.append("continue"))
    iteration.flushes.append(lambda: order.append("flush"))
    iteration.acknowledgements.append(lambda: order.append("acknowledge"))
    iteration.commits.append(lambda: order.append("commit"))
    await _ended(iteration)
    assert order == ["commit", "acknowledge", "flush", "continue"]
    await _ended(iteration)
    assert len(order) == 4, "each call is made once"


async def test_changes_of_an_acknowledgement_are_committed_before_the_flush() -> None:
    iteration, order = Iteration(), list[str]()

    def acknowledge() -> None:
        order.append("acknowledge")
        iteration.commits.append(lambda: order.append("commit"))

    iteration.acknowledgements.append(acknowledge)
    iteration.flushes.append(lambda: order.append("flush"))
    await _ended(iteration)
    assert order == ["acknowledge", "commit", "flush"]


async def test_calls_added_after_their_stage_are_made_at_the_end_of_the_next_iteration() -> None:
    iteration, order = Iteration(), list[str]()

    def flush() -> None:
        order.append("flush")
        iteration.acknowledgements.append(lambda: order.append("acknowledge"))

    iteration.flushes.append(flush)
    iteration.continuations.append(lambda: order.append("continue"))
    await _ended(iteration)
    assert order == ["flush", "continue", "acknowledge"]


async def test_failing_call_is_reported_and_does_not_stop_the_others() -> None:
    iteration, order, reported = Iteration(), list[str](), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))

    def fail() -> None:
        raise ValueError("broken")

    iteration.commits.extend((fail, lambda: order.append("commit")))
    iteration.flushes.append(lambda: order.append("flush"))
    await _ended(iteration)
    assert order == ["commit", "flush"]
    assert [(context["message"], str(context["exception"])) for context in reported] == [(FAILED, "broken")]


async def test_the_time_is_taken_once_an_iteration_and_never_goes_back() -> None:
    times = [5.0, 7.0, 6.0, 9.0]
    iteration = Iteration(lambda: times.pop(0))
    assert iteration.now == 5.0
    assert [iteration.begin(), iteration.begin()] == [7.0, 7.0]
    await _ended(iteration)
    assert iteration.begin() == 7.0, "a clock that goes back is not believed"
    iteration.advance(8.0)
    iteration.advance(7.5)
    assert iteration.begin() == 8.0
    await _ended(iteration)
    assert iteration.begin() == 9.0
    await _ended(iteration)


class WatchedTransport:
    """Stands before a link's transport and notes, at each write, the frames and whether a journal was uncommitted."""

    def __init__(self, transport: asyncio.Transport, uncommitted: Callable[[], bool]) -> None:
        self._transport = transport
        self._uncommitted = uncommitted
        self.writes: list[tuple[bool, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def writelines(self, chunks: list[bytes]) -> None:
        self.writes.append((self._uncommitted(), b"".join(chunks)))
        self._transport.writelines(chunks)

    def acknowledgements(self) -> list[bool]:
        """For each `Held` that was written: whether a journal was uncommitted at that moment."""
        return [uncommitted for uncommitted, data in self.writes for body in _bodies(data) if _has_held(body)]


def _bodies(data: bytes) -> list[bytes]:
    bodies = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        if data[4] == Kind.PARCEL:
            bodies.append(data[5:end])
        data = data[end:]
    return bodies


def _has_held(body: bytes) -> bool:
    parts = taken_apart(body) if body[:1] == MANY else [body]
    return any(isinstance(decode(part), Held) for part in parts)


async def _kept_session(peer: PeerHere) -> None:
    """A session at this peer that outlives its connection, with a subscription to `t` with QoS 1."""
    client = await Client.to(peer.mqtt_port, "kept", clean=False)
    await client.subscribe("t")
    await client.close()
    await until(lambda: peer.front.broker.sessions["kept"].writer is None)


async def _owing_ping_publication(folder: Path) -> list[bool]:
    """B reads in one iteration a control message of A that it answers, a ping of C and a publication of C for a kept
    session; returns whether a journal was uncommitted when B wrote its `Held` to C.
    """
    async with lasting(3, folder) as (a, b, c):
        await _kept_session(b)
        speaker = await Client.to(c.mqtt_port, "speaker")
        await speaker.publish("t", b"first")
        sent: list[bytes] = []
        c.node.send = lambda peer, payload: bool(sent.append(payload)) or True  # type: ignore[method-assign]
        c.ports.published(Message("t", b"second", qos=1), 0, lambda reason: None)
        (publication,) = sent
        unused = Where(7, a.node.ring.me)
        links = b.node._links
        link_a, link_c = links.get(a.node.ring.me.id), links.get(c.node.ring.me.id)
        assert link_a is not None
        assert link_c is not None
        assert link_c.transport is not None
        watched = WatchedTransport(link_c.transport, lambda: b.front.broker.journal.pending)
        link_c.transport, link_c._write = watched, watched.writelines  # type: ignore[assignment]

        def read_all() -> None:
            link_a.data_received(frame(Kind.PARCEL, encode_control(unused)))
            link_c.data_received(frame(Kind.CONTROL, encode(Ping())))
            link_c.data_received(frame(Kind.PARCEL, publication))
            assert b.front.broker.journal.pending, "the message waits for the commit"

        asyncio.get_running_loop().call_soon(read_all)
        await until(watched.acknowledgements)
        await speaker.close()
        return watched.acknowledgements()


@LOOPS
def test_held_is_written_after_the_commit_of_the_sessions(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(_owing_ping_publication(tmp_path)) == [False]


async def test_a_commit_that_fails_in_any_way_is_followed_by_no_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the database raises no error of its own, such as an OverflowError for a number that it cannot hold."""

    def fail() -> None:
        raise OverflowError("too large")

    async with lasting(1, tmp_path) as (peer,):
        acknowledged: list[bool] = []
        monkeypatch.setattr(peer.ports.core, "acknowledge", lambda: acknowledged.append(True))
        monkeypatch.setattr(peer.store, "commit", fail)
        peer.ports.published(Message("t", b"x", retain=True), 0, None)
        peer.ports._iteration.begin()
        await until(lambda: peer.ports.fault)
        assert (peer.ports.fault, acknowledged) == ("too large", [])
