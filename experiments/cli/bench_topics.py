"""`ringmq bench topics`: the cost of topics, filters and retained messages of which there are many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from ringmq.experiments.benchmarks.report import Report
from ringmq.experiments.benchmarks.topics import goals
from ringmq.experiments.benchmarks.topics.costs import Reading
from ringmq.experiments.benchmarks.topics.method import (
    LEAST_TAKEOVER_PEERS,
    PEERS,
    USUAL_PEERS,
    Fault,
    Third,
    TopicsMethod,
    TopicsPattern,
    method_of,
)
from ringmq.experiments.benchmarks.topics.runner import measure
from ringmq.experiments.benchmarks.topics.systems import MOSQUITTO, Source
from ringmq.experiments.benchmarks.topics.table import comparisons, table
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes import checkouts
from ringmq.experiments.processes.servers import cores, pinned, why_not

USUAL: Final = TopicsMethod()
THIS: Final = "this"
OTHER: Final = "other"


def _levels(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Parse comma-separated numbers of levels."""
    try:
        levels = tuple(int(number) for number in value.split(","))
    except ValueError:
        raise click.BadParameter(f"must be comma-separated numbers, such as 10,100, got {value!r}") from None
    if not all(2 <= number <= 128 for number in levels):
        raise click.BadParameter(f"each number of levels must be 2 to 128, got {value!r}")
    return levels


