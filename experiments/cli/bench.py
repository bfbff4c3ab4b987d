"""`ringmq bench …`: RingMQ against other MQTT servers, each on one core, taking turns in one run.

The exit status is 0 even if goals are missed, since that depends on the machine; missed goals are shown. The commands
that look for losses are in `experiments.cli.bench_ring`, and end with status 1 if they find any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from ringmq.experiments.benchmarks import against, collector, crowd, goals
from ringmq.experiments.benchmarks.comparison import Method, Result, compare
from ringmq.experiments.benchmarks.report import Report
from ringmq.experiments.cli import bench_against, bench_chaos, bench_ring, bench_topics
from ringmq.experiments.load import reachability
from ringmq.experiments.load.generator import Load
from ringmq.experiments.load.patterns import PATTERNS, RING_PATTERNS, Pattern, chosen
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes import checkouts, sides
from ringmq.experiments.processes.servers import COMMANDS, OTHERS, cores, pinned, running, why_not
from ringmq.experiments.processes.signals import sigterm_interrupts

DEFAULT: Final = Method()
REFERENCE: Final = "mosquitto"
RING_REFERENCE: Final = "bridged"
"""Latencies of all servers are compared at half of the limit of the reference."""
ACROSS: Final = ("two-1to10", "two-1to1")
"""The patterns of `ring --against`, unless a pattern is given."""


@click.group()
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Compare RingMQ with other MQTT servers on this machine, and look for losses of a ring."""
    ctx.with_resource(sigterm_interrupts())


for check in (*bench_ring.COMMANDS, bench_topics.topics, bench_chaos.chaos):
    bench.add_command(check)


