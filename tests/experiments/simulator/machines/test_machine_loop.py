"""The event loop of a simulated process: asyncio's, on virtual time. It can stand still, be slow and end anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ringmq.experiments.simulator.machines.machine_loop import CALLBACK_S, CrashError, MachineLoop
from ringmq.experiments.simulator.machines.streams import HostSockets, SimulatedNetwork
from ringmq.experiments.simulator.machines.virtual_time import StuckError, VirtualTime


@pytest.fixture
def clock() -> VirtualTime:
    return VirtualTime(1)


@pytest.fixture
def make(clock: VirtualTime) -> Callable[[], MachineLoop]:
    network = SimulatedNetwork(clock)

    def make_one() -> MachineLoop:
        sockets = HostSockets(network, "10.0.0.1")
        sockets.loop = MachineLoop(clock, "a process", sockets)
        return sockets.loop

    return make_one


def until(clock: VirtualTime, at: float) -> None:
    reached: list[bool] = []
    clock.after(at - clock.now, reached.append, True)
    clock.run(lambda: bool(reached))


def test_tasks_wait_and_time_out_on_virtual_time(clock: VirtualTime, make: Callable[[], MachineLoop]) -> None:
    loop, seen = make(), []

    async def work() -> None:
        come = asyncio.Event()
        asyncio.get_running_loop().call_later(100.0, come.set)
        await come.wait()
        seen.append(loop.time())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(50.0):
                await asyncio.Event().wait()
        seen.append(loop.time())
        assert await asyncio.to_thread(lambda: 7) == 7

    task = loop.create_task(work())
    clock.run(task.done)
    task.result()
    assert seen == pytest.approx([100.0, 150.0], abs=0.01)


def test_calls_come_in_the_order_of_their_times_and_not_after_a_cancel(
    clock: VirtualTime, make: Callable[[], MachineLoop]
) -> None:
    loop, seen = make(), []
    loop.call_later(2.0, seen.append, "later")
    loop.call_later(1.0, seen.append, "first")
    loop.call_later(1.0, seen.append, "second")
    loop.call_later(1.5, seen.append, "never").cancel()
    until(clock, 3.0)
    assert seen == ["first", "second", "later"]


def test_a_process_that_stands_still_catches_up(clock: VirtualTime, make: Callable[[], MachineLoop]) -> None:
    loop, seen = make(), []
    loop.call_later(1.0, lambda: seen.append(loop.time()))
    loop.hold()
    until(clock, 5.0)
    assert seen == []
    loop.let_go()
    until(clock, 5.1)
    assert seen == pytest.approx([5.0])


def test_work_takes_a_slow_process_its_time(clock: VirtualTime, make: Callable[[], MachineLoop]) -> None:
    loop, seen = make(), []
    loop.slowness = 1000.0

    def again() -> None:
        seen.append(loop.time())
        loop.call_soon(again)

    loop.call_soon(again)
    callback_s = 1000 * CALLBACK_S
    until(clock, 10.5 * callback_s)
    assert seen == pytest.approx([number * callback_s for number in range(11)])
    assert loop.waited_s == pytest.approx(clock.now, rel=0.1)


def test_a_crash_ends_a_process_between_two_callbacks(clock: VirtualTime, make: Callable[[], MachineLoop]) -> None:
    loop, seen = make(), []

    def crash() -> None:
        raise CrashError

    loop.call_soon(seen.append, "before")
    loop.call_soon(crash)
    loop.call_soon(seen.append, "after")
    until(clock, 1.0)
    loop.call_soon(seen.append, "later")
    until(clock, 2.0)
    assert (seen, loop.is_over, clock.faults) == (["before"], True, [])


def test_an_error_that_nobody_handles_is_a_fault(clock: VirtualTime, make: Callable[[], MachineLoop]) -> None:
    loop = make()
    loop.call_soon(lambda: 1 // 0)
    until(clock, 1.0)
    assert len(clock.faults) == 1
    assert "ZeroDivisionError" in clock.faults[0]


def test_time_that_stands_still_and_a_world_without_events_are_reported(clock: VirtualTime) -> None:
    with pytest.raises(StuckError, match="nothing happens"):
        clock.run(lambda: False)

    def again() -> None:
        clock.after(0.0, again)

    again()
    with pytest.raises(StuckError, match="stands still"):
        clock.run(lambda: False)
