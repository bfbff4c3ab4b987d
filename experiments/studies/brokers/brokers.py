"""The experiment `brokers`: a ring against Mosquitto, by the patterns of Banno, Sun, Takeuchi and Shudo (2019, §6.4).

Owns which patterns and sides are measured, and for how long. The measuring is that of `ringmq bench ring`: its method
is the paper's, and all servers of a side share one core, which the load generator leaves to them.
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
"""One search for each limit: how much it varies is not known."""
SIDES: Final = ("ringmq", "bridged", "nodelay", "mosquitto")
QUICK_SIDES: Final = ("ringmq", "bridged", "mosquitto")
REFERENCES: Final = ("bridged", "mosquitto", "ringmq")
"""The first of these that is there: latencies of all are taken at half of its limit."""


def run(request: Request) -> Outcome:
    """Raises ExperimentError when not one pattern can be measured."""
    method = _method(request)
    wanted = QUICK_SIDES if request.quick else SIDES
    outcome = Outcome(settings={"method": asdict(method), "payload_bytes": PAYLOAD_BYTES, "sides": list(wanted)})
    if request.quick:
        outcome.left_out.append("nodelay: it is not measured with --quick")
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
    """One pattern, all sides in turns, but for bridges of one server. What cannot be measured is left out."""
    pattern, progress = PATTERNS[name], request.progress
    chosen = [side for side in chosen if pattern.servers > 1 or side not in BRIDGED]

    def leave_out(what: str, why: object) -> None:
        outcome.left_out.append(f"pattern {name}{what}: {why}")
        progress.say(outcome.left_out[-1])

    def told(side: str, figures: Figures) -> None:
        if figures.loss and figures.keeps_up:
            progress.say(f"pattern {name}, {side}: {figures.loss:.2%} of what it kept up with was lost")

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
                results = compare(pattern, loads, _method(request), reference, told)
            except BenchError as error:
                leave_out("", error)
            else:
                others = disturbed(results)
                if others > MUCH_WAITING:
                    leave_out("", f"in the tables, but other processes had {others:.0%} of the cores")
                return results
    return {}