def _among(known: Iterable[str], what: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A callback that parses a comma-separated list of known names."""

    def names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
        found = value.split(",")
        for name in found:
            if name not in known:
                raise click.BadParameter(f"no {what} {name!r}: there are {', '.join(known)}")
        return found

    return names


def _measuring(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for length, number and output of the measurements."""
    for option in (
        click.option("--verbose", is_flag=True, help="Show each measurement."),
        click.option(
            "--json", "as_json", is_flag=True, help="Print all figures as JSON, the tables on standard error."
        ),
        click.option(
            "--patience",
            default=DEFAULT.patience,
            show_default=True,
            type=click.IntRange(0, 100),
            help="Most repetitions of a measurement that other processes disturbed.",
        ),
        click.option("--quick", is_flag=True, help="Bisect the last doubling instead of dividing it into 20."),
        click.option(
            "--repeats",
            type=click.IntRange(1, 100),
            help=f"Searches for each limit; pairs with --against.  [default: {DEFAULT.repeats}, "
            f"with --against {bench_against.DEFAULT.pairs}]",
        ),
        click.option(
            "--seconds",
            default=DEFAULT.span_s,
            show_default=True,
            type=click.FloatRange(0.05, 600),
            help="Length of one measurement; with --against of each side in each pair.",
        ),
    ):
        command = option(command)
    return command


def _method(seconds: float, repeats: int | None, quick: bool, patience: int) -> Method:
    warm_s, repeats = min(DEFAULT.warm_s, seconds), repeats or DEFAULT.repeats
    return Method(span_s=seconds, warm_s=warm_s, repeats=repeats, quick=quick, patience=patience)


def _against(
    report: Report,
    patterns: list[Pattern],
    checkout: checkouts.Checkout,
    seconds: float,
    repeats: int | None,
    rate_hz: float | None,
) -> None:
    schedule = against.Schedule(span_s=seconds, pairs=repeats or bench_against.DEFAULT.pairs, rate_hz=rate_hz)
    try:
        bench_against.run(report, patterns, checkout, schedule)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    report.end()


@bench.command()
@click.option("--pattern", type=click.Choice([*PATTERNS, "all"]), help="[default: all, unless --idle or --filters]")
@_measuring
@bench_against.options
@click.option(
    "--servers",
    default=",".join(OTHERS),
    show_default=True,
    callback=_among(COMMANDS, "server"),
    help="Servers in order; peer and unrecorded are whole peers, with and without records.",
)
@click.option(
    "--idle", type=click.IntRange(1), help="Measure memory and connect time with this number of idle clients."
)
@click.option("--filters", type=click.IntRange(1), help="Measure publish cost with this number of other filters.")
@click.pass_context
def front(
    ctx: click.Context,
    pattern: str | None,
    seconds: float,
    repeats: int | None,
    servers: list[str],
    quick: bool,
    patience: int,
    idle: int | None,
    filters: int | None,
    folder: Path | None,
    rate_hz: float | None,
    qos: int | None,
    payload_bytes: int | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Measure the front alone: throughput at the limit, loss, latency at half of the limit, cost of a crowd.

    With --against a peer of this version takes turns with a peer of another, on the same core and at one rate.
    Processor time of a delivery and memory of an idle peer are compared.
    """
    checkout = bench_against.other_checkout(ctx, folder, rate_hz, "servers", "idle", "filters", "quick", "patience")
    report = Report(as_json, verbose)
    method = _method(seconds, repeats, quick, patience)
    if pattern is None:
        pattern = "" if idle or filters else "all"
    patterns = chosen(PATTERNS, [name for name in PATTERNS if pattern in (name, "all")], qos, payload_bytes)
    if checkout is not None:
        _against(report, patterns, checkout, seconds, repeats, rate_hz)
        return
    try:
        available = _available(servers, report, why_not)
        server_core, load_core = cores()
        with pinned(load_core):
            if patterns:
                _patterns(report, patterns, available, method, server_core)
            if idle:
                _idle(report, available, idle, server_core)
            if filters:
                _filters(report, filters, server_core)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    report.end()


@bench.command()
@click.option(
    "--pattern",
    type=click.Choice([*RING_PATTERNS, "all"]),
    help=f"[default: all, with --against {' and '.join(ACROSS)}]",
)
@_measuring
@bench_against.options
@click.option(
    "--sides",
    "names",
    default=",".join(sides.SIDES),
    show_default=True,
    callback=_among(sides.SIDES, "side"),
    help="Sides in order.",
)
@click.pass_context
def ring(
    ctx: click.Context,
    pattern: str | None,
    names: list[str],
    seconds: float,
    repeats: int | None,
    quick: bool,
    patience: int,
    folder: Path | None,
    rate_hz: float | None,
    qos: int | None,
    payload_bytes: int | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Compare a ring of peers with Mosquittos joined by bridges, and with one Mosquitto alone.

    All servers of a side share one core, and the load generator has another: five servers have no more processor time
    than one. A measurement starts only after messages have passed from each server to each, exactly once.

    \b
    ringmq     peers of one ring
    bridged    Mosquittos in a star: each but the first has a bridge to it
    nodelay    the same, with TCP_NODELAY: faster to deliver, slower at the limit
    mosquitto  one Mosquitto with all clients

    \b
    two-1to10  publishers at one server, subscribers at the other: 5 topics of 10 and 10
    two-1to1   likewise, 50 topics of 1 and 1
    one-A      one server with all clients, 5 topics of 10 and 10
    five-B     of each of 5 topics two publishers and two subscribers at each server
    five-C     each server has a topic of its own, 10 publishers and 10 subscribers
    five-D     8 and 8 of a topic at one server, 1 and 1 at each of two others

    Patterns A to D come from Banno, Sun, Takeuchi and Shudo (2019), whose brokers had a machine each.

    With --against a ring of this version takes turns with a ring of another, as in `front`.
    """
    checkout = bench_against.other_checkout(ctx, folder, rate_hz, "names", "quick", "patience")
    report = Report(as_json, verbose)
    if pattern is None:
        wanted = list(RING_PATTERNS) if checkout is None else list(ACROSS)
    else:
        wanted = [name for name in RING_PATTERNS if pattern in (name, "all")]
    patterns = chosen(RING_PATTERNS, wanted, qos, payload_bytes)
    if checkout is not None:
        _against(report, patterns, checkout, seconds, repeats, rate_hz)
        return
    method = _method(seconds, repeats, quick, patience)
    results = {}
    try:
        available = _available(names, report, sides.why_not)
        server_core, load_core = cores()
        with pinned(load_core):
            for measured in patterns:
                results[measured.name] = _ring_pattern(report, measured, available, method, server_core)
                report.judge(goals.of_ring(measured.name, results[measured.name]))
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    finally:
        if results:
            report.add_patterns(results)
    report.end()


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> list[int]:
    """Parse comma-separated numbers, also in the form 1e6."""
    try:
        sizes = sorted({int(float(number)) for number in value.split(",")})
    except (ValueError, OverflowError):
        raise click.BadParameter(f"must be comma-separated numbers, such as 1e5,1e6, got {value!r}") from None
    if sizes[0] < 1000 or sizes[-1] > 1_000_000_000:
        raise click.BadParameter(f"each number of records must be 1000 to 1e9, got {value!r}")
    return sizes


@bench.command(name="collector")
@click.option(
    "--records", "sizes", default="1e5,1e6", show_default=True, callback=_sizes, help="Records, in turn; 1e7 need 6 GB."
)
@click.option("--master", default="local[2]", show_default=True, help="Master of Spark.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Determines the records.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON, the lines on standard error.")
def measure_collector(sizes: list[int], master: str, seed: int, as_json: bool) -> None:
    """Measure the throughput of `collect ingest`, `stream` and `reduce`.

    Records are published at a real peer and landed, with the collector on a core of its own. The landed records are
    streamed, and the streamed records are reduced. The slope is the exponent of the time over the records, also without
    the time that Spark takes to start.
    """
    report = Report(as_json, verbose=False)
    found: dict[str, list[collector.StageFigures]] = {"ingest": [], "stream": [], "reduce": []}
    try:
        with TemporaryDirectory(prefix="ringmq-bench-") as empty:
            start_s = collector.start_s(Path(empty), master)
        report.add("spark", {"start s": start_s})
        for records in sizes:
            with TemporaryDirectory(prefix="ringmq-bench-") as folder:
                data = Path(folder)
                steps = {
                    "ingest": partial(collector.ingest, data, records, seed),
                    "stream": partial(collector.stream, data, records, master),
                    "reduce": partial(collector.reduce, data, records, master),
                }
                for name, step in steps.items():
                    found[name].append(step())
                    shown = found[name][-1].shown()
                    if len(found[name]) > 1:
                        shown["slope"] = collector.slope(found[name][-2:])
                        if name != "ingest":
                            shown["slope without start"] = collector.slope(found[name][-2:], start_s)
                    report.add(f"{name}, {records:,} records", shown)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    report.judge(collector.verdicts(found))
    report.end()


def _available(names: list[str], report: Report, why_not: Callable[[str], str | None]) -> list[str]:
    missing = {name: why for name in names if (why := why_not(name))}
    for name, why in missing.items():
        report.say(f"without {name}: {why}")
    if len(missing) == len(names):
        raise BenchError("no server is left")
    return [name for name in names if name not in missing]


def _patterns(report: Report, patterns: list[Pattern], servers: list[str], method: Method, core: int) -> None:
    """Measure one pattern after the other, all servers in turns, with new processes for each pattern."""
    for pattern in patterns:
        report.say(f"{pattern.name}: {', '.join(servers)}")
        with ExitStack() as stack:
            started = [stack.enter_context(running(server, core)) for server in servers]
            loads = {server.name: stack.enter_context(Load([server], pattern)) for server in started}
            reference = REFERENCE if REFERENCE in loads else servers[0]
            results = compare(pattern, loads, method, reference, report.measured)
        report.add_pattern(pattern.name, results)
        report.judge(goals.of_pattern(pattern.name, results))


def _ring_pattern(report: Report, pattern: Pattern, names: list[str], method: Method, core: int) -> dict[str, Result]:
    """Measure one pattern, all sides in turns, with new processes."""
    report.say(f"{pattern.name}: {', '.join(names)}")
    with ExitStack() as stack:
        loads = {}
        for side in names:
            try:
                servers = stack.enter_context(sides.joined(side, pattern.servers, core))
                reachability.check([server.address for server in servers])
            except BenchError as error:
                raise BenchError(f"{side}: {error}") from None
            loads[side] = stack.enter_context(Load(servers, pattern))
        reference = RING_REFERENCE if RING_REFERENCE in loads else names[0]
        return compare(pattern, loads, method, reference, report.measured)


def _idle(report: Report, servers: list[str], count: int, core: int) -> None:
    for name in servers:
        with crowd.many_files(count), running(name, core) as server:
            figures = crowd.idle(server, count)
        report.add(f"idle, {name}", asdict(figures))
        if name == "ringmq":
            report.judge(goals.of_idle(figures))


def _filters(report: Report, count: int, core: int) -> None:
    with running("ringmq", core) as without, running("ringmq", core) as having:
        figures = crowd.filters(without, having, count)
    report.add("filters, ringmq", asdict(figures))
    report.judge(goals.of_filters(figures))
