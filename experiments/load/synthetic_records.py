"""Synthetic records in the form of a ring's records, by the million; equal seeds give equal records.

Owns the contents of the records. They are written as text: encoding each record would be slower than the measured
collector.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

PEERS: Final = 20
TOPICS: Final = 50
RECEIVERS: Final = 10
"""Peers that a message reaches, including its origin."""
SENDS: Final = 3
"""Sends of an inner peer of a tree."""
SAMPLE_EVERY: Final = 1000
"""Records of a peer from one sample to the next."""
BATCH: Final = 150
"""Records in one message to the collector: about as many as a peer puts into 64 kB."""
BEGAN_NS: Final = 1_800_000_000_000_000_000
MESSAGE_NS: Final = 1_000_000
LATENCY_NS: Final = 2_000_000.0
"""Mean latency of a link."""
BOOT: Final = 7


class Batch(NamedTuple):
    """Records of one peer in one message."""

    peer: str
    lines: bytes
    records: int


def batches(records: int, seed: int, run: str = "bench") -> Iterator[Batch]:
    """Make `records` records, in batches of one peer each."""
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
        for index, (received_ns, hops, parent) in enumerate(arrivals[: records - made]):
            receiver = (origin + index) % PEERS
            number, peer = numbers[receiver], peers[receiver]
            common = f'"v":1,"run":"{run}","peer":"{peer}","boot":{BOOT},"number":{number},"at":{received_ns / 1e9}'
            if number % SAMPLE_EVERY == 0:
                line = _sample(common, receiver, number)
            else:
                sends = SENDS if index * SENDS + 1 < RECEIVERS else 0
                line = (
                    f'{{"kind":"delivery",{common},"origin":"{peers[origin]}","origin_boot":{BOOT},'
                    f'"sequence":{sequence},"topic":"hall/{sequence % TOPICS}/door","dispatching":"guided",'
                    f'"sender":"{peers[(origin + parent) % PEERS]}",'
                    f'"sent_ns":{arrivals[0][0]},"received_ns":{received_ns},'
                    f'"hops":{hops},"bytes":32,"clients":10,"sends":{sends},"duplicate":false}}'
                )
            numbers[receiver] = number + 1
            made += 1
            lines = waiting[receiver]
            lines.append(line)
            if len(lines) == BATCH:
                yield Batch(peer, "\n".join(lines).encode(), BATCH)
                lines.clear()
    for peer, lines in zip(peers, waiting, strict=True):
        if lines:
            yield Batch(peer, "\n".join(lines).encode(), len(lines))


def _arrivals(sent_ns: int, chance: Random) -> list[tuple[int, int, int]]:
    """For each receiver of a tree: time of arrival of a message, number of hops, and index of the sender."""
    arrivals = [(sent_ns, 0, 0)]
    for receiver in range(1, RECEIVERS):
        parent = (receiver - 1) // SENDS
        before_ns, hops, _ = arrivals[parent]
        arrivals.append((before_ns + int(chance.expovariate(1 / LATENCY_NS)), hops + 1, parent))
    return arrivals


def _sample(common: str, peer: int, number: int) -> str:
    traffic = (
        f'{{"bytes_in":{number * 500},"bytes_out":{number * 5000},"messages_in":{number},"messages_out":{number * 10}}}'
    )
    gauges = '"clients":10,"subscriptions":10,"topics":5,"coordinated":2,"copied":4,"filters":5,"publishing":5'
    return (
        f'{{"kind":"sample",{common},"uptime_s":{number / SAMPLE_EVERY + 1},"address":"127.0.0.1:{4883 + peer}",'
        f'"listeners":{{"mqtt":"127.0.0.1:{1883 + peer}"}},"pid":{1000 + peer},"dispatching":"guided","fanout":{SENDS},'
        f'"cpu_s":{number / 5000},"memory_bytes":42000000,{gauges},"mqtt":{traffic},"overlay":{traffic},"log":{{}},'
        f'"links":[],"waiting_bytes":0,"unacknowledged":0}}'
    )
