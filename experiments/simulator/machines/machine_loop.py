"""The event loop of one process on virtual time: asyncio's interface, without sockets, threads and waiting.

A pass runs the callbacks that are due, as those of asyncio and uvloop do: timers that have come, and what earlier
callbacks and the network have added. A process can be held and let go, be slow, and end between any two callbacks.
Work counts as time: `callback_s` for each callback, multiplied by `slowness`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import socket
from asyncio.events import _get_running_loop, _set_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, Final, Protocol, TypeVar, cast

from ringmq.experiments.simulator.machines.virtual_time import VirtualTime

Outcome = TypeVar("Outcome")

MOST_TASKS: Final = 200
"""Tasks that are remembered before those that are done are forgotten."""
CALLBACK_S: Final = 20e-6
"""What a callback takes on an ordinary machine."""


class CrashError(BaseException):
    """The process ends here and now. Not an Exception: nobody must handle it."""


class Callback(asyncio.TimerHandle):
    """A callback with its time."""

    __slots__ = ("make",)

    def __init__(
        self, when: float, call: Callable[..., object], loop: MachineLoop, context: contextvars.Context | None
    ) -> None:
        super().__init__(when, call, (), cast(asyncio.AbstractEventLoop, loop), context)
        self.make = call if context is None else partial(context.run, call)


class Sockets(Protocol):
    """The network, as the programs of a machine use it."""

    async def dial(self, host: str, port: int) -> SocketEnd:
        """Raises OSError."""
        ...

    def listen(self, protocol: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server: ...


class SocketEnd(Protocol):
    """A connected socket without a program that uses it yet."""

    def attach(self, protocol: asyncio.Protocol) -> asyncio.Transport: ...


class MachineLoop:
    """One per process: the part of asyncio's interface that peers and clients use."""

    def __init__(self, clock: VirtualTime, name: str, sockets: Sockets) -> None:
        self.name = name
        self.is_over = False
        self.slowness = 1.0
        self.waited_s = 0.0
        """For how long this process could have run, had it had a processor of its own."""
        self.before_callback: Callable[[], None] = _nothing
        """Called before each callback; may raise CrashError."""
        self._clock = clock
        self._sockets = sockets
        self._tasks: list[asyncio.Task[Any]] = []
        """So that no task of a process that was killed comes to an end of its own, as garbage."""
        self._ready: deque[Callback] = deque()
        self._timers: list[tuple[float, int, Callback]] = []
        self._added = 0
        self._wakes_at = inf
        self._busy_until = 0.0
        self._held = False
        self._passing = False
        """Whether callbacks run now: when the next do, their time tells."""

    # Life

    def hold(self) -> None:
        """Stand still: what comes waits."""
        self._held = True

    def let_go(self) -> None:
        self._held = False
        self._schedule()

    def end(self) -> None:
        """Call nothing any more."""
        self.is_over = True
        self._ready.clear()
        self._timers.clear()

    def close(self) -> None:
        """Forget the tasks that have not ended. For the end of the simulation."""
        self.end()
        for task in self._tasks:
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self._tasks.clear()

    def _schedule(self) -> None:
        if self._held or self.is_over or self._passing:
            return
        at = self._clock.now if self._ready else self._timers[0][0] if self._timers else inf
        at = max(at, self._busy_until, self._clock.now)
        if at < self._wakes_at:
            self._wakes_at = at
            self._clock.after(at - self._clock.now, self._wake, at)

    def _wake(self, at: float) -> None:
        if at != self._wakes_at:
            return  # an earlier one has come since
        self._wakes_at = inf
        if not self._held and not self.is_over:
            self._passing = True
            try:
                self._pass()
            finally:
                self._passing = False
            self._schedule()

    def _pass(self) -> None:
        now, timers, ready = self._clock.now, self._timers, self._ready
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])
        count = len(ready)
        before = _get_running_loop()
        _set_running_loop(cast(asyncio.AbstractEventLoop, self))
        try:
            for _ in range(count):
                if self.is_over:
                    return
                callback = ready.popleft()
                if not callback.cancelled():
                    self._run(callback)
        finally:
            _set_running_loop(before)
        spent_s = count * CALLBACK_S
        self.waited_s += spent_s * (self.slowness - 1.0)
        self._busy_until = now + spent_s * self.slowness

    def _run(self, callback: Callback) -> None:
        try:
            self.before_callback()
            callback.make()
        except CrashError:
            self.end()
        except Exception as error:  # noqa: BLE001 - as in asyncio: the root of a callback
            self.call_exception_handler({"message": "unhandled error in a callback", "exception": error})

    # asyncio's interface

    def time(self) -> float:
        return self._clock.now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        made = Callback(self._clock.now, partial(callback, *args) if args else callback, self, context)
        if not self.is_over:
            self._ready.append(made)
            if self._wakes_at > self._clock.now:
                self._schedule()
        return made

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        return self.call_at(self._clock.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Callback:
        made = Callback(when, partial(callback, *args) if args else callback, self, context)
        if not self.is_over:
            self._added += 1
            heappush(self._timers, (when, self._added, made))
            if when < self._wakes_at:
                self._schedule()
        return made

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast(asyncio.AbstractEventLoop, self))

    def create_task(
        self, coro: Coroutine[Any, Any, Outcome], *, name: str | None = None, **more: Any
    ) -> asyncio.Task[Outcome]:
        task: asyncio.Task[Outcome] = asyncio.Task(coro, loop=cast(asyncio.AbstractEventLoop, self), name=name)
        if len(self._tasks) > MOST_TASKS:
            self._tasks = [known for known in self._tasks if not known.done()]
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Outcome], *args: Any) -> asyncio.Future[Outcome]:
        """There are no threads: the call is made at once."""
        future: asyncio.Future[Outcome] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - as in a thread: for who awaits it
            future.set_exception(error)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """An error that no program expected."""
        if self.is_over:
            return  # a task of a process that has ended
        error = context.get("exception")
        text = f"{self.name}: {context.get('message')}: {error!r}"
        self._clock.faults.append(text)
        self._clock.note(text)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio's timers call it."""

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_over

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: Any = None, port: Any = None, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """`sock` is what the network's `dial` has returned. Raises OSError."""
        end = cast(SocketEnd, options.get("sock")) or await self._sockets.dial(host, port)
        protocol = protocol_factory()
        return end.attach(protocol), protocol

    async def create_server(
        self, protocol_factory: Callable[[], asyncio.Protocol], host: Any = None, port: Any = None, **options: Any
    ) -> asyncio.Server:
        address = host if isinstance(host, str) else host[0]
        server = self._sockets.listen(protocol_factory, address, port)
        if options.get("start_serving", True):
            await server.start_serving()
        return server


def running_loop() -> MachineLoop | None:
    """The loop of the process that runs now; None: no process does."""
    loop = _get_running_loop()
    return loop if isinstance(loop, MachineLoop) else None


def _nothing() -> None:
    pass
