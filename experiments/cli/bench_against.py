"""`--against CHECKOUT` of `ringmq bench front|ring`: its options, its processes and clients, its tables.

The module `against` owns the order of measurements and the statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import click
from click.core import ParameterSource

from ringmq.experiments.benchmarks import against
from ringmq.experiments.benchmarks.report import MUCH_WAITING, Report
from ringmq.experiments.load.patterns import PAYLOAD_BYTES, Pattern
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.rounds import Rounds, Slice
from ringmq.experiments.processes import checkouts
from ringmq.experiments.processes.servers import cores, pinned
from ringmq.experiments.processes.usage import memory_bytes

DEFAULT: Final = against.Schedule()
MOST_PAYLOAD_BYTES: Final = 1_000_000
"""Largest payload: a peer accepts its packet by default."""


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--against`, and the options for the messages and their rate."""
    for option in (
        click.option(
            "--payload",
            "payload_bytes",
            type=click.IntRange(0, MOST_PAYLOAD_BYTES),
            metavar="BYTES",
            help=f"Size of each payload.  [default: {PAYLOAD_BYTES}]",
        ),
        click.option("--qos", type=click.IntRange(0, 2), help="QoS of all messages.  [default: that of the pattern]"),
        click.option(
            "--rate",
            "rate_hz",
            type=click.FloatRange(1),
            metavar="N",
            help="Publications a second, with --against.  [default: half of what both sides can do]",
        ),
        click.option(
            "--against",
            "folder",
            type=click.Path(path_type=Path),
            metavar="CHECKOUT",
            help="Compare peers of this version with those of another: a folder in which make venv was run.",
        ),
    ):
        command = option(command)
    return command


def other_checkout(
    ctx: click.Context, folder: Path | None, rate_hz: float | None, *others: str
) -> checkouts.Checkout | None:
    """The checkout to compare with, if there is one.

    Raises UsageError if it has no environment, for a rate without it, and for it with one of the `others`: parameters
    of measurements that have no second checkout.
    """
    if folder is None:
        if rate_hz is not None:
            raise click.UsageError("--rate needs --against: other servers are measured at their own limits", ctx)
        return None
    for param in ctx.command.params:
        if param.name in others and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{param.opts[0]} cannot be combined with --against", ctx)
    try:
        return checkouts.other(folder)
    except BenchError as error:
        raise click.UsageError(f"--against: {error}", ctx) from None


@dataclass(frozen=True, slots=True)
class _Side:
    """Peers of one version and the clients at them."""

    clients: Rounds
    idle_bytes: float

    def slice(self, rounds: int, rate_hz: float) -> Slice:
        return self.clients.slice(rounds, rate_hz)


def run(report: Report, patterns: Sequence[Pattern], checkout: checkouts.Checkout, schedule: against.Schedule) -> None:
    """Compare this version with the other in each pattern. Raises BenchError."""
    pair = (checkouts.this(), checkout)
    server_core, load_core = cores()
    with pinned(load_core), TemporaryDirectory(prefix="ringmq-bench-") as bytecode:
        for pattern in patterns:
            opened = partial(_opened, pattern, pair, server_core, Path(bytecode))
            found = against.compare(pattern, opened, schedule, partial(_detail, report), report.say)
            report.add_table(pattern.name, as_figures(found, pair), table(pattern, found, pair, schedule))
            if found.waited > MUCH_WAITING:
                report.say(
                    f"other processes had {found.waited:.0%} of the cores: rounds came late, the interval is wider"
                )
            else:
                for name, share in found.late.items():
                    report.say(f"{name} reached {share:.0%} of the rate: choose a lower --rate")
            report.judge(against.verdicts(pattern, found))


def _detail(report: Report, side: str, measured: Slice) -> None:
    cost = 1e6 * measured.cpu_s / measured.deliveries
    report.detail(
        f"    {side:<7}{measured.rate_hz:>9.0f}/s  cpu s/million {cost:7.3f}  {measured.seconds:.2f} s  "
        f"waited {measured.waited:.0%}"
    )


@contextmanager
def _opened(
    pattern: Pattern, pair: Sequence[checkouts.Checkout], core: int, bytecode: Path, number: int
) -> Iterator[dict[str, against.Side]]:
    """New peers of both versions with new clients."""
    env = checkouts.environment(bytecode, seed=number)
    with ExitStack() as stack:
        sides: dict[str, against.Side] = {}
        for checkout in pair:
            ring = stack.enter_context(checkouts.ring_of(checkout, pattern.servers, core, env))
            servers = [peer.server for peer in ring.peers]
            idle_bytes = sum(memory_bytes(server.pid) for server in servers) / len(servers)
            sides[checkout.name] = _Side(stack.enter_context(Rounds(servers, pattern)), idle_bytes)
        yield sides


def table(
    pattern: Pattern, found: against.Comparison, pair: Sequence[checkouts.Checkout], schedule: against.Schedule
) -> str:
    """Both sides of one pattern, then the ratios with their intervals."""
    form = "{:<7}{:>14}{:>8}{:>13}{:>9}  {}"
    pairs = f"{len(found.pairs)} pairs, {schedule.span_s:g} s of each side"
    lines = [
        f"{pattern.name}: {found.rate_hz:,.0f} publications/s, {pairs}",
        form.format("side", "cpu s/million", "spread", "published/s", "idle MB", "checkout"),
    ]
    for checkout in pair:
        costs = found.costs(checkout.name)
        cpu = [cost.cpu_s_per_million for cost in costs]
        cells = (
            f"{median(cpu):.3f}",
            f"{(max(cpu) - min(cpu)) / median(cpu):.1%}",
            f"{median(cost.rate_hz for cost in costs):.0f}",
            f"{median(cost.idle_bytes for cost in costs) / 1e6:.1f}",
        )
        lines.append(form.format(checkout.name, *cells, checkout.folder))
    ratio = found.cost_ratio
    lines += [
        f"this / other: processor time of a delivery {ratio}, memory of an idle peer {found.memory_ratio}",
        f"(median of the pairs and its exact binomial interval, confidence {ratio.confidence:.1%})",
    ]
    return "\n".join(lines)


def as_figures(found: against.Comparison, pair: Sequence[checkouts.Checkout]) -> dict[str, object]:
    """The same for scripts."""
    return {
        "rate_hz": found.rate_hz,
        "cpu_ratio": asdict(found.cost_ratio),
        "idle_memory_ratio": asdict(found.memory_ratio),
        **{
            checkout.name: {
                "checkout": str(checkout.folder),
                "pairs": [asdict(cost) for cost in found.costs(checkout.name)],
            }
            for checkout in pair
        },
    }
