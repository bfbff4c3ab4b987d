"""The pattern `takeover`: coordinators are killed or stopped, or a peer joins or leaves, under acknowledged messages.

Owns the choice of the peers concerned and of their topics. The load comes from clients at the other peers.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.meter import Meter
from ringmq.experiments.benchmarks.topics.method import Fault, Third, TopicsMethod
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.numbered_traffic import TICK_S, NumberedReceiver, NumberedTraffic, judge
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, percentile
from ringmq.experiments.processes.peers import Ring, RingPeer
from ringmq.experiments.processes.usage import Usage
from ringmq.overlay.config import show
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition

AT_ONCE: Final = 100
"""Filters of a SUBSCRIBE."""
RETAINED_EVERY: Final = 4
"""Every such message is retained if one peer is silent: its PUBACK needs the coordinator and its shadows."""
USUAL_S: Final = 1.0
"""Duration of the measurement before the fault."""
NEXT_S: Final = 0.5
"""Time from the first two victims to the third."""
ANSWERS_S: Final = 20.0
"""Wait for acknowledgements after the last message."""
STATUS_S: Final = 20.0
"""Time for a peer to answer a request for its status."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The peers concerned by a fault, and the peers of the clients."""

    first: tuple[RingPeer, ...]
    """Peers concerned at once."""
    later: tuple[RingPeer, ...]
    """Peers concerned NEXT_S later."""
    hosts: tuple[RingPeer, ...]
    """Peers that have clients."""


def owner(topic: str, ids: dict[int, Id]) -> int:
    """The peer that coordinates a topic."""
    key = key_of_partition(partition_of(topic))
    return min(ids, key=lambda number: nearness(key, ids[number]))