def _durations(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for durations."""
    for name, default, text in (
        ("timeout", USUAL.timeout_s, "Longest duration of a work; what was reached is shown."),
        ("settle", USUAL.settle_s, "Pause before a measurement at rest."),
        ("rest", USUAL.rest_s, "Length of a measurement at rest."),
        ("pause", USUAL.pause_s, "Pause before the messages of again."),
        ("load", USUAL.load_s, "Length of the load of takeover after its fault, and of each half of deep."),
    ):
        seconds = click.FloatRange(0, 3600)
        option = click.option(f"--{name}", f"{name}_s", default=default, show_default=True, type=seconds, help=text)
        command = option(command)
    return command


@click.command()
@click.argument("patterns", nargs=-1, type=click.Choice([str(pattern) for pattern in TopicsPattern]))
@click.option("--peers", type=click.IntRange(1, 100), help=f"Servers.  [default: {USUAL_PEERS}, wild 1, takeover 9]")
@click.option("--count", type=click.IntRange(1), help="Units of each pattern.  [default: by pattern, 1000 to 50,000]")
@click.option("--qos", type=click.IntRange(0, 2), help="QoS of the messages.  [default: 1, wild 0]")
@click.option("--clients", type=click.IntRange(1, 10_000), help="Clients.  [default: by pattern, churn 1 and then 100]")
@click.option("--each", type=click.IntRange(1), metavar="N", help="Filters of each client of filters, for --count.")
@click.option(
    "--levels", default="10,100", show_default=True, callback=_levels, help="Levels of the topics of deep, in turn."
)
@click.option(
    "--filters", default=USUAL.filters, show_default=True, type=click.IntRange(1), help="Filters of takeover."
)
@click.option(
    "--rate",
    "rate_hz",
    default=USUAL.rate_hz,
    show_default=True,
    type=click.FloatRange(1),
    help="Messages a second of takeover.",
)
@click.option(
    "--fault",
    default=str(USUAL.fault),
    show_default=True,
    type=click.Choice([str(fault) for fault in Fault]),
    help="What happens in takeover.",
)
@click.option(
    "--third",
    default=str(USUAL.third),
    show_default=True,
    type=click.Choice([str(third) for third in Third]),
    help="Which coordinator takeover kills after the first two.",
)
@click.option("--data", is_flag=True, help="With retained and --peers 1: a data folder, a kill, a new start.")
@_durations
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1, 100), help="Runs of each side.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Determines all random choices.")
@click.option("--beside", type=click.Choice((MOSQUITTO,)), help="Another server for the same work, bridged.")
@click.option(
    "--against",
    "folder",
    type=click.Path(path_type=Path),
    metavar="CHECKOUT",
    help="Another version for the same work: a folder in which make venv was run.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON, the tables on standard error.")
@click.pass_context
def topics(
    ctx: click.Context,
    /,
    patterns: tuple[str, ...],
    peers: int | None,
    count: int | None,
    qos: int | None,
    clients: int | None,
    each: int | None,
    levels: tuple[int, ...],
    fault: str,
    third: str,
    data: bool,
    repeats: int,
    beside: str | None,
    folder: Path | None,
    as_json: bool,
    **usual: Any,
) -> None:
    """Measure many topics: processor time of a unit over all peers, beside a message to a topic in use.

    All peers share one core, and the load generator has another. Without a pattern, all are measured.

    \b
    new       a message to each of many new topics
    again     likewise, and to the same topics again after a pause
    wild      1,000 subscribers with wildcards, topics drawn from 10,000,000
    deep      new topics of many levels; PUBACKs of others beside a client with the longest topics
    filters   many exact filters, then a message to each
    churn     SUBSCRIBE and UNSUBSCRIBE, one after the other
    request   request and response, with a new topic for each response
    connects  connect, subscribe to one's own topic, leave
    retained  many topics with a retained message, then a subscriber of all
    takeover  two neighbouring coordinators die, then another, while acknowledged messages flow

    The exit status is 1 if an acknowledged message was lost or a pattern could not be measured.
    """
    method = TopicsMethod(levels=levels, fault=Fault(fault), third=Third(third), data=data, **usual)
    chosen = [pattern for pattern in TopicsPattern if not patterns or pattern in patterns]
    if TopicsPattern.AGAIN in chosen and TopicsPattern.NEW in chosen:
        chosen.remove(TopicsPattern.NEW)  # the measurement of `again` begins with it
    _check(ctx, chosen, peers, data, each)
    sources = _sources(ctx, folder, beside)
    report = Report(as_json, verbose=False)
    with TemporaryDirectory(prefix="ringmq-bench-") as bytecode:
        outcomes = [
            _pattern(
                report,
                pattern,
                sources,
                peers or PEERS.get(pattern, USUAL_PEERS),
                method_of(pattern, count, clients, each, qos, method),
                repeats,
                Path(bytecode),
            )
            for pattern in chosen
        ]
    report.end()
    if not all(outcomes):
        raise click.exceptions.Exit(1)


def _check(ctx: click.Context, chosen: list[TopicsPattern], peers: int | None, data: bool, each: int | None) -> None:
    if data and (peers != 1 or chosen != [TopicsPattern.RETAINED]):
        raise click.UsageError("--data needs the pattern retained and --peers 1", ctx)
    if each is not None and chosen != [TopicsPattern.FILTERS]:
        raise click.UsageError("--each needs the pattern filters", ctx)
    if TopicsPattern.TAKEOVER in chosen and peers is not None and peers < LEAST_TAKEOVER_PEERS:
        raise click.UsageError(f"takeover needs at least {LEAST_TAKEOVER_PEERS} peers, got --peers {peers}", ctx)


def _sources(ctx: click.Context, folder: Path | None, beside: str | None) -> list[Source]:
    """The sides, in the order of their measurements."""
    try:
        found = [Source(THIS, checkouts.this())]
        if folder is not None:
            found.append(Source(OTHER, checkouts.other(folder)))
    except BenchError as error:
        raise click.UsageError(f"--against: {error}", ctx) from None
    if beside is not None:
        if (why := why_not(beside)) is not None:
            raise click.UsageError(f"--beside: {why}", ctx)
        found.append(Source(beside))
    return found


def _pattern(
    report: Report,
    pattern: TopicsPattern,
    sources: list[Source],
    peers: int,
    method: TopicsMethod,
    repeats: int,
    bytecode: Path,
) -> bool:
    """Measure a pattern, all sides in turns. Returns whether nothing was lost and nothing failed."""
    report.say(f"{pattern}: {', '.join(source.name for source in sources)}")
    readings: dict[str, list[Reading]] = {}
    sound = True
    try:
        server_core, load_core = cores()
    except BenchError as error:
        raise click.ClickException(str(error)) from None
    for number in range(repeats):
        # The next round begins with the last side: a steady drift of the machine costs each the same.
        for source in sources if number % 2 == 0 else reversed(sources):
            if source.checkout is None and pattern is TopicsPattern.TAKEOVER:
                continue
            try:
                with pinned(load_core):
                    reading = measure(source, pattern, peers, method, server_core, bytecode, number)
            except BenchError as error:
                report.say(f"{pattern}, {source.name}: {error}")
                sound = False
                continue
            readings.setdefault(source.name, []).append(reading)
            for fault in reading.faults:
                report.say(f"{pattern}, {source.name}: {fault}")
            sound &= not (reading.lost or reading.broken_off)
    if readings:
        _show(report, pattern, peers, method, readings)
    return sound


def _show(
    report: Report, pattern: TopicsPattern, peers: int, method: TopicsMethod, readings: dict[str, list[Reading]]
) -> None:
    plural = "peer" if peers == 1 else "peers"
    ordered: dict[str, list[Reading]] = {name: readings[name] for name in (THIS, OTHER, MOSQUITTO) if name in readings}
    lines = [table(f"{pattern}: {peers} {plural}, QoS {method.qos}", ordered)]
    figures: dict[str, object] = {
        "peers": peers,
        "count": method.count,
        "qos": method.qos,
        "sides": {name: [reading.figures() for reading in found] for name, found in ordered.items()},
    }
    if THIS in ordered and OTHER in ordered:
        compared = comparisons(ordered[THIS], ordered[OTHER])
        figures["cpu_ratios"] = {name: asdict(ratio) for name, ratio in compared.items()}
        shown = ", ".join(f"{name} {ratio}" for name, ratio in compared.items())
        lines.append(f"this / other: processor time: {shown}")
    report.add_table(str(pattern), figures, "\n".join(lines))
    if THIS in ordered and goals.has_goals(pattern, peers, method):
        report.judge(goals.verdicts(pattern, method, ordered[THIS]))
