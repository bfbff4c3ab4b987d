"""`ringmq experiment`: runs experiments by name, prints their results and stores them.

Owns the command line and the names. An experiment's module is imported only when it runs, so each experiment works
without packages that only others need.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ringmq.experiments.processes.signals import sigterm_interrupts
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Experiment, Outcome, Request
from ringmq.experiments.studies.harness.output import lines
from ringmq.experiments.studies.harness.progress import ProgressLine
from ringmq.experiments.studies.harness.results import fresh_folder, keep, locked

EXPERIMENTS: Final = {
    "subscribers": "ringmq.experiments.studies.sweeps.subscribers:run",
    "publishers": "ringmq.experiments.studies.sweeps.publishers:run",
    "topics": "ringmq.experiments.studies.sweeps.topics:run",
    "nodes": "ringmq.experiments.studies.sweeps.nodes:run",
    "failure": "ringmq.experiments.studies.failure.failure:run",
    "brokers": "ringmq.experiments.studies.brokers.brokers:run",
    "scale": "ringmq.experiments.studies.scale.scale:run",
}
ALL: Final = "all"
REMEDY: Final = "install it with the extra: pip install 'ringmq[collector]'"
INTERRUPTED: Final = 130


def _named(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> list[str]:
    """The names without repetitions; `all` stands for every experiment, in the order of EXPERIMENTS."""
    for name in value:
        if name not in (*EXPERIMENTS, ALL):
            raise click.BadParameter(f"no experiment {name!r}: there are {', '.join(EXPERIMENTS)}, or {ALL}")
    return list(EXPERIMENTS) if ALL in value else list(dict.fromkeys(value))


@click.command()
@click.argument("names", nargs=-1, required=True, callback=_named, metavar="NAME...|all")
@click.option("--quick", is_flag=True, help="Smaller rings, fewer levels: at most 3 minutes each on two cores.")
@click.option(
    "--seed",
    default=1,
    show_default=True,
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="Determines ids, delays, positions of clients, and victims.",
)
@click.option(
    "--out",
    default="results",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the results; each experiment has its own folder in it.",
)
def experiment(names: list[str], quick: bool, seed: int, out: Path) -> int:
    """Repeat the experiments of the papers, and show the results beside the published figures.

    \b
    subscribers  subscribers at a quarter of the nodes, then at more, then at all
    publishers   publishers at one node, then at more than a quarter of them
    topics       one topic, then more, up to seven
    nodes        twenty nodes, then more, up to fifty, with the same clients
    failure      all coordinators are killed at once
    brokers      a ring against Mosquitto, alone and bridged
    scale        simulated rings of up to 100,000 nodes beside real rings

    Experiments run real peers on this machine, with emulated delays. Ctrl-C ends all processes and keeps the results so
    far.
    """
    failed = False
    with sigterm_interrupts(), locked(out):
        for name in names:
            try:
                outcome = _run(name, quick, seed, out)
            except click.ClickException as error:
                if names[1:] == []:
                    raise
                click.echo(f"ringmq: {name}: {error.format_message()}", err=True)
                failed = True
            else:
                if outcome.interrupted:
                    return INTERRUPTED
                failed |= outcome.broken
    return 1 if failed else 0


def _run(name: str, quick: bool, seed: int, out: Path) -> Outcome:
    """Import one experiment, run it, print its results and store them. Raises ClickException with one line."""
    play = _load(name)
    progress = ProgressLine(name, sys.stderr)
    with fresh_folder(out, name) as folder:
        try:
            outcome = play(Request(folder=folder, quick=quick, seed=seed, progress=progress))
        finally:
            progress.close()
        if not any(outcome.tables.values()):
            click.echo(f"{name}: nothing was measured, earlier results are kept", err=True)
            return outcome
        kept = keep(folder, out, name, quick, seed, outcome)
    click.echo("\n".join(_shown(name, quick, seed, outcome)))
    click.echo(f"written: {kept}/: summary.json, {len(outcome.tables)} tables, {len(outcome.plots)} plots", err=True)
    return outcome


def _load(name: str) -> Experiment:
    module, _, function = EXPERIMENTS[name].partition(":")
    try:
        play: Experiment = getattr(importlib.import_module(module), function)
    except ImportError as error:
        # The extra cannot provide a module of this project: such an error is ours, and the remedy would mislead.
        ours = (error.name or "").partition(".")[0] == "ringmq"
        raise ExperimentError(f"{error}" if ours else f"{error}; {REMEDY}") from error
    return play


def _shown(name: str, quick: bool, seed: int, outcome: Outcome) -> Sequence[str]:
    size = "quick: rings are smaller than in the papers, " if quick else ""
    return [*lines(f"{name} ({size}seed {seed})", outcome), ""]