def victims(ids: dict[int, Id], topics: Sequence[str], fault: Fault, third: Third) -> tuple[int, ...]:
    """Coordinators of the most topics: two neighbours and a third, or one that leaves or joins."""
    around = sorted(ids, key=lambda number: ids[number])
    owned = [owner(topic, ids) for topic in topics]
    if fault in (Fault.LEAVE, Fault.JOIN, Fault.SILENT):
        steps: tuple[int, ...] = (0,)
    else:
        steps = (0, 1, 2 if third is Third.NEIGHBOUR else 1 + len(around) // 2)
    groups = [tuple(around[(start + step) % len(around)] for step in steps) for start in range(len(around))]
    return max(groups, key=lambda group: sum(number in group for number in owned))


def cast(ring: Ring, ids: dict[int, Id], topics: Sequence[str], fault: Fault, third: Third) -> Cast:
    """Choose the peers of a fault."""
    by_number = {peer.number: peer for peer in ring.peers}
    chosen = victims(ids, topics, fault, third)
    hosts = tuple(peer for peer in ring.peers if peer.number not in chosen)
    concerned = tuple(by_number[number] for number in chosen)
    return Cast(concerned[:2], concerned[2:], hosts)


def ids_of(ring: Ring) -> dict[int, Id]:
    """The ids of the live peers, by the command line of their own version. Raises BenchError."""
    with ThreadPoolExecutor(len(ring.alive)) as pool:
        return dict(zip((peer.number for peer in ring.alive), pool.map(_id_of, ring.alive), strict=True))


def _id_of(peer: RingPeer) -> Id:
    command = (*peer.program.command, "status", "--peer", show(peer.overlay), "--json")
    try:
        status = subprocess.run(  # noqa: S603  # the `ringmq` of the peer itself
            command, env=peer.program.env, capture_output=True, timeout=STATUS_S, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise BenchError(f"no status of {peer}: {error}") from None
    return Id.parse(json.loads(status.stdout)["id"])


async def takeover(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """A fault while acknowledged messages flow to many topics: losses, and the longest PUBACKs."""
    ring = system.ring
    assert ring is not None, "only peers take over"
    names = [f"taken/{number:07d}" for number in range(max(method.filters, method.count))]
    ids = ids_of(ring)
    for peer in ring.peers:
        peer.id = ids[peer.number]
    found = cast(ring, ids, names[: method.count], method.fault, method.third)
    if method.fault is Fault.JOIN:
        # A peer derives its id from its address: it comes back to the same place.
        await asyncio.to_thread(found.first[0].server.stop)
    async with AsyncExitStack() as stack:
        receivers = [
            NumberedReceiver(str(peer), range(index, method.count, len(found.hosts)))
            for index, peer in enumerate(found.hosts)
        ]
        subscribers = [
            await stack.enter_async_context(connected_client(peer.mqtt, f"taken-sub-{index}", receiver))
            for index, (peer, receiver) in enumerate(zip(found.hosts, receivers, strict=True))
        ]
        publishers = [
            await stack.enter_async_context(connected_client(peer.mqtt, f"taken-pub-{index}"))
            for index, peer in enumerate(found.hosts)
        ]
        granted = await _subscribe(subscribers, names, meter, method, reading)
        for receiver in receivers:
            receiver.subscribed()
        topics = names[: min(method.count, granted)]
        if not topics:
            raise BenchError(f"no filter was granted within {method.timeout_s:g} s")
        traffic = NumberedTraffic(publishers, topics, method.rate_hz)
        retained = RETAINED_EVERY if method.fault is Fault.SILENT else 0
        flowing = asyncio.create_task(_flow(traffic, publishers, topics, method.rate_hz, retained))
        try:
            # The first message to each topic opens it. Only later messages show the usual cost.
            await asyncio.sleep(min(len(topics) / method.rate_hz, method.timeout_s))
            reading.works.append(await _usual(traffic, meter))
            fault_at = perf_counter()
            await _strike(ring, found, method)
            await asyncio.sleep(max(0.0, fault_at + method.load_s - perf_counter()))
        finally:
            flowing.cancel()
            await asyncio.gather(flowing, return_exceptions=True)
        late = await traffic.unacknowledged(ANSWERS_S)
        faults = Faults()
        await judge(receivers, traffic.sent, False, faults)
    reading.faults += faults.examples
    reading.lost = faults.counts.get("missed with QoS 1", 0)
    reading.extra |= {
        "topics": len(topics),
        "messages": len(traffic.sent),
        "lost_messages": reading.lost,
        "messages_twice": faults.counts.get("twice", 0),
        "unacknowledged": len(late),
    }
    struck = {peer.number for peer in (*found.first, *found.later)}
    _latencies(traffic, [owner(topic, ids) in struck for topic in topics], fault_at, reading)


async def _subscribe(
    clients: Sequence[Client], names: Sequence[str], meter: Meter, method: TopicsMethod, reading: Reading
) -> int:
    """Subscribe to all names, in turns of the clients. Returns how many names, from the first on, are granted."""
    granted = [0] * len(clients)

    async def subscribe(index: int, client: Client) -> None:
        own = names[index :: len(clients)]
        for first in range(0, len(own), AT_ONCE):
            await client.subscribe(*own[first : first + AT_ONCE], qos=1)
            granted[index] += len(own[first : first + AT_ONCE])

    with meter.work("filter", len(names)) as work:
        tasks = [asyncio.create_task(subscribe(index, client)) for index, client in enumerate(clients)]
        done, late = await asyncio.wait(tasks, timeout=method.timeout_s)
        work.done = sum(granted)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()  # raises the error of a broken connection
    reading.works.append(work)
    return len(names) if work.complete else len(clients) * min(granted)


async def _flow(
    traffic: NumberedTraffic, publishers: Sequence[Client], topics: Sequence[str], rate_hz: float, retained: int
) -> None:
    """Publish to one topic after the other, each with a publisher at another peer than its subscriber. One message of
    `retained` is retained; with 0 none is."""
    start = perf_counter()
    while True:
        for _ in range(int((perf_counter() - start) * rate_hz) - len(traffic.sent)):
            topic = len(traffic.sent) % len(topics)
            publisher = (topic + 1) % len(publishers)
            retain = bool(retained) and len(traffic.sent) % retained == 0
            traffic.send(publisher, publishers[publisher], topic, 1, retain)
        await asyncio.sleep(TICK_S)


async def _usual(traffic: NumberedTraffic, meter: Meter) -> Work:
    """The cost of messages before the fault, which includes that of a ring at rest."""
    start, first, before, own = perf_counter(), len(traffic.sent), meter.used(), Usage.of(os.getpid())
    await asyncio.sleep(USUAL_S)
    sent = traffic.sent[first:]
    return Work(
        "message before the fault",
        len(sent),
        done=len(sent),
        seconds=perf_counter() - start,
        cpu_s=meter.used().since(before).cpu_s,
        generator_s=Usage.of(os.getpid()).since(own).cpu_s,
        latencies_s=[message.answered_at - message.at for message in sent if message.answered_at is not None],
    )


async def _strike(ring: Ring, found: Cast, method: TopicsMethod) -> None:
    """Let the fault happen. It ends with the load, except that stopped peers go on after half of it."""
    if method.fault is Fault.JOIN:
        await asyncio.to_thread(ring.start, *found.first)
    elif method.fault is Fault.LEAVE:
        await asyncio.to_thread(found.first[0].server.stop)
    elif method.fault is Fault.KILL:
        await asyncio.to_thread(ring.kill, *found.first)
        await asyncio.sleep(NEXT_S)
        await asyncio.to_thread(ring.kill, *found.later)
    else:
        try:
            for peer in found.first:
                peer.server.send(signal.SIGSTOP)
            await asyncio.sleep(NEXT_S)
            for peer in found.later:
                peer.server.send(signal.SIGSTOP)
            await asyncio.sleep(method.load_s / 2)
        finally:
            for peer in (*found.first, *found.later):
                peer.server.send(signal.SIGCONT)


def _latencies(traffic: NumberedTraffic, concerned: Sequence[bool], fault_at: float, reading: Reading) -> None:
    """PUBACKs that came after the fault, of topics whose coordinator it concerns and of the others."""
    end = perf_counter()
    found: dict[str, list[float]] = {"concerned": [], "others": []}
    for message in traffic.sent:
        answered_at = message.answered_at if message.acknowledged and message.answered_at is not None else end
        if answered_at >= fault_at:
            found["concerned" if concerned[message.topic] else "others"].append(answered_at - message.at)
    for whose, latencies_s in found.items():
        latencies_s.sort()
        reading.extra[f"puback_p99_{whose}_ms"] = 1000 * percentile(latencies_s, 99)
        reading.extra[f"puback_max_{whose}_ms"] = 1000 * percentile(latencies_s, 100)
    reading.extra["topics_concerned"] = sum(concerned)
