"""Records as the peers of a ring would make them, by the million: always the same ones for the same seed.

Owns what is in them. Written as text, since encoding them one by one would be slower than what is to be measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

PEERS: Final = 20
TOPICS: Final = 50
RECEIVERS: Final = 10
"""Peers that a message comes to, its origin among them."""
SENDS: Final = 3
"""Of a peer that has others below it."""
SAMPLE_EVERY: Final = 1000
"""Deliveries of a peer."""
BATCH: Final = 150
"""Records of one message to the collector: what a peer puts into one of 64 kB."""
BEGAN_NS: Final = 1_800_000_000_000_000_000
MESSAGE_NS: Final = 1_000_000
LATENCY_NS: Final = 2_000_000.0
"""Mean of that of a link."""
BOOT: Final = 7


class Batch(NamedTuple):
    """What one peer publishes at a time."""

    peer: str
    lines: bytes
    records: int


def batches(records: int, seed: int, run: str = "bench") -> Iterator[Batch]:
    """So many records, from all peers in turn."""
    chance = Random(seed)
    peers = [f"{chance.getrandbits(128):032x}" for _ in range(PEERS)]
    waiting: list[list[str]] = [[] for _ in peers]
    numbers = [0] * PEERS
    made = 0
    sequence = 0
    while made < records:
        sequence += 1
        origin = chance.randrange(PEERS)
        arrivals = _arrivals(BEGAN_NS + sequence * MESSAGE_NS, chance)
        for place, (received_ns, hops, parent) in enumerate(arrivals[: records - made]):
            who = (origin + place) % PEERS
            number = numbers[who]
            common = (
                f'"v":1,"run":"{run}","peer":"{peers[who]}","boot":{BOOT},"number":{number},"at":{received_ns / 1e9}'
            )
            if number % SAMPLE_EVERY == 0:
                line = _sample(common, who, number)
            else:
                sends = SENDS if place * SENDS + 1 < RECEIVERS else 0
                line = (
                    f'{{"kind":"delivery",{common},"origin":"{peers[origin]}","origin_boot":{BOOT},'
                    f'"sequence":{sequence},"topic":"hall/{sequence % TOPICS}/door","dispatching":"guided",'
                    f'"sender":"{peers[(origin + parent) % PEERS]}",'
                    f'"sent_ns":{arrivals[0][0]},"received_ns":{received_ns},'
                    f'"hops":{hops},"bytes":32,"clients":10,"sends":{sends},"duplicate":false}}'
                )
            numbers[who] = number + 1
            made += 1
            lines = waiting[who]
            lines.append(line)
            if len(lines) == BATCH:
                yield Batch(peers[who], "\n".join(lines).encode(), BATCH)
                lines.clear()
    for peer, lines in zip(peers, waiting, strict=True):
        if lines:
            yield Batch(peer, "\n".join(lines).encode(), len(lines))


def _arrivals(sent_ns: int, chance: Random) -> list[tuple[int, int, int]]:
    """When each receiver of a tree has a message, after how many hops, and from which of them."""
    arrivals = [(sent_ns, 0, 0)]
    for place in range(1, RECEIVERS):
        parent = (place - 1) // SENDS
        before_ns, hops, _ = arrivals[parent]
        arrivals.append((before_ns + int(chance.expovariate(1 / LATENCY_NS)), hops + 1, parent))
    return arrivals


def _sample(common: str, who: int, number: int) -> str:
    traffic = (
        f'{{"bytes_in":{number * 500},"bytes_out":{number * 5000},"messages_in":{number},"messages_out":{number * 10}}}'
    )
    gauges = '"clients":10,"subscriptions":10,"topics":5,"coordinated":2,"copied":4,"filters":5,"publishing":5'
    return (
        f'{{"kind":"sample",{common},"uptime_s":{number / SAMPLE_EVERY + 1},"address":"127.0.0.1:{4883 + who}",'
        f'"listeners":{{"mqtt":"127.0.0.1:{1883 + who}"}},"pid":{1000 + who},"dispatching":"guided","fanout":{SENDS},'
        f'"cpu_s":{number / 5000},"memory_bytes":42000000,{gauges},"mqtt":{traffic},"overlay":{traffic},"log":{{}},'
        f'"links":[],"waiting_bytes":0,"unacknowledged":0}}'
    )
