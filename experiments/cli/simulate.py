"""`ringmq simulate …`: the scenarios on the command line, with their figures as a table or as JSON.

A command ends with exit status 0 only if every condition of its scenario held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from ringmq.experiments.cli.simulate_pubsub import pubsub_command
from ringmq.experiments.cli.simulate_report import (
    Number,
    ScenarioReport,
    common_options,
    in_pool,
    progress_bar,
    timing_option,
)
from ringmq.experiments.scenarios.building import Progress
from ringmq.experiments.scenarios.churn import ChurnFigures, churn
from ringmq.experiments.scenarios.costs import costs
from ringmq.experiments.scenarios.costs import table as costs_table
from ringmq.experiments.scenarios.fail import detours, fail_at_once
from ringmq.experiments.scenarios.hops import HopFigures, hops_as_in_pastry, hops_filled, hops_joined
from ringmq.experiments.scenarios.join import StormFigures, join_at_once, join_storm
from ringmq.experiments.scenarios.replication import FAULTS, replication
from ringmq.experiments.scenarios.silent import BOUNDS_S, Silenced, silent_peer
from ringmq.experiments.scenarios.split import split_and_heal
from ringmq.experiments.scenarios.spread import Setting, spread
from ringmq.experiments.scenarios.spread_figures import table
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.replication_checks import MissedError
from ringmq.overlay.core.leaf_set import HALF
from ringmq.peer.engines.scribe.config import SCRIBE


@click.group()
def simulate() -> None:
    """Run thousands of peers on one virtual clock and check their behaviour."""


simulate.add_command(pubsub_command)


@simulate.command()
@common_options(100_000)
@click.option(
    "--lookups",
    type=click.IntRange(1, 10_000_000),
    help="Lookups per table.  [default: 200000, 100000 above 10^5 nodes]",
)
@click.option(
    "--leaf-set", type=click.IntRange(4, 64), default=2 * HALF, show_default=True, help="Members of a leaf set."
)
@click.option("--joined", is_flag=True, help="Also measure tables that the join protocol has built.")
def hops(nodes: int, seed: int, as_json: bool, lookups: int | None, leaf_set: int, joined: bool) -> None:
    """Hops of a lookup: Pastry's own experiment (Figure 5), then RingMQ's tables and random keys."""
    report = ScenarioReport(as_json)
    lookups = lookups or (200_000 if nodes <= 100_000 else 100_000)
    if nodes <= 100_000:
        with progress_bar("as in Pastry", as_json) as progress:
            _add_hops(report, hops_as_in_pastry(nodes, seed, lookups, progress))
    with progress_bar(f"leaf set {leaf_set}", as_json) as progress:
        filled = hops_filled(nodes, seed, leaf_set // 2, lookups, progress)
    _add_hops(report, filled)
    if joined:
        with progress_bar("joined", as_json) as progress:
            grown = hops_joined(nodes, seed, leaf_set // 2, lookups, progress)
        _add_hops(report, grown)
        report.add("joined against filled", {"mean_ratio": round(grown.mean / filled.mean, 4)})
    report.end()


def _add_hops(report: ScenarioReport, figures: HopFigures) -> None:
    report.add(f"tables {figures.tables}, leaf set {figures.leaf_set}", asdict(figures))
    report.must(not figures.wrong, f"{figures.wrong} lookups ended at a wrong peer")


@simulate.command()
@common_options(1000)
@click.option(
    "--storms",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Number of seeds, each with 50 joins, crashes and pauses.",
)
def join(nodes: int, seed: int, as_json: bool, storms: int) -> None:
    """All peers join through one peer at the same moment; then storms of joins and crashes, one for each seed."""
    report = ScenarioReport(as_json)
    with progress_bar(f"{nodes} at once", as_json) as progress:
        figures = join_at_once(nodes, seed, progress=progress)
    report.add(f"{nodes} at once", asdict(figures))
    report.must(figures.one_ring_after_s is not None and not figures.faults, "the peers did not form a single ring")
    if storms:
        with progress_bar(f"{storms} storms", as_json) as progress:
            results = list(_storms(seed, storms, progress))
        held = [storm for storm in results if isinstance(storm, StormFigures)]
        whole = sum(storm.one_ring and not storm.faults for storm in held)
        summed = ("joins", "crashes", "restarts", "pauses", "events")
        sums = {name: sum(getattr(storm, name) for storm in held) for name in summed}
        report.add(f"{storms} storms", {"seeds": len(results), "one_ring": whole, **sums})
        for storm in results:
            if isinstance(storm, str):
                report.must(False, storm)
            else:
                whole_ring = storm.one_ring and not storm.faults
                report.must(whole_ring, f"the peers did not form a single ring with seed {storm.seed}")
    report.end()


def _storms(first: int, count: int, progress: Progress) -> Iterator[StormFigures | str]:
    for done, storm in enumerate(in_pool(_storm, range(first, first + count)), start=1):
        progress(done / count)
        yield storm


def _storm(seed: int) -> StormFigures | str:
    """Run one storm, in a process of the pool.

    Returns the text of a broken invariant instead of raising it: an exception would end the iteration over all storms.
    """
    try:
        return join_storm(seed)
    except InvariantBrokenError as broken:
        return "\n".join((str(broken), *broken.__notes__))


@simulate.command()
@common_options(10_000)
@timing_option
@click.option("--fraction", type=Number(0, 0.9), default=0.3, show_default=True, help="Share of the peers that die.")
@click.option(
    "--unrepaired", type=Number(0, 0.9), default=0.1, show_default=True, help="Share that is dead in the detours."
)
@click.option(
    "--lookups", type=click.IntRange(1, 10_000_000), default=50_000, show_default=True, help="Lookups in the detours."
)
def fail(nodes: int, seed: int, as_json: bool, timing: str, fraction: float, unrepaired: float, lookups: int) -> None:
    """A share of the peers dies silently at one moment."""
    report = ScenarioReport(as_json)
    with progress_bar(f"{fraction:.0%} die", as_json) as progress:
        figures = fail_at_once(nodes, seed, fraction, timing, progress)
    report.add(f"{fraction:.0%} of {nodes} die at once", asdict(figures))
    report.must(figures.one_ring_after_s is not None, "the peers did not become one ring again")
    report.must(not figures.inexact_leaf_sets, f"{figures.inexact_leaf_sets} leaf sets are not exact at the end")
    report.must(not figures.lookups.lost, f"{figures.lookups.lost} lookups were lost")
    with progress_bar(f"{unrepaired:.0%} unrepaired", as_json) as progress:
        around = detours(nodes, seed, unrepaired, lookups, progress)
    report.add(f"{unrepaired:.0%} dead and unrepaired", asdict(around))
    report.must(not around.wrong, f"{around.wrong} lookups ended at a wrong peer")
    report.end()


@simulate.command()
@common_options(1000)
@timing_option
@click.option(
    "--apart",
    "apart_s",
    type=click.FloatRange(1),
    default=300.0,
    show_default=True,
    help="Seconds that the halves are apart.",
)
def split(nodes: int, seed: int, as_json: bool, timing: str, apart_s: float) -> None:
    """The network is split into two random halves, and heals."""
    report = ScenarioReport(as_json)
    with progress_bar("apart", as_json) as progress:
        figures = split_and_heal(nodes, seed, timing, apart_s, progress)
    report.add(f"{nodes} peers, apart for {apart_s:g} s", asdict(figures))
    report.must(figures.one_ring_after_s is not None, "the halves did not become one ring")
    report.must(figures.exact_after_s is not None, "leaf sets are not exact at the end")
    after = figures.lookups_after
    report.must(not (after.lost or after.wrong), f"{after.lost} lookups were lost, {after.wrong} wrong")
    report.end()


@simulate.command("churn")
@common_options(1000)
@click.option("--hours", type=Number(0, 10_000), default=4.0, show_default=True, help="Virtual time.")
@click.option(
    "--lan-hours",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    help="Virtual time of the run with the lan preset.",
)
@click.option(
    "--median",
    "median_s",
    type=click.FloatRange(60),
    default=3600.0,
    show_default=True,
    help="Median session in seconds.",
)
@click.option(
    "--loss",
    type=Number(0, 0.5),
    default=0.05,
    show_default=True,
    help="Share of time in which a direction loses everything.",
)
def churn_command(
    nodes: int, seed: int, as_json: bool, hours: float, lan_hours: float, median_s: float, loss: float
) -> None:
    """Peers come and go for hours: first with the wan preset, without loss and with loss in bursts, then with lan."""
    report = ScenarioReport(as_json)
    runs = (("wan", hours, 0.0), ("wan", hours, loss), ("lan", lan_hours, 0.0))
    for timing, span_hours, burst_loss in runs:
        if not span_hours:
            continue
        name = f"{timing}, {span_hours:g} h, {burst_loss:.0%} lost in bursts"
        with progress_bar(name, as_json) as progress:
            figures = churn(nodes, seed, timing, span_hours, burst_loss, median_s, progress)
        report.add(name, asdict(figures))
        if not burst_loss:
            _must_be_perfect(report, figures)
    report.end()


def _must_be_perfect(report: ScenarioReport, figures: ChurnFigures) -> None:
    lookups = figures.lookups
    report.must(not lookups.wrong, f"{lookups.wrong} lookups were delivered to a wrong peer")
    report.must(not lookups.lost, f"{lookups.lost} lookups were lost")


@simulate.command("replication")
@common_options(5)
@click.option(
    "--seeds", default=1, type=click.IntRange(1), show_default=True, help="Number of runs; --seed is the first seed."
)
@click.option("--rounds", default=12, type=click.IntRange(1), show_default=True, help="Rounds of requests and faults.")
@click.option("--shadows", default=2, type=click.IntRange(0, 8), show_default=True, help="Copies beside the first.")
@click.option("--loss", default=0.0, type=Number(0, 0.5), show_default=True, help="Share of lost messages.")
@click.option("--fault", "faults", type=click.Choice(FAULTS), multiple=True, help="Kinds of faults.  [default: all]")
def replication_command(
    nodes: int, seed: int, as_json: bool, seeds: int, rounds: int, shadows: int, loss: float, faults: tuple[str, ...]
) -> None:
    """Coordinators of partitions with model homes and publishers, while peers join, crash and pause together."""
    report = ScenarioReport(as_json)
    total: dict[str, int] = {}
    with progress_bar("replication", as_json) as progress:
        for number in range(seed, seed + seeds):
            try:
                figures = asdict(replication(number, nodes, rounds, faults or FAULTS, loss, shadows))
            except MissedError as missed:
                report.must(False, f"seed {number}: {missed}")
                continue
            for text in figures.pop("unsettled"):
                report.must(False, f"seed {number}: {text}")
            total = {name: total.get(name, 0) + figures[name] for name in figures}
            progress((number + 1 - seed) / seeds)
    report.add(f"{seeds} runs of {nodes} peers", dict(total))
    report.end()


@simulate.command("silent")
@common_options(7)
@click.option(
    "--timing", type=click.Choice(list(BOUNDS_S)), default="lan", show_default=True, help="Preset of periods."
)
@click.option(
    "--seeds", default=1, type=click.IntRange(1), show_default=True, help="Number of runs; --seed is the first seed."
)
@click.option(
    "--whom",
    type=click.Choice([each.name.lower() for each in Silenced]),
    help="Who falls silent.  [default: chosen by the seed]",
)
def silent_command(nodes: int, seed: int, as_json: bool, timing: str, seeds: int, whom: str | None) -> None:
    """One coordinator or shadow falls silent while the others publish: the longest wait for a PUBACK."""
    report, bound_s = ScenarioReport(as_json), BOUNDS_S[timing]
    longest_s, total = 0.0, dict.fromkeys(("messages", "late", "silences", "reigns"), 0)
    with progress_bar("silent", as_json) as progress:
        for number in range(seed, seed + seeds):
            try:
                figures = silent_peer(nodes, number, timing, None if whom is None else Silenced[whom.upper()])
            except InvariantBrokenError as broken:
                report.must(False, f"seed {number}: {broken}")
                continue
            report.must(not figures.late, f"seed {number}: {figures.longest_s:.3f} s: {figures.slowest}")
            longest_s = max(longest_s, figures.longest_s)
            total = {name: count + getattr(figures, name) for name, count in total.items()}
            progress((number + 1 - seed) / seeds)
    report.add(f"{seeds} runs of {nodes} peers", {"longest_puback_s": longest_s, "bound_s": bound_s, **total})
    report.end()


@simulate.command("costs")
@common_options(7)
@click.option(
    "--topics",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    help="Topics that each peer published to.",
)
@click.option("--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Events of each kind.")
@click.option("--only", default="", help="Only the events whose name contains this text.")
def costs_command(nodes: int, seed: int, as_json: bool, topics: int, count: int, only: str) -> None:
    """Messages and bytes between peers for one event: a new topic, a subscription, a request, a retained message.

    Each is the difference to a run without the event. The messages of the ring itself do not count.
    """
    report = ScenarioReport(as_json)
    try:
        with progress_bar("costs", as_json) as progress:
            rows = costs(nodes, seed, topics, count, progress, only)
    except InvariantBrokenError as broken:
        report.must(False, str(broken))
    else:
        report.add_table(f"{nodes} peers", [asdict(row) for row in rows], list(costs_table(rows)))
    report.end()


@simulate.command("spread")
@common_options(10_000)
@click.option("--subscribers", type=click.IntRange(2), help="Peers that subscribe.  [default: all]")
@click.option(
    "--topics",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Topics; one message is measured for each.",
)
@click.option("--delay-ms", type=Number(1, 100), default=50.0, show_default=True, help="One-way delay of every link.")
@click.option(
    "--gap-us", type=Number(0, 10_000), default=30.0, show_default=True, help="Time that a send takes its sender."
)
@click.option("--uplink-mbps", type=Number(0.1), help="Bandwidth of a sender.  [default: no limit]")
@click.option(
    "--body", "body_bytes", type=click.IntRange(1, 1 << 20), default=100, show_default=True, help="Bytes of a message."
)
def spread_command(
    nodes: int,
    seed: int,
    as_json: bool,
    subscribers: int | None,
    topics: int,
    delay_ms: float,
    gap_us: float,
    uplink_mbps: float | None,
    body_bytes: int,
) -> None:
    """A message to thousands of peers by each way of dispatching: the sends of each peer, and the time to the last one.

    The least time comes from the postal model, in which every peer that has the message goes on sending it. The model
    does not count the bytes that a tree's messages carry beside their body.
    """
    if (subscribers or nodes) > nodes:
        raise click.BadParameter(
            f"must be at most {nodes}, the number of peers, got {subscribers}", param_hint="--subscribers"
        )
    report = ScenarioReport(as_json)
    setting = Setting(
        nodes=nodes,
        subscribers=subscribers or nodes,
        topics=topics,
        seed=seed,
        delay_s=delay_ms / 1e3,
        gap_s=gap_us / 1e6,
        uplink_bits_per_s=None if uplink_mbps is None else uplink_mbps * 1e6,
        body_bytes=body_bytes,
    )
    try:
        with progress_bar("spread", as_json) as progress:
            rows = spread(setting, progress=progress)
    except InvariantBrokenError as broken:
        report.must(False, str(broken))
    else:
        report.add("setting", asdict(setting))
        report.add_table("spread", [asdict(row) for row in rows], table(rows))
        for row in rows:
            report.must(row.dispatch == SCRIBE or row.depth == row.least_depth, f"{row.dispatch}: {row.depth} hops")
    report.end()
