"""`ringmq bench pairs|retained|kill|flap|takeover`: whether a ring of real peers loses or keeps anything.

By commands that anyone can repeat, which end with exit status 1 when something was missed, came twice or too late, or
was kept.
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
"""For the clients of a check, which are all in this process."""
GUIDED: Final = "guided"
PATIENT: Final = """\
[limits]
max_queued = 100000
"""
"""Of the peers of `kill`: what a client is sent at once after a pause is to be lost by the ring or not at all."""
MIX: Final = (
    (DIRECT.name, Kind.COORDINATOR),
    (DIRECT.name, Kind.OWNERS),
    (GUIDED, Kind.COORDINATOR),
    (GUIDED, Kind.OWNERS),
    (GUIDED, Kind.INTERIOR),
)
"""Of the runs of `kill`, in turn."""

Figures = TypeVar("Figures")

_peers = click.option("--peers", default=13, show_default=True, type=click.IntRange(2, 100), help="Of the ring.")
_seed = click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Chooses who, what and when.")
_dispatch = click.option(
    "--dispatch", default=DIRECT.name, show_default=True, type=click.Choice((DIRECT.name, GUIDED)), help="Of the ring."
)
_fanout = click.option("--fanout", default=2, show_default=True, type=click.IntRange(1), help="Of trees.")


@click.command()
@_peers
@click.option("--pairs", "count", default=10_000, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--at-once", default=24, show_default=True, type=click.IntRange(1, 1000), help="Pairs at one time.")
@_dispatch
@_fanout
@_seed
def pairs(peers: int, count: int, at_once: int, dispatch: str, fanout: int, seed: int) -> None:
    """Look for messages missed after a SUBACK.

    From its SUBACK on, a client of one peer is to get what is published at any other, once. Each pair of peers is
    drawn, and a topic, new or published to before, a filter with wildcards or without, and a QoS. Three messages are
    published right after the SUBACK, by another connection; sometimes two right before.
    """
    with _ring(peers, Choice(dispatch, fanout)) as ring:
        method = pairing.Method(pairs=count, at_once=at_once, seed=seed)
        figures = _run(pairing.check([peer.mqtt for peer in ring.peers], method, _say))
        _end(ring, figures.lines(), figures.faults)


@click.command()
@_peers
@click.option("--meetings", default=10_000, show_default=True, type=click.IntRange(1), help="How many.")
@click.option("--at-once", default=5, show_default=True, type=click.IntRange(1, 1000), help="Messages at one time.")
@_dispatch
@_fanout
@_seed
def retained(peers: int, meetings: int, at_once: int, dispatch: str, fanout: int, seed: int) -> None:
    """Look for retained messages missed or seen twice.

    A message is retained while clients of other peers subscribe: each is to see it once, as retained or as live. Five
    subscribers meet each message; they subscribe within 20 ms before or after it is published.
    """
    with _ring(peers, Choice(dispatch, fanout)) as ring:
        method = retaining.Method(meetings=meetings, at_once=at_once, seed=seed)
        figures = _run(retaining.check([peer.mqtt for peer in ring.peers], method, _say))
        _end(ring, figures.lines(), figures.faults)


@click.command()
@click.option(
    "--peers", default=13, show_default=True, type=click.IntRange(LEAST_PEERS, 100), help="Of each of the two rings."
)
@click.option("--runs", default=50, show_default=True, type=click.IntRange(1), help="How many, of all kinds in turn.")
@click.option("--rate", default=1000.0, show_default=True, type=click.FloatRange(1), help="Publications a second.")
@click.option(
    "--within", default=1.0, show_default=True, type=click.FloatRange(0), help="Seconds until new clients are served."
)
@click.option("--shadows", default=2, show_default=True, type=click.IntRange(1, 8), help="Of the rings.")
@_fanout
@_seed
def kill(peers: int, runs: int, rate: float, within: float, shadows: int, fanout: int, seed: int) -> None:
    """Kill peers and look for losses.

    They are killed with SIGKILL while messages flow to and from clients of others. Who is, in turn:

    \b
    coordinator  that of the topic
    owners       the coordinator and all but one of its shadows
    interior     a subscriber that passes messages on, with Guided dispatching

    With Direct dispatching nothing may be lost, nor with QoS 1 anything that was acknowledged. Nothing may come twice.
    New subscribers and publishers of the topic are there right after the kill.
    """
    lines: list[str] = []
    faults = Faults()
    numbered = [(run, *MIX[run % len(MIX)]) for run in range(runs)]
    for name in dict.fromkeys(name for _, name, _ in numbered):
        choice = Choice(name, fanout) if name == GUIDED else DIRECT
        method = killing.Method(rate_hz=rate, served_s=within, seed=seed, choice=choice, shadows=shadows)
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


def _kill(ring: Ring, runs: list[tuple[int, Kind]], method: killing.Method) -> dict[Kind, killing.Figures]:
    """All runs on one ring; the last is the one that the ring did not survive."""
    all_figures = {kind: killing.Figures() for _, kind in runs}
    for run, kind in runs:
        _say(f"run {run}: {method.choice.name}, {kind}")
        figures = all_figures[kind]
        try:
            _run(killing.check(ring, kind, run, method, figures))
        except BenchError as error:
            figures.faults.add("broken off", f"run {run}: {error}")
        _say(f"  {figures.faults}; the peers counted {_run(ring.troubles())}")
        if "broken off" in figures.faults.counts:
            break
    _complaints(ring)
    return all_figures


@click.command()
@click.option("--peers", default=3, show_default=True, type=click.IntRange(1, 100), help="Of the ring.")
@click.option("--filters", default=1000, show_default=True, type=click.IntRange(1, 10_000), help="Of one SUBSCRIBE.")
@click.option("--retained", "topics", default=100_000, show_default=True, type=click.IntRange(1), help="Topics.")
@click.option("--rate", default=100.0, show_default=True, type=click.FloatRange(1), help="Clients a second.")
@click.option("--seconds", default=60.0, show_default=True, type=click.FloatRange(0), help="How long they come and go.")
@click.option("--quiet", default=150.0, show_default=True, type=click.FloatRange(0), help="Seconds of patience after.")
@click.option(
    "--ratio", default=1.2, show_default=True, type=click.FloatRange(0), help="Memory after / before, at most."
)
@_seed
def flap(
    peers: int, filters: int, topics: int, rate: float, seconds: float, quiet: float, ratio: float, seed: int
) -> None:
    """Look for what peers keep of clients that have gone.

    Memory and open files of the peers, before, at most, and when it is quiet again. One client has many filters; many
    topics get a retained message, which is cleared at the end.
    """
    with _ring(peers, DIRECT) as ring:
        method = flapping.Method(
            filters=filters, retained=topics, flaps_hz=rate, flap_s=seconds, quiet_s=quiet, ratio=ratio, seed=seed
        )
        figures = _run(flapping.check(ring, method, _say))
        _end(ring, figures.lines(), figures.faults)


@click.command()
@click.option(
    "--topics", default=10_000, show_default=True, type=click.IntRange(1, 100_000), help="Of one coordinator."
)
@click.option("--subscribers", default=10, show_default=True, type=click.IntRange(1, 98), help="Peers, for each topic.")
@click.option(
    "--bytes", "lease_bytes", default=1000.0, show_default=True, type=click.FloatRange(0), help="A lease, at most."
)
@click.option("--within", default=2.0, show_default=True, type=click.FloatRange(0), help="Seconds until it is done.")
@_seed
def takeover(topics: int, subscribers: int, lease_bytes: float, within: float, seed: int) -> None:
    """Kill a peer that coordinates many topics.

    Each topic has the same coordinator and the same first shadow, and a subscriber at each of the other peers. How much
    memory the leases take, and how long it takes until the shadow coordinates all of them.
    """
    with _ring(subscribers + 2, DIRECT) as ring:
        method = taking_over.Method(
            topics=topics, subscribers=subscribers, lease_bytes=lease_bytes, taken_s=within, seed=seed
        )
        figures = _run(taking_over.check(ring, method, _say))
        _end(ring, figures.lines(), figures.faults)


@contextmanager
def _ring(peers: int, choice: Choice, *options: str) -> Iterator[Ring]:
    """Turns what goes wrong with it into one line."""
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
    """To whom waits for it: on standard error, so that the output is the result alone."""
    click.echo(text, err=True)


def _complaints(ring: Ring) -> None:
    for line in ring.complaints():
        _say(line)


def _end(ring: Ring, lines: list[str], faults: Faults) -> None:
    _complaints(ring)
    _judge([*lines, f"the peers counted {_run(ring.troubles())}"], faults)


def _judge(lines: list[str], faults: Faults) -> None:
    click.echo("\n".join(lines))
    for example in faults.examples:
        _say(example)
    if faults:
        raise click.exceptions.Exit(1)


COMMANDS: Final = (pairs, retained, kill, flap, takeover)
