"""`ringmq simulate pubsub`: peers under publish and subscribe, as cores alone, or whole with disks and MQTT clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final, NamedTuple

import click
from click.core import ParameterSource

from ringmq.dispatching.algorithms import ALGORITHMS, Choice
from ringmq.experiments.cli.simulate_report import (
    Argument,
    Number,
    Result,
    ScenarioReport,
    common_options,
    in_pool,
    progress_bar,
    timing_option,
)
from ringmq.experiments.scenarios.pubsub.figures import PubSubFigures, Total
from ringmq.experiments.scenarios.pubsub.scene import ALL_TROUBLES, pubsub
from ringmq.experiments.scenarios.sessions.scene import SessionFigures, sessions
from ringmq.experiments.scenarios.sessions.troubles import BY_NAME
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.peer.engines.scribe.config import SCRIBE

WHOLE_PEERS: Final = 6
"""Peers of a run with sessions, by default: each is a whole peer with six clients or more."""
OF_CORES: Final = tuple(kind.name for kind in ALL_TROUBLES)
"""Names of the troubles without sessions."""


class PubSubRun(NamedTuple):
    """One run of publish and subscribe."""

    nodes: int
    seed: int
    timing: str
    seconds: float
    trouble: str | None
    dispatch: Choice
    topics: int
    """0: with a dozen names."""

    def command(self) -> str:
        """What repeats it, with sessions."""
        trouble = "" if self.trouble is None else f" --trouble {self.trouble}"
        fanout = f" --fanout {self.dispatch.fanout}" if self.dispatch.name == "guided" else ""
        return (
            f"ringmq simulate pubsub --sessions --nodes {self.nodes} --seed {self.seed} --timing {self.timing} "
            f"--seconds {self.seconds:g} --dispatch {self.dispatch.name}{fanout}{trouble}"
        )


@dataclass(slots=True)
class SessionTotal:
    """Totals of several runs with sessions."""

    held: int = 0
    """Runs without a broken promise."""
    messages: int = 0
    acknowledged: int = 0
    deliveries: int = 0
    faults: int = 0
    longest_puback_s: float = 0.0
    longest_suback_s: float = 0.0
    events: int = 0
    cpu_s: float = 0.0
    troubles: dict[str, int] = field(default_factory=dict)

    def add(self, figures: SessionFigures) -> None:
        self.held += 1
        for name in ("messages", "acknowledged", "deliveries", "faults", "events", "cpu_s"):
            setattr(self, name, getattr(self, name) + getattr(figures, name))
        self.longest_puback_s = max(self.longest_puback_s, figures.longest_puback_s)
        self.longest_suback_s = max(self.longest_suback_s, figures.longest_suback_s)
        self.troubles[figures.trouble] = self.troubles.get(figures.trouble, 0) + 1


@click.command("pubsub")
@common_options(100)
@timing_option
@click.option(
    "--seeds", default=1, type=click.IntRange(1), show_default=True, help="Number of runs; --seed is the first seed."
)
@click.option("--seconds", type=Number(1, 3600), default=60.0, show_default=True, help="Virtual time of each run.")
@click.option(
    "--topics",
    type=click.IntRange(12, 100_000),
    help="Topics, with filters of all kinds for them, and 200 filters for each peer.  [default: a dozen names]",
)
@click.option(
    "--dispatch",
    "dispatchings",
    type=click.Choice([*ALGORITHMS, SCRIBE]),
    multiple=True,
    default=["direct"],
    show_default=True,
    help="Dispatching. Give it again for further runs with the same seeds.",
)
@click.option("--fanout", type=click.IntRange(1), default=3, show_default=True, help="Sends of one peer in a tree.")
@click.option(
    "--trouble",
    type=click.Choice(list(dict.fromkeys((*OF_CORES, *BY_NAME)))),
    help="Failures.  [default: chosen by the seed]",
)
@click.option(
    "--sessions",
    "with_sessions",
    is_flag=True,
    help=f"Whole peers with disks, and MQTT clients with sessions.  [default nodes: {WHOLE_PEERS}]",
)
@click.pass_context
def pubsub_command(
    ctx: click.Context,
    nodes: int,
    seed: int,
    as_json: bool,
    timing: str,
    seeds: int,
    seconds: float,
    topics: int | None,
    dispatchings: tuple[str, ...],
    fanout: int,
    trouble: str | None,
    with_sessions: bool,
) -> None:
    """Peers publish and subscribe while others join, crash and pause, messages are lost, and the network is split."""
    if with_sessions and ctx.get_parameter_source("nodes") is ParameterSource.DEFAULT:
        nodes = WHOLE_PEERS
    _check(with_sessions, trouble, dispatchings, topics)
    runs = [
        PubSubRun(nodes, number, timing, seconds, trouble, Choice(name, fanout), topics or 0)
        for number in range(seed, seed + seeds)
        for name in dispatchings
    ]
    report = ScenarioReport(as_json)
    if with_sessions:
        of_sessions = SessionTotal()
        _run_all(report, runs, _sessions, of_sessions.add)
        report.add(f"{len(runs)} runs of {nodes} whole peers", asdict(of_sessions))
    else:
        total = Total()
        _run_all(report, runs, _pubsub, total.add)
        report.add(f"{len(runs)} runs of {nodes} peers", asdict(total))
    report.end()


def _check(with_sessions: bool, trouble: str | None, dispatchings: Sequence[str], topics: int | None) -> None:
    """Raises BadParameter for options that do not fit each other."""
    known = list(BY_NAME) if with_sessions else OF_CORES
    which = "with" if with_sessions else "without"
    if trouble is not None and trouble not in known:
        raise click.BadParameter(
            f"{which} --sessions must be one of {', '.join(known)}, got {trouble}", param_hint="--trouble"
        )
    if with_sessions and SCRIBE in dispatchings:
        raise click.BadParameter(
            f"with --sessions must be {' or '.join(ALGORITHMS)}, got {SCRIBE}", param_hint="--dispatch"
        )
    if with_sessions and topics is not None:
        raise click.BadParameter("has no meaning with --sessions, whose topics are fixed", param_hint="--topics")


def _run_all(
    report: ScenarioReport,
    runs: Sequence[Argument],
    call: Callable[[Argument], Result | str],
    add: Callable[[Result], None],
) -> None:
    """Carry out runs; the text of a run says what was broken."""
    with progress_bar("publish and subscribe", report.as_json) as progress:
        for done, result in enumerate(in_pool(call, runs), start=1):
            if isinstance(result, str):
                report.must(False, result)
            else:
                add(result)
            progress(done / len(runs))


def _pubsub(run: PubSubRun) -> PubSubFigures | str:
    """Run it, perhaps in a process of a pool. Returns the text of a broken invariant: an exception would end the
    iteration over all runs."""
    try:
        return pubsub(
            run.nodes, run.seed, run.timing, run.seconds, run.trouble, dispatch=run.dispatch, topics=run.topics
        )
    except InvariantBrokenError as broken:
        return f"seed {run.seed}, {run.dispatch.name}: {broken}"


def _sessions(run: PubSubRun) -> SessionFigures | str:
    """The same with sessions. The text says which promises were broken, and how to see it again."""
    try:
        return sessions(run.nodes, run.seed, run.timing, run.seconds, run.trouble, run.dispatch)
    except InvariantBrokenError as broken:
        return "\n".join((str(broken), f"to see it again: {run.command()}", *broken.__notes__))
