"""One run: a ring under traffic and faults, from its start to the list of violations.

Scenarios inject faults through it, so that each is in the history. Knows no scenario.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from ringmq.experiments.chaos import promises
from ringmq.experiments.chaos.checker import Checker, Violation
from ringmq.experiments.chaos.clients import ChaosClient
from ringmq.experiments.chaos.conditions import Terms
from ringmq.experiments.chaos.history import FaultKind, GotMessage, History, Injected
from ringmq.experiments.chaos.recorder import Recorder
from ringmq.experiments.chaos.site import Site
from ringmq.experiments.chaos.traffic import ChaosTraffic, TrafficPlan
from ringmq.experiments.hosts.host import Host
from ringmq.experiments.hosts.network import USUAL, HostNetwork, LineWeather
from ringmq.experiments.load.raw_clients import BenchError

SETTLE_S: Final = 60.0
"""Time for a ring to become whole again after the last fault. All documents speak of seconds."""
READY_S: Final = 90.0
"""Time for all clients to be connected and subscribed at the start and at the end."""
DRAIN_S: Final = 45.0
"""Time for everything to arrive at the end. More than acknowledgements may take by any document with `lan`."""
CALM_S: Final = 3.0
"""Traffic without faults before the first and after the last."""
LOOK_S: Final = 0.25
QUIET_S: Final = 1.5
"""Without any delivery for so long, nothing is on its way."""
RETAINED_WITHIN_S: Final = 15.0
SHOWN_CLIENTS: Final = 5
INACTIVE: Final = "] inactive"
"""Mark of the line that a peer logs when it serves nothing any more."""
ERRORS: Final = ("Traceback", "[error", "[critical")
"""Marks of lines that no log may have."""


@dataclass(slots=True)
class RunOutcome:
    """What a run found."""

    violations: list[Violation]
    history: History
    figures: dict[str, float] = field(default_factory=dict)


class ChaosRun:
    """The scenario's view of a run. Its methods end when the fault is in force, or is over."""

    network: HostNetwork[Host] | None = None
    """The network between the peers, where they have hosts of their own."""

    def __init__(self, site: Site, plan: TrafficPlan, terms: Terms, seconds: float, chance: Random) -> None:
        self.site = site
        self.chance = chance
        self.seconds = seconds
        self.recorder = Recorder(site.clock)
        self.figures: dict[str, float] = {}
        """Figures of the scenario's own, for the line that sums up the run."""
        self.traffic = ChaosTraffic(self.recorder, site.dial, len(site.peers), plan, Random(chance.random()))
        self._terms = terms
        self._end = 0.0
        self._open: dict[int, Injected] = {}
        """Faults of peers that are down or paused."""
        self._cut: Injected | None = None
        self._weather: Injected | None = None

    # For scenarios

    @property
    def peers(self) -> range:
        return range(len(self.site.peers))

    @property
    def is_over(self) -> bool:
        """Whether the time for faults is over."""
        return self.recorder.now >= self._end

    async def wait(self, least_s: float, most_s: float | None = None) -> None:
        """Let time pass: a random time, not beyond the end of the faults."""
        seconds = self.chance.uniform(least_s, least_s if most_s is None else most_s)
        await asyncio.sleep(max(0.0, min(seconds, self._end - self.recorder.now)))

    def some(self, count: int) -> list[int]:
        """Random peers."""
        return self.chance.sample(self.peers, count)

    async def kill(self, *numbers: int, kind: FaultKind = FaultKind.DOWN) -> None:
        """SIGKILL, at one moment."""
        self._down(numbers, kind, "kill -9")
        await self._call_site(self.site.kill, numbers)

    async def stop(self, *numbers: int) -> None:
        """SIGTERM."""
        self._down(numbers, FaultKind.DOWN, "SIGTERM")
        await self._call_site(self.site.stop, numbers)

    def falls(self, number: int, how: str) -> None:
        """A peer will end by itself, as is right: note it before its cause. `start` ends the fault."""
        fault = self.recorder.injected(FaultKind.DOWN, (number,), text=how)
        self._open[number] = fault
        self.site.peers[number].is_meant_to_run = False

    def _down(self, numbers: Iterable[int], kind: FaultKind, how: str) -> None:
        names = ", ".join(map(str, numbers))
        fault = self.recorder.injected(kind, numbers, text=f"{how} of {names}")
        self._open.update(dict.fromkeys(numbers, fault))

    async def start(self, *numbers: int) -> None:
        """Start peers again. Raises BenchError if one does not serve."""
        await self._call_site(self.site.start, numbers)
        self.is_back(*numbers)

    async def _call_site(self, call: Callable[..., None], numbers: Iterable[int]) -> None:
        """Make a call of the site, which blocks until it is done."""
        await asyncio.to_thread(call, *numbers)

    def is_back(self, *numbers: int) -> None:
        """The fault of these peers is over; that of several ends with the last."""
        for number in numbers:
            fault = self._open.pop(number, None)
            if fault is not None and fault not in self._open.values():
                fault.end = self.recorder.now

    def pause(self, *numbers: int) -> None:
        """SIGSTOP."""
        names = ", ".join(map(str, numbers))
        fault = self.recorder.injected(FaultKind.PAUSED, numbers, text=f"SIGSTOP of {names}")
        for number in numbers:
            self.site.peers[number].send(signal.SIGSTOP)
            self._open[number] = fault

    def resume(self, *numbers: int) -> None:
        """SIGCONT."""
        for number in numbers:
            self.site.peers[number].send(signal.SIGCONT)
        self.is_back(*numbers)

    def cut(self, pairs: Iterable[tuple[int, int]], text: str) -> None:
        """Frames from the first peer of a pair to the second are lost, until `heal`; replaces the cut before."""
        self.heal()
        self._cut = self.recorder.injected(FaultKind.CUT, pairs=pairs, text=text)
        self._network().block(self._cut.pairs)

    def cut_apart(self, *parts: Iterable[int]) -> None:
        """No part reaches another, until `heal`."""
        of = {number: index for index, part in enumerate(parts) for number in part}
        names = " | ".join(",".join(map(str, sorted(part))) for part in parts)
        self.cut([(source, target) for source in of for target in of if of[source] != of[target]], f"cut {names}")

    def heal(self) -> None:
        """End the cut."""
        if self._cut is not None:
            self._network().block(())
            self._cut.end = self.recorder.now
            self._cut = None

    def change_weather(self, weather: LineWeather = USUAL) -> None:
        """Delay, loss and reordering between all peers from now on."""
        if self._weather is not None:
            self._weather.end = self.recorder.now
            self._weather = None
        if weather != USUAL:
            self._weather = self.recorder.injected(FaultKind.WEATHER, text=f"weather {weather.words()}")
        self._network().change(weather)

    def _network(self) -> HostNetwork[Host]:
        assert self.network is not None, "only scenarios that need hosts cut lines"
        return self.network

    async def settle(self, within_s: float = SETTLE_S) -> None:
        """Wait until the ring is whole; an incident if it does not become so."""
        since = self.recorder.now
        if not await self._until(self.site.is_whole, within_s):
            statuses = await self.site.statuses(self.peers)
            silent = [number for number, status in statuses.items() if not status]
            named = f"; no status from {silent}" if silent else ""
            text = f"the ring was not whole {within_s:g} s after {since:.3f}{named}"
            self.recorder.incident(promises.WHOLE, text)

    # The run

    async def go_through(self, play: Callable[[ChaosRun], Awaitable[None]]) -> RunOutcome:
        """Start, play the scenario, heal, drain and check. Raises BenchError if the run could not begin."""
        await self._call_site(self.site.start, [0])
        await self._call_site(self.site.start, self.peers[1:])
        if not await self._until(self.site.is_whole, SETTLE_S):
            raise BenchError(f"{len(self.peers)} peers were not one ring after {SETTLE_S:g} s")
        try:
            self.traffic.start()
            if not await self._until(self._all_ready, READY_S):
                raise BenchError(f"the clients were not all subscribed after {READY_S:g} s")
            self.traffic.run()
            await asyncio.sleep(CALM_S)
            self._end = self.recorder.now + self.seconds
            await play(self)
            await self._heal()
            await asyncio.sleep(CALM_S)
            await self.traffic.stop()
            await self._drain()
            await self._read_retained()
        finally:
            await self.traffic.close()
        self._read_logs()
        return self._outcome()

    async def _all_ready(self) -> bool:
        return self.traffic.all_ready

    async def _heal(self) -> None:
        if self.network is not None:
            self.heal()
            self.change_weather()
        paused = [number for number, fault in self._open.items() if fault.kind is FaultKind.PAUSED]
        self.resume(*paused)
        down = [peer.number for peer in self.site.peers if not peer.alive]
        await self.start(*down)
        await self.settle()

    async def _drain(self) -> None:
        """Wait until all clients are back, all publications have an end and no promised message is missing."""
        deadline = self.recorder.now + DRAIN_S
        if not await self._until(self._all_ready, READY_S):
            names = [client.name for client in self.traffic.clients if not client.is_ready]
            named = ", ".join(names[:SHOWN_CLIENTS])
            text = f"{len(names)} clients not subscribed {READY_S:g} s after the faults: {named} …"
            self.recorder.incident(promises.SUBACK, text)
        while self.recorder.now < deadline:
            await asyncio.sleep(QUIET_S)
            if not self.traffic.pending and self._is_quiet() and not self._missing():
                return

    def _is_quiet(self) -> bool:
        deliveries = self.recorder.history.deliveries
        return not deliveries or deliveries[-1].at < self.recorder.now - QUIET_S

    def _missing(self) -> bool:
        self.recorder.history.until = self.recorder.now
        return next(Checker(self.recorder.history, self._terms).losses(), None) is not None

    async def _read_retained(self) -> None:
        """Subscribe to all retained messages at each peer, with new clients."""
        readers = []
        for number in self.peers:
            reader = ChaosClient(self.recorder, self.site.dial, f"reader-{number}", number)
            reader.wanted = [("r/#", 1)]
            reader.come()
            readers.append(reader)
        self.traffic.others += readers
        await self._until(self._all_ready, RETAINED_WITHIN_S)
        begun = self.recorder.now
        while self.recorder.now < begun + RETAINED_WITHIN_S:
            await asyncio.sleep(QUIET_S)
            if self._is_quiet():
                break
        names = {reader.name: reader.peer for reader in readers}
        copies = {(names[got.client], got.topic): got.number for got in self._got_by(names)}
        topics = {message.topic for message in self.recorder.history.messages.values()}
        for reader in readers:
            for topic in sorted(topic for topic in topics if topic.startswith("r/")):
                self.recorder.retained(reader.peer, topic, copies.get((reader.peer, topic), 0))

    def _got_by(self, names: Iterable[str]) -> list[GotMessage]:
        return [got for got in self.recorder.history.deliveries if got.client in names]

    def _read_logs(self) -> None:
        """Ends that nobody asked for, tracebacks, and breaches of the protocol."""
        for peer in self.site.peers:
            if peer.is_meant_to_run and not peer.alive:
                last = peer.logged().strip().splitlines()[-1:]
                self.recorder.incident(promises.ALIVE, f"{peer} has ended by itself: {''.join(last)}")
            bad = [line for line in peer.logged().splitlines() if any(mark in line for mark in ERRORS)]
            if bad:
                self.recorder.incident(promises.ALIVE, f"{peer} logged {len(bad)} errors, the first: {bad[0]}")
            left = peer.logged().count(INACTIVE)
            if left and not self.recorder.history.faults:
                self.recorder.incident(promises.ACTIVE, f"{peer} left the ring {left} times without any fault")
        for client in self.traffic.clients:
            for breach in client.breaches:
                self.recorder.incident(promises.MATCH, breach)

    def _outcome(self) -> RunOutcome:
        history = self.recorder.history
        history.until = self.recorder.now
        waits = [
            message.acknowledged_at - message.at
            for message in history.messages.values()
            if message.acknowledged_at is not None and not message.resent
        ]
        grants = [entry.granted_at - entry.asked_at for entry in history.entries if entry.granted_at is not None]
        figures = {
            "seconds": round(history.until, 1),
            "messages": len(history.messages),
            "acknowledged": sum(message.is_acknowledged for message in history.messages.values()),
            "deliveries": len(history.deliveries),
            "faults": len(history.faults),
            "worst puback s": round(max(waits, default=0.0), 2),
            "worst suback s": round(max(grants, default=0.0), 2),
            "inactive": sum(peer.logged().count(INACTIVE) for peer in self.site.peers),
        } | self.figures
        return RunOutcome(Checker(history, self._terms).violations(), history, figures)

    async def _until(self, condition: Callable[[], Awaitable[bool]], within_s: float) -> bool:
        deadline = self.site.clock() + within_s
        while not await condition():
            if self.site.clock() > deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True


def save_run(outcome: RunOutcome, folder: Path) -> Path:
    """Write the history beside the logs of a run that is kept."""
    file = folder / "history.jsonl"
    outcome.history.save(file)
    return file
