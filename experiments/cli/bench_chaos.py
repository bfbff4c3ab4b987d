"""`ringmq bench chaos`: a ring under traffic and faults, checked against the promises of the documents.

The exit status is 1 if a promise was broken or a run could not be carried out.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Final

import click

from ringmq.experiments.chaos.checker import Violation, counted
from ringmq.experiments.chaos.disks import DISK_BYTES, DISK_PEER
from ringmq.experiments.chaos.results import RunKey, RunResult, append_result, load_results
from ringmq.experiments.chaos.run import ChaosRun, save_run
from ringmq.experiments.chaos.scenarios import SCENARIOS, Scenario
from ringmq.experiments.chaos.site import Place, Site, SitePlan
from ringmq.experiments.hosts.disk import SmallDisk
from ringmq.experiments.hosts.host import Host
from ringmq.experiments.hosts.network import HostNetwork
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.cores import confined, loaded
from ringmq.experiments.processes.peers import HOST
from ringmq.peer.resources.limits import allow_files

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]

EVERY: Final = "all"
FILES: Final = 8192
"""Open files of this process, which has all clients."""
SHOWN: Final = 5
"""Violations of each promise that are printed; the file of a kept run has all."""
DISPATCHES: Final = ("direct", "guided")


def _list(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    """Print the scenarios and end."""
    if value:
        width = max(map(len, SCENARIOS))
        for scenario in SCENARIOS.values():
            why = scenario.lacking()
            click.echo(f"{scenario.name:{width}}  {scenario.text}{f' (not here: {why})' if why else ''}")
        ctx.exit()


@click.command()
@click.argument("scenario", default=EVERY, type=click.Choice([EVERY, *SCENARIOS]), metavar="[SCENARIO]")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the scenarios.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Determines all random choices.")
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="Runs with further seeds.")
@click.option("--minutes", default=1.5, show_default=True, type=click.FloatRange(0.02, 600), help="Time with faults.")
@click.option("--peers", default=7, show_default=True, type=click.IntRange(3, 30), help="Peers of the ring.")
@click.option(
    "--timing", default="lan", show_default=True, type=click.Choice(("local", "lan", "wan")), help="Of the peers."
)
@click.option(
    "--dispatch", default=DISPATCHES[0], show_default=True, type=click.Choice(DISPATCHES), help="Of the peers."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Add a JSON line for each run.")
@click.option("--resume", is_flag=True, help="Skip the runs that the file of --out has.")
@click.option("--keep", is_flag=True, help="Keep logs, data and history of all runs, not only of violated ones.")
@click.pass_context
def chaos(
    ctx: click.Context,
    scenario: str,
    seed: int,
    seeds: int,
    minutes: float,
    peers: int,
    timing: str,
    dispatch: str,
    out: Path | None,
    resume: bool,
    keep: bool,
) -> None:
    """Inject faults into a ring of real peers, and check what the documents promise.

    Clients with clean and kept sessions publish and subscribe with QoS 0 to 2, retain messages, leave wills, and share
    subscriptions, while the faults of the SCENARIO happen; without one, those of all. Then all is healed, and each
    promise is checked against the history of everything that was sent and received.
    """
    if resume and out is None:
        raise click.UsageError("--resume needs --out FILE, the file of the runs before", ctx)
    allow_files(FILES)
    try:
        known = load_results(out) if resume and out is not None else {}
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    clean = True
    chosen = list(SCENARIOS.values()) if scenario == EVERY else [SCENARIOS[scenario]]
    for number in range(seed, seed + seeds):
        for one_of_them in chosen:
            key = RunKey(one_of_them.name, number, peers, minutes, timing, dispatch)
            result = known.get(key)
            if result is None:
                result = _carry_out(one_of_them, key, keep)
                if out is not None:
                    append_result(out, result)
            click.echo(result.summary())
            clean &= result.is_clean
    if not clean:
        ctx.exit(1)


def _carry_out(scenario: Scenario, key: RunKey, keep: bool) -> RunResult:
    """One run, whose folder is deleted unless a promise was broken."""
    if why := scenario.lacking():
        return RunResult(key, {}, failure=why)
    folder = Path(mkdtemp(prefix=f"ringmq-chaos-{key.scenario}-{key.seed}-"))
    try:
        result = _run(scenario, key, folder, keep)
    except BenchError as error:
        result = RunResult(key, {}, failure=str(error), kept=str(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if not result.kept:
        shutil.rmtree(folder, ignore_errors=True)
    return result


def _run(scenario: Scenario, key: RunKey, folder: Path, keep: bool) -> RunResult:
    with ExitStack() as stack:
        core = stack.enter_context(_one_core()) if scenario.shares_core else None
        plan = SitePlan(key.peers, key.timing, key.dispatch, core)
        loop = stack.enter_context(closing(new_event_loop()))
        network = stack.enter_context(HostNetwork(key.peers, Host, seed=key.seed)) if scenario.needs_hosts else None
        places: dict[int, tuple[Place, str]] = {}
        if network is not None:
            places = {host.number: (host, host.address) for host in network.hosts}
        if scenario.needs_disk:
            data = folder / f"peer-{DISK_PEER}" / "data"
            places[DISK_PEER] = SmallDisk(data, DISK_BYTES, stack), HOST
        site = stack.enter_context(Site(plan, folder, places))
        chance = Random(f"{key.scenario} {key.seed}")
        run = ChaosRun(site, scenario.traffic, scenario.terms(key.timing), 60 * key.minutes, chance)
        run.network = network
        outcome = loop.run_until_complete(run.go_through(scenario.play))
    counts = counted(outcome.violations)
    lines = tuple(violation.line() for violation in outcome.violations)
    if counts or keep:
        save_run(outcome, folder)
        (folder / "violations").write_text("\n".join([key.command(), *lines, ""]), encoding="utf-8")
        _show(outcome.violations, key, folder)
    return RunResult(key, counts, _first(lines), outcome.figures, str(folder) if counts or keep else "")


@contextmanager
def _one_core() -> Iterator[int]:
    """A core for the peers alone. The clients share the others with processes that never rest."""
    core, *others = sorted(os.sched_getaffinity(0))
    with confined(others or [core]), loaded(others):
        yield core


def _first(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Enough for the file of results."""
    return lines[: 10 * SHOWN]


def _show(violations: list[Violation], key: RunKey, folder: Path) -> None:
    shown: dict[str, int] = {}
    for violation in violations:
        name = violation.promise.name
        shown[name] = shown.get(name, 0) + 1
        if shown[name] <= SHOWN:
            click.echo(f"  {violation.line()}")
        if shown[name] == 1:
            click.echo(f'    broken: "{violation.promise.sentence}" ({violation.promise.document})')
            click.echo(f"    to see it again: {key.command()}")
    click.echo(f"  logs, data and history: {folder}")
