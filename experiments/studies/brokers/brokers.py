"""The experiment `brokers`: a ring against Mosquitto, in the patterns of Banno, Sun, Takeuchi and Shudo (2019, §6.4).

Owns the patterns, the sides and the duration of the measurements. It measures like `ringmq bench ring`: by the method
of the paper, with all servers of a side on one core, and the load generator on another.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Final

from ringmq.experiments.benchmarks.comparison import Method, Result, compare
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.benchmarks.report import MUCH_WAITING
from ringmq.experiments.load import reachability
from ringmq.experiments.load.generator import Load
from ringmq.experiments.load.patterns import PAYLOAD_BYTES, RING_PATTERNS
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes import sides
from ringmq.experiments.processes.servers import cores, pinned
from ringmq.experiments.studies.brokers import plots
from ringmq.experiments.studies.brokers.figures import BRIDGED, disturbed, quantities, rows
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Request

PATTERNS: Final = {
    "A": RING_PATTERNS["one-A"],
    "B": RING_PATTERNS["five-B"],
    "C": RING_PATTERNS["five-C"],
    "D": RING_PATTERNS["five-D"],
}
FULL: Final = Method(span_s=1.5, repeats=2, quick=True)
QUICK: Final = Method(span_s=0.4, warm_s=0.2, repeats=1, quick=True, patience=1)
"""One search for each limit, so its variation is unknown."""
SIDES: Final = ("ringmq", "bridged", "nodelay", "mosquitto")
QUICK_SIDES: Final = ("ringmq", "bridged", "mosquitto")
REFERENCES: Final = ("bridged", "mosquitto", "ringmq")
"""Sides in order of preference: all latencies are measured at half of the limit of the first available side."""


def run(request: Request) -> Outcome:
    """Run the experiment. Raises ExperimentError if no pattern can be measured."""
    method = _method(request)
    wanted = QUICK_SIDES if request.quick else SIDES
    outcome = Outcome(settings={"method": asdict(method), "payload_bytes": PAYLOAD_BYTES, "sides": list(wanted)})
    if request.quick:
        outcome.left_out.append("nodelay: not measured with --quick")
    chosen = _available(wanted, outcome)
    found: dict[str, dict[str, Result]] = {}
    request.progress.begin(len(PATTERNS))
    try:
        server_core, load_core = cores()
        with pinned(load_core):
            for name in PATTERNS:
                if results := _measure(request, name, chosen, server_core, outcome):
                    found[name] = results
                request.progress.step(f"pattern {name}")
    except KeyboardInterrupt:
        outcome.interrupted = True
    except BenchError as error:
        outcome.left_out.append(str(error))
    if found:
        outcome.tables["brokers"] = rows(found)
        outcome.quantities = quantities(found)
        outcome.plots = [plots.write(found, request.folder)]
    elif not outcome.interrupted:
        raise ExperimentError(f"brokers: nothing could be measured: {'; '.join(outcome.left_out)}")
    return outcome


def _method(request: Request) -> Method:
    return QUICK if request.quick else FULL


def _available(wanted: tuple[str, ...], outcome: Outcome) -> list[str]:
    missing = {side: why for side in wanted if (why := sides.why_not(side))}
    outcome.left_out += [f"{side}: {why}" for side, why in missing.items()]
    return [side for side in wanted if side not in missing]


def _measure(request: Request, name: str, chosen: list[str], core: int, outcome: Outcome) -> dict[str, Result]:
    """Measure one pattern, with all sides in turns. Sides that cannot be measured are left out.

    A pattern with a single server has no bridges.
    """
    pattern, progress = PATTERNS[name], request.progress
    chosen = [side for side in chosen if pattern.servers > 1 or side not in BRIDGED]

    def leave_out(side: str, reason: object) -> None:
        outcome.left_out.append(f"pattern {name}{side}: {reason}")
        progress.say(outcome.left_out[-1])

    def report(side: str, figures: Figures) -> None:
        if figures.loss and figures.keeps_up:
            progress.say(f"pattern {name}, {side}: {figures.loss:.2%} of the messages were lost although it kept up")

    with ExitStack() as stack:
        loads = {}
        for side in chosen:
            try:
                servers = stack.enter_context(sides.joined(side, pattern.servers, core))
                reachability.check([server.address for server in servers])
                loads[side] = stack.enter_context(Load(servers, pattern))
            except BenchError as error:
                leave_out(f", {side}", error)
        reference = next((side for side in REFERENCES if side in loads), None)
        if reference is not None:
            try:
                results = compare(pattern, loads, _method(request), reference, report)
            except BenchError as error:
                leave_out("", error)
            else:
                others = disturbed(results)
                if others > MUCH_WAITING:
                    leave_out("", f"in the tables, but other processes had {others:.0%} of the cores")
                return results
    return {}
