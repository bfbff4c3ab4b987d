"""One run of whole peers and MQTT clients with sessions on virtual time, checked against the promises of the documents.

The seed determines traffic and faults; peers draw some random numbers of their own. A broken promise is raised with the
seed, the violations, and the last events.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from time import process_time
from typing import Any, Final

import structlog

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.chaos.checker import Violation, counted
from ringmq.experiments.chaos.conditions import Terms
from ringmq.experiments.chaos.run import RunOutcome
from ringmq.experiments.scenarios.sessions.run import SimulatedRun
from ringmq.experiments.scenarios.sessions.site import SimulatedSite
from ringmq.experiments.scenarios.sessions.troubles import BY_NAME, SESSION_TROUBLES, SessionTrouble
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.machines.machine_loop import running_loop
from ringmq.experiments.simulator.machines.peer_machine import MachineSettings, address_of
from ringmq.experiments.simulator.machines.virtual_time import VirtualTime
from ringmq.mqtt_front.config import FrontConfig
from ringmq.peer.messaging.config import PRESETS

MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a file system in memory, with folders of our own
SHOWN: Final = 5
"""Violations in an error."""
SEEDS: Final = 3
"""All peers join the first three, so that one of them may be away."""
LIMITS: Final = FrontConfig(max_queued=100_000, max_queued_bytes=1 << 28)
"""The queue of a client that is away has a bound by design: no run may reach it."""


@dataclass(frozen=True, slots=True)
class SessionFigures:
    """Figures of one run without a broken promise."""

    nodes: int
    seed: int
    trouble: str
    messages: int
    acknowledged: int
    deliveries: int
    faults: int
    longest_puback_s: float
    longest_suback_s: float
    seconds: float
    """Virtual time."""
    events: int
    cpu_s: float


def sessions(
    nodes: int,
    seed: int,
    timing: str = "lan",
    span_s: float = 20.0,
    trouble: str | None = None,
    dispatch: Choice | None = None,
) -> SessionFigures:
    """Run whole peers under a trouble, by default the one that the seed chooses.

    Raises InvariantBrokenError if a promise does not hold.
    """
    started_s = process_time()
    chosen = SESSION_TROUBLES[seed % len(SESSION_TROUBLES)] if trouble is None else BY_NAME[trouble]
    clock = VirtualTime(seed)
    roles = PRESETS[timing] if dispatch is None else replace(PRESETS[timing], dispatch=dispatch)
    seeds = tuple(address_of(number) for number in range(min(SEEDS, nodes)))
    with _folder() as folder, _quiet(clock):
        site = SimulatedSite(clock, nodes, folder, MachineSettings(timing, roles, LIMITS, seeds))
        try:
            outcome = _go_through(site, chosen, span_s, Random(f"{chosen.name} {seed}"), timing)
        finally:
            site.close()
    if outcome.violations:
        raise _broken(outcome, clock, f"seed {seed}, trouble {chosen.name}, {nodes} peers")
    figures = outcome.figures
    return SessionFigures(
        nodes=nodes,
        seed=seed,
        trouble=chosen.name,
        messages=int(figures["messages"]),
        acknowledged=int(figures["acknowledged"]),
        deliveries=int(figures["deliveries"]),
        faults=int(figures["faults"]),
        longest_puback_s=figures["worst puback s"],
        longest_suback_s=figures["worst suback s"],
        seconds=figures["seconds"],
        events=clock.calls,
        cpu_s=round(process_time() - started_s, 1),
    )


def _go_through(site: SimulatedSite, trouble: SessionTrouble, span_s: float, chance: Random, timing: str) -> RunOutcome:
    # A client that sends a message again names it by its identifier, so only a crash excuses a repetition.
    terms = Terms(puback_s=trouble.answer_s, suback_s=trouble.answer_s, repeats=False)
    if timing == "wan":
        terms = replace(terms, waited_s=48.0, met_s=25.0, puback_s=4 * terms.puback_s, suback_s=4 * terms.suback_s)
    made: list[RunOutcome] = []

    async def go() -> None:
        run = SimulatedRun(site, trouble.traffic, terms, span_s, chance)
        made.append(await run.go_through(trouble.play))

    task = site.clients_loop.create_task(go())
    site.virtual_time.run(task.done)
    task.result()
    return made[0]


def _broken(outcome: RunOutcome, clock: VirtualTime, which: str) -> InvariantBrokenError:
    counts = ", ".join(f"{count} of {name}" for name, count in counted(outcome.violations).items())
    broken = InvariantBrokenError(f"{which}: {counts}")
    for violation in _first_of_each(outcome.violations):
        broken.add_note(f'{violation.line()}\n  broken: "{violation.promise.sentence}" ({violation.promise.document})')
    broken.add_note("\n  ".join(["the last events:", *clock.last()]))
    return broken


def _first_of_each(violations: list[Violation]) -> Iterator[Violation]:
    """The first violations of each promise."""
    shown: dict[str, int] = {}
    for violation in violations:
        name = violation.promise.name
        shown[name] = shown.get(name, 0) + 1
        if shown[name] <= SHOWN:
            yield violation


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder for the disks of a run, in memory where the system has such a file system."""
    folder = Path(mkdtemp(prefix="ringmq-simulated-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _quiet(clock: VirtualTime) -> Iterator[None]:
    """Keep the log lines of the peers among the notes, and let errors count as faults."""

    def keep(logger: object, method: str, event: structlog.typing.EventDict) -> Any:
        level, text = event.pop("level", method), str(event.pop("event", ""))
        loop = running_loop()
        name = "run" if loop is None else loop.name
        line = f"{name} [{level}] {text} {' '.join(f'{key}={value}' for key, value in event.items())}"
        clock.note(line)
        if level in ("error", "critical", "exception"):
            clock.faults.append(line)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
