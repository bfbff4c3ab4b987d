"""`ringmq bench …`: RingMQ's front against other MQTT servers, each alone on one core, taking turns in one run.

Ends with exit status 0 whether goals are reached or not, since that depends on the machine: what is missed is said.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Final

import click

from experiments.benchmarks import crowd, goals
from experiments.benchmarks.clients import BenchError
from experiments.benchmarks.comparison import Method, compare
from experiments.benchmarks.load import Load
from experiments.benchmarks.patterns import PATTERNS
from experiments.benchmarks.report import Report
from experiments.benchmarks.servers import COMMANDS, cores, pinned, running, why_not

DEFAULT: Final = Method()
REFERENCE: Final = "mosquitto"
"""Latency is compared at half of its limit."""


@click.group()
def bench() -> None:
    """Compare RingMQ with other MQTT servers on this machine."""


def _names(ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
    names = value.split(",")
    unknown = [name for name in names if name not in COMMANDS]
    if unknown:
        raise click.BadParameter(f"no server {unknown[0]!r}: there are {', '.join(COMMANDS)}")
    return names


@bench.command()
@click.option("--pattern", type=click.Choice([*PATTERNS, "all"]), help="[default: all, unless --idle or --filters]")
@click.option(
    "--seconds", default=DEFAULT.span_s, show_default=True, type=click.FloatRange(0.05, 600), help="Of one measurement."
)
@click.option(
    "--repeats",
    default=DEFAULT.repeats,
    show_default=True,
    type=click.IntRange(1, 100),
    help="Searches for each limit.",
)
@click.option("--servers", default=",".join(COMMANDS), show_default=True, callback=_names, help="In this order.")
@click.option("--quick", is_flag=True, help="Halve the last doubling instead of dividing it into 20.")
@click.option("--idle", type=click.IntRange(1), help="Memory and connect time with so many idle clients.")
@click.option("--filters", type=click.IntRange(1), help="Publish cost with so many other filters.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON, the tables on standard error.")
@click.option("--verbose", is_flag=True, help="Tell every measurement.")
def front(
    pattern: str | None,
    seconds: float,
    repeats: int,
    servers: list[str],
    quick: bool,
    idle: int | None,
    filters: int | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """The front alone: throughput at the limit, loss, latency at half of the limit, what a crowd costs."""
    report = Report(as_json, verbose)
    method = Method(span_s=seconds, warm_s=min(DEFAULT.warm_s, seconds), repeats=repeats, quick=quick)
    if pattern is None:
        pattern = "" if idle or filters else "all"
    chosen = [name for name in PATTERNS if pattern in (name, "all")]
    try:
        available = _available(servers, report)
        server_core, load_core = cores()
        with pinned(load_core):
            if chosen:
                _patterns(report, chosen, available, method, server_core)
            if idle:
                _idle(report, available, idle, server_core)
            if filters:
                _filters(report, filters, server_core)
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    report.end()


def _available(names: list[str], report: Report) -> list[str]:
    missing = {name: why for name in names if (why := why_not(name))}
    for name, why in missing.items():
        report.say(f"without {name}: {why}")
    if len(missing) == len(names):
        raise BenchError("no server is left")
    return [name for name in names if name not in missing]


def _patterns(report: Report, names: list[str], servers: list[str], method: Method, core: int) -> None:
    """One pattern after the other, all servers in turns, with new processes for each pattern."""
    for name in names:
        report.say(f"{name}: {', '.join(servers)}")
        pattern = PATTERNS[name]
        with ExitStack() as stack:
            started = [stack.enter_context(running(server, core)) for server in servers]
            loads = {one.name: stack.enter_context(Load(one.address, one.pid, pattern)) for one in started}
            reference = REFERENCE if REFERENCE in loads else servers[0]
            results = compare(pattern, loads, method, reference, report.measured)
        report.add_pattern(name, results)
        report.judge(goals.of_pattern(name, results))


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
