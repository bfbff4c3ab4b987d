"""`ringmq bench pairs|retained|kill|flap|takeover`: checks for losses and leaks of a ring of real peers.

A command ends with exit status 1 if a message was missed, duplicated or late, or if memory or files were kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import click

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.benchmarks import flap as flapping
from ringmq.experiments.benchmarks import kill as killing
from ringmq.experiments.benchmarks import pairs as pairing
from ringmq.experiments.benchmarks import retained as retaining
from ringmq.experiments.benchmarks import takeover as taking_over
from ringmq.experiments.benchmarks.victims import LEAST_PEERS, Kind
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults
from ringmq.experiments.processes.peers import Ring, ring_of
from ringmq.peer.messaging.config import DIRECT
from ringmq.peer.resources.limits import allow_files

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]

FILES: Final = 8192
"""Open files of this process, which has all clients of a check."""
GUIDED: Final = "guided"
PATIENT: Final = """\
[limits]
max_queued = 100000
"""
"""Settings of the peers of `kill`. With the usual limit, a front may drop messages that come at once after a pause, and
they would count as losses of the ring."""
MIX: Final = (
    (DIRECT.name, Kind.COORDINATOR),
    (DIRECT.name, Kind.OWNERS),
    (GUIDED, Kind.COORDINATOR),
    (GUIDED, Kind.OWNERS),
    (GUIDED, Kind.INTERIOR),
)
"""Ways of dispatching and kinds of victims of the runs of `kill`, in rotation."""

Figures = TypeVar("Figures")

_peers = click.option("--peers", default=13, show_default=True, type=click.IntRange(2, 100), help="Peers of the ring.")
_seed = click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0), help="Determines all random choices."
)
_dispatch = click.option(
    "--dispatch",
    default=DIRECT.name,
    show_default=True,
    type=click.Choice((DIRECT.name, GUIDED)),
    help="Dispatching of the ring.",
)
_fanout = click.option("--fanout", default=2, show_default=True, type=click.IntRange(1), help="Fan-out of trees.")


@click.command()
@_peers
@click.option("--pairs", "count", default=10_000, show_default=True, type=click.IntRange(1), help="Number of pairs.")
@click.option("--at-once", default=24, show_default=True, type=click.IntRange(1, 1000), help="Concurrent pairs.")
@_dispatch
@_fanout
@_seed
def pairs(peers: int, count: int, at_once: int, dispatch: str, fanout: int, seed: int) -> None:
    """Look for messages missed after a SUBACK.

    After its SUBACK, a client of one peer must get each message that is published at any other peer, exactly once.
    Each pair of peers is drawn at random, with a new or a known topic, a filter with or without wildcards, and a QoS.
    Another connection publishes three messages right after the SUBACK, and sometimes two right before it.
    """
    with _ring(peers, Choice(dispatch, fanout)) as ring:
        method = pairing.PairsMethod(pairs=count, at_once=at_once, seed=seed)
        figures = _run(pairing.check([peer.mqtt for peer in ring.peers], method, _say))
        _end(ring, figures.lines(), figures.faults)


@click.command()
@_peers
@click.option(
    "--meetings",
    default=10_000,
    show_default=True,
    type=click.IntRange(1),
    help="Number of meetings of a message and a subscriber.",
)
@click.option("--at-once", default=5, show_default=True, type=click.IntRange(1, 1000), help="Concurrent messages.")
@_dispatch
@_fanout
@_seed
def retained(peers: int, meetings: int, at_once: int, dispatch: str, fanout: int, seed: int) -> None:
    """Look for retained messages that are missed or duplicated.

    A message is retained while clients of other peers subscribe: each must get it once, as retained or as live. Five
    clients subscribe within 20 ms before or after the publication of each message.
    """
    with _ring(peers, Choice(dispatch, fanout)) as ring:
        method = retaining.RetainedMethod(meetings=meetings, at_once=at_once, seed=seed)
        figures = _run(retaining.check([peer.mqtt for peer in ring.peers], method, _say))
        _end(ring, figures.lines(), figures.faults)


@click.command()
@click.option(
    "--peers", default=13, show_default=True, type=click.IntRange(LEAST_PEERS, 100), help="Peers of each ring."
)
@click.option(
    "--runs", default=50, show_default=True, type=click.IntRange(1), help="Number of runs, of all kinds in rotation."
)
@click.option("--rate", default=1000.0, show_default=True, type=click.FloatRange(1), help="Publications a second.")
@click.option(
    "--within",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Most seconds until new clients are served.",
)
@click.option("--shadows", default=2, show_default=True, type=click.IntRange(1, 8), help="Shadows of the rings.")
@_fanout
@_seed
def kill(peers: int, runs: int, rate: float, within: float, shadows: int, fanout: int, seed: int) -> None:
    """Kill peers and look for losses.

    Peers are killed with SIGKILL while messages flow between clients of other peers. The victims are, in rotation:

    \b
    coordinator  the coordinator of the topic
    owners       the coordinator and all of its shadows except one
    interior     a subscriber that relays messages, with Guided dispatching

    With Direct dispatching no message may be lost, and with QoS 1 no acknowledged message. No message may come twice.
    New subscribers and publishers of the topic start right after the kill.
    """
    lines: list[str] = []
    faults = Faults()
    numbered = [(run, *MIX[run % len(MIX)]) for run in range(runs)]
    for name in dict.fromkeys(name for _, name, _ in numbered):
        choice = Choice(name, fanout) if name == GUIDED else DIRECT
        method = killing.KillMethod(rate_hz=rate, served_s=within, seed=seed, choice=choice, shadows=shadows)
        with (
            TemporaryDirectory(prefix="ringmq-bench-") as folder,
            _ring(peers, choice, "--shadows", str(shadows), "--config", _file(folder, PATIENT)) as ring,
        ):
            all_figures = _kill(ring, [(run, kind) for run, dispatch, kind in numbered if dispatch == name], method)
        for kind, figures in all_figures.items():
            lines += figures.lines(f"{name}, {kind}")
            faults.absorb(figures.faults)
    _judge(lines, faults)


def _file(folder: str, text: str) -> str:
    file = Path(folder) / "peer.toml"
    file.write_text(text, encoding="ascii")
    return str(file)


def _kill(ring: Ring, runs: list[tuple[int, Kind]], method: killing.KillMethod) -> dict[Kind, killing.KillFigures]:
    """Run on one ring, until all runs are done or the ring does not survive a run."""
    all_figures = {kind: killing.KillFigures() for _, kind in runs}
    for run, kind in runs:
        _say(f"run {run}: {method.choice.name}, {kind}")
        figures = all_figures[kind]
        try:
            _run(killing.check(ring, kind, run, method, figures))
        except BenchError as error:
            figures.faults.add("broken off", f"run {run}: {error}")
        _say(f"  {figures.faults}; the peers counted {_run(ring.trouble_counts())}")
        if "broken off" in figures.faults.counts:
            break
    _show_errors(ring)
    return all_figures


@click.command()
@click.option("--peers", default=3, show_default=True, type=click.IntRange(1, 100), help="Peers of the ring.")
@click.option(
    "--filters", default=1000, show_default=True, type=click.IntRange(1, 10_000), help="Filters of one SUBSCRIBE."
)
@click.option(
    "--retained", "topics", default=100_000, show_default=True, type=click.IntRange(1), help="Topics with messages."
)
@click.option("--rate", default=100.0, show_default=True, type=click.FloatRange(1), help="Clients a second.")
@click.option(
    "--seconds", default=60.0, show_default=True, type=click.FloatRange(0), help="Seconds in which clients come."
)
@click.option(
    "--quiet", default=150.0, show_default=True, type=click.FloatRange(0), help="Most seconds until memory is back."
)
@click.option(
    "--ratio", default=1.2, show_default=True, type=click.FloatRange(0), help="Most memory after the load / before."
)
@_seed
def flap(
    peers: int, filters: int, topics: int, rate: float, seconds: float, quiet: float, ratio: float, seed: int
) -> None:
    """Look for memory and files that peers keep after clients have gone.

    Measures memory and open files of the peers: before the load, at the peak, and when it is quiet again. One client
    has many filters; many topics get a retained message, which is cleared at the end.
    """
    with _ring(peers, DIRECT) as ring:
        method = flapping.FlapMethod(
            filters=filters, retained=topics, flaps_hz=rate, flap_s=seconds, quiet_s=quiet, ratio=ratio, seed=seed
        )
        figures = _run(flapping.check(ring, method, _say))
        _end(ring, figures.lines(), figures.faults)


@click.command()
@click.option(
    "--topics", default=10_000, show_default=True, type=click.IntRange(1, 100_000), help="Topics of one coordinator."
)
@click.option(
    "--subscribers", default=10, show_default=True, type=click.IntRange(1, 98), help="Subscribers of each topic."
)
@click.option(
    "--bytes", "lease_bytes", default=1000.0, show_default=True, type=click.FloatRange(0), help="Most bytes of a lease."
)
@click.option(
    "--within", default=2.0, show_default=True, type=click.FloatRange(0), help="Most seconds of the takeover."
)
@_seed
def takeover(topics: int, subscribers: int, lease_bytes: float, within: float, seed: int) -> None:
    """Kill a peer that coordinates many topics.

    Each topic has the same coordinator and the same first shadow, and a subscriber at each of the other peers. Measures
    the memory of the leases, and the time until the shadow coordinates all topics.
    """
    with _ring(subscribers + 2, DIRECT) as ring:
        method = taking_over.TakeoverMethod(
            topics=topics, subscribers=subscribers, lease_bytes=lease_bytes, taken_s=within, seed=seed
        )
        figures = _run(taking_over.check(ring, method, _say))
        _end(ring, figures.lines(), figures.faults)


@contextmanager
def _ring(peers: int, choice: Choice, *options: str) -> Iterator[Ring]:
    """A ring of peers. Turns a BenchError into one line for the user."""
    allow_files(FILES)
    fanout = () if choice.name == DIRECT.name else ("--fanout", str(choice.fanout))
    _say(f"{peers} peers, {choice.name}")
    try:
        with ring_of(peers, ("--dispatch", choice.name, *fanout, *options)) as ring:
            yield ring
    except BenchError as error:
        raise click.ClickException(str(error)) from None


def _run(work: Coroutine[Any, Any, Figures]) -> Figures:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


def _say(text: str) -> None:
    """Show progress on standard error, so that the output has only the results."""
    click.echo(text, err=True)


def _show_errors(ring: Ring) -> None:
    for line in ring.logged_errors():
        _say(line)


def _end(ring: Ring, lines: list[str], faults: Faults) -> None:
    _show_errors(ring)
    _judge([*lines, f"the peers counted {_run(ring.trouble_counts())}"], faults)


def _judge(lines: list[str], faults: Faults) -> None:
    click.echo("\n".join(lines))
    for example in faults.examples:
        _say(example)
    if faults:
        raise click.exceptions.Exit(1)


COMMANDS: Final = (pairs, retained, kill, flap, takeover)
