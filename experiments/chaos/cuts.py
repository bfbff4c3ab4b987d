"""The scenarios of the network: peers that cannot reach each other for a while, and lines that are slow and lossy.

They need a host for each peer. Cuts are of directed pairs of peers; clients always reach the peer of their own host.
"""

from __future__ import annotations

from typing import Final

from ringmq.experiments.chaos.conditions import SHORT_CUT_S
from ringmq.experiments.chaos.run import ChaosRun
from ringmq.experiments.hosts.network import LineWeather

LEAST_CUT_S: Final = 1.0
LONG_CUTS_S: Final = (8.0, 25.0)
"""Up to well beyond the lease of entries (`lan`: 15 s)."""
ROUGH: Final = LineWeather(delay_s=0.2, jitter_s=0.1, loss=0.2, reordering=0.2)


def two_parts(run: ChaosRun, least: int, most: int) -> tuple[list[int], list[int]]:
    """A random part of so many peers, and the others."""
    count = run.chance.randint(least, most)
    drawn = run.some(len(run.peers))
    return drawn[:count], drawn[count:]


async def calm(run: ChaosRun) -> None:
    """After a cut: the ring becomes whole, and stays so for a while."""
    run.heal()
    await run.settle()
    await run.wait(2.0, 5.0)


async def cuts(run: ChaosRun) -> None:
    """A part of the peers is cut off for 1 to 6 s."""
    while not run.is_over:
        run.cut_apart(*two_parts(run, 1, len(run.peers) // 2))
        await run.wait(LEAST_CUT_S, SHORT_CUT_S)
        await calm(run)


async def flapping(run: ChaosRun) -> None:
    """The line of one or two peers comes and goes."""
    while not run.is_over:
        parts = two_parts(run, 1, 2)
        for _ in range(run.chance.randint(3, 8)):
            run.cut_apart(*parts)
            await run.wait(0.2, 2.0)
            run.heal()
            await run.wait(0.2, 2.0)
        await calm(run)


async def majority(run: ChaosRun) -> None:
    """The smaller half is cut off for longer than a lease, or a little less."""
    while not run.is_over:
        minority = (len(run.peers) - 1) // 2
        run.cut_apart(*two_parts(run, minority, minority))
        await run.wait(*LONG_CUTS_S)
        await calm(run)


async def three_way(run: ChaosRun) -> None:
    """Three parts are apart."""
    while not run.is_over:
        drawn = run.some(len(run.peers))
        run.cut_apart(drawn[0::3], drawn[1::3], drawn[2::3])
        await run.wait(*LONG_CUTS_S)
        await calm(run)


async def one_way(run: ChaosRun) -> None:
    """One peer no longer reaches some others, which still reach it."""
    while not run.is_over:
        source, *targets = run.some(run.chance.randint(2, len(run.peers)))
        run.cut([(source, target) for target in targets], f"cut {source} to {','.join(map(str, targets))}")
        await run.wait(LEAST_CUT_S, SHORT_CUT_S)
        await calm(run)


async def one_pair(run: ChaosRun) -> None:
    """Two peers cannot reach each other, while all others reach both."""
    while not run.is_over:
        first, second = run.some(2)
        run.cut([(first, second), (second, first)], f"cut pair {first},{second}")
        await run.wait(10.0, 40.0)
        await calm(run)


async def loss(run: ChaosRun) -> None:
    """All lines lose a fifth of the frames, delay the others by 0.1 to 0.3 s, and change their order."""
    while not run.is_over:
        run.change_weather(ROUGH)
        await run.wait(5.0, 15.0)
        run.change_weather()
        await run.settle()
        await run.wait(2.0, 4.0)
