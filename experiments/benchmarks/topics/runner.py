"""Runs a pattern at new servers of a system. Owns the order of measurements and the options of the servers."""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ringmq.experiments.benchmarks.crowd import many_files
from ringmq.experiments.benchmarks.topics import dialogues, publishing
from ringmq.experiments.benchmarks.topics.costs import Reading
from ringmq.experiments.benchmarks.topics.filters import filters
from ringmq.experiments.benchmarks.topics.meter import Meter, Reference
from ringmq.experiments.benchmarks.topics.method import TopicsMethod, TopicsPattern
from ringmq.experiments.benchmarks.topics.retained import retained
from ringmq.experiments.benchmarks.topics.systems import Source, System
from ringmq.experiments.benchmarks.topics.takeover import takeover
from ringmq.experiments.load.raw_clients import BenchError

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]

PATIENT: Final = """\
[limits]
max_queued = 100000
"""
"""Settings of the peers of `takeover`. With the usual limit, a front may drop messages that come at once after a pause,
and they would count as losses of the ring."""
CLIENTS_EACH: Final = 3
"""Open files of this process for each client of a pattern, at most."""

Play = Callable[[System, Meter, TopicsMethod, Reading], None]


def _on_a_loop(play: Callable[[System, Meter, TopicsMethod, Reading], Coroutine[Any, Any, None]]) -> Play:
    @wraps(play)
    def run(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(play(system, meter, method, reading))

    return run


PLAYS: Final[dict[TopicsPattern, Play]] = {
    TopicsPattern.NEW: publishing.new,
    TopicsPattern.AGAIN: publishing.again,
    TopicsPattern.WILD: publishing.wild,
    TopicsPattern.DEEP: publishing.deep,
    TopicsPattern.FILTERS: filters,
    TopicsPattern.CHURN: _on_a_loop(dialogues.churn),
    TopicsPattern.REQUEST: _on_a_loop(dialogues.request),
    TopicsPattern.CONNECTS: _on_a_loop(dialogues.connects),
    TopicsPattern.RETAINED: retained,
    TopicsPattern.TAKEOVER: _on_a_loop(takeover),
}


def measure(
    source: Source, pattern: TopicsPattern, peers: int, method: TopicsMethod, core: int, bytecode: Path, seed: int
) -> Reading:
    """Measure one pattern at new servers. A pattern that breaks off has the figures until then.

    Raises BenchError if the servers cannot be started, or do not carry the messages of the reference.
    """
    with TemporaryDirectory(prefix="ringmq-bench-") as folder, many_files(CLIENTS_EACH * max(method.clients)):
        options = _options(pattern, method, Path(folder))
        with source.opened(peers, options, core, bytecode, seed) as system:
            meter = Meter(system)
            with Reference(system, meter) as reference:
                reading = Reading(reference.measure(method.timeout_s))
                time.sleep(method.settle_s)
                reading.rest_before = meter.rest(method.rest_s)
                reading.memory_before = meter.memory()
                try:
                    _play(system, pattern, meter, method, reading)
                except BenchError as error:
                    reading.broken_off = True
                    reading.faults.append(str(error))
                    return reading
                if math.isnan(reading.rest_after):
                    time.sleep(method.settle_s)
                    reading.rest_after = meter.rest(method.rest_s)
                reading.memory_after = reading.memory_after or meter.memory()
    return reading


def _play(system: System, pattern: TopicsPattern, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    gc.collect()
    gc.disable()  # the pause of a collection would be taken for that of a server
    try:
        PLAYS[pattern](system, meter, method, reading)
    except OSError as error:
        raise BenchError(f"the servers failed under load: {error.strerror or error}") from None
    finally:
        gc.enable()


def _options(pattern: TopicsPattern, method: TopicsMethod, folder: Path) -> tuple[str, ...]:
    """Options of the peers beyond their addresses."""
    if pattern is TopicsPattern.TAKEOVER:
        file = folder / "peer.toml"
        file.write_text(PATIENT, encoding="ascii")
        return "--config", str(file)
    return ("--data", str(folder / "data")) if method.data else ()
