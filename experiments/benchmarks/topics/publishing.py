"""Patterns of publishers: new topics, the same topics again, wildcard subscribers of very many topics, deep topics."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from random import Random
from time import perf_counter
from typing import Final

from ringmq.experiments.benchmarks.topics.costs import Reading
from ringmq.experiments.benchmarks.topics.meter import Meter
from ringmq.experiments.benchmarks.topics.method import TopicsMethod
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load.puback_probe import PubackProbe
from ringmq.experiments.load.raw_clients import connected, subscribe
from ringmq.experiments.load.receiver import Receiver
from ringmq.experiments.load.tally import percentile
from ringmq.experiments.load.topic_stream import PAUSE_S, Block, TopicStream, blocks, packet_size, payload_of
from ringmq.mqtt_front.matching.topics import MAX_LEVELS, MAX_SIZE_BYTES

KINDS: Final = 40
PLACES: Final = 6250
"""Topics of `wild`: KINDS sites, PLACES devices of each, and KINDS values of each device, so 10,000,000."""
LOOK_MANY_S: Final = 0.01
"""Time between two looks at a thousand subscribers: if it read each message alone, the generator would be the limit."""


def new(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """One message to each of many topics, which have no subscriber."""
    with _Strangers(system, method.qos) as publisher:
        _publish(publisher, "new", _topics(method.count), meter, method, reading)
    reading.units = method.count


def again(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """The same as `new`, then a pause, then another message to each of the topics."""
    with _Strangers(system, method.qos) as publisher:
        _publish(publisher, "new", _topics(method.count), meter, method, reading)
        time.sleep(method.pause_s)
        _publish(publisher, "again", _topics(method.count), meter, method, reading)
    reading.units = method.count


class _Strangers(ExitStack):
    """A publisher whose topics nobody subscribes to."""

    def __init__(self, system: System, qos: int) -> None:
        super().__init__()
        receiver = Receiver()
        self.callback(receiver.close)
        publisher = self.enter_context(connected(system.address(0), "topics-pub"))
        self.stream = TopicStream(publisher, qos, receiver, packet_bytes=1)


def _topics(number: int) -> list[str]:
    return [f"dev/{device:07d}/t" for device in range(number)]


def _publish(
    publisher: _Strangers, name: str, topics: list[str], meter: Meter, method: TopicsMethod, reading: Reading
) -> None:
    prepared = list(blocks(topics, method.qos))
    with meter.work(name, len(topics)) as work:
        work.ends_when_quiet = not method.qos
        work.done = publisher.stream.run(prepared, perf_counter() + method.timeout_s).answered(method.qos)
    reading.works.append(work)


def wild(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """Messages to topics drawn from 10,000,000; each client subscribes to a filter with wildcards.

    Half of the filters name a site, half of them a kind of values: a message has a subscriber of forty.
    """
    rng = Random(method.seed)
    filters = [
        f"wild/{number // 2 % KINDS:02d}/#" if number % 2 else f"wild/+/+/{number // 2 % KINDS:02d}"
        for number in range(method.clients[0])
    ]
    times = Counter(filters)
    topics = [
        f"wild/{rng.randrange(KINDS):02d}/{rng.randrange(PLACES):04d}/{rng.randrange(KINDS):02d}"
        for _ in range(method.count)
    ]

    def deliveries(topic: str) -> int:
        return times[f"{topic[:7]}/#"] + times[f"wild/+/+/{topic[-2:]}"]

    size = packet_size(topics[0], method.qos)
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        for number, topic_filter in enumerate(filters):
            client = stack.enter_context(connected(system.address(number), f"wild-{number}"))
            subscribe(client, topic_filter, qos=method.qos)
            client.setblocking(False)
            if method.qos:
                receiver.acknowledge(client, size, size - len(payload_of(0)) - 2)
            else:
                receiver.count(client)
        publisher = stack.enter_context(connected(system.address(0), "wild-pub"))
        stream = TopicStream(publisher, method.qos, receiver, size)
        prepared = list(blocks(topics, method.qos, deliveries=deliveries))
        with meter.work("delivery", sum(block.deliveries for block in prepared)) as work:
            done = stream.run(prepared, perf_counter() + method.timeout_s, look_s=LOOK_MANY_S)
            work.done = done.delivered
    reading.works.append(work)
    reading.extra["publications_hz"] = done.answered(method.qos) / done.seconds
    reading.units = method.count


def deep(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """PUBACKs of some clients; new topics of many levels; and PUBACKs again, beside a client that does harm.

    That client publishes to new topics with the most levels and the longest names, as fast as it can.
    """
    with PubackProbe(system.addresses) as probe:
        end = perf_counter() + method.load_s
        while (now := perf_counter()) < end:
            if not probe.tick(now):
                time.sleep(PAUSE_S)
        _note(reading, "without", probe.measured())
        _levels(system, meter, method, reading)
        with _Strangers(system, 0) as publisher:
            sent = publisher.stream.run(_longest(), perf_counter() + method.load_s, [probe.tick])
        _note(reading, "with", probe.measured())
    reading.extra["longest_topics_hz"] = sent.sent / sent.seconds


def _levels(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    with _Strangers(system, method.qos) as publisher:
        for levels in method.levels:
            topics = [_deep(f"d{number:07d}", levels) for number in range(method.count)]
            _publish(publisher, f"{levels} levels", topics, meter, method, reading)
    reading.units = method.count * len(method.levels)
    reading.memory_after = meter.memory()
    time.sleep(method.settle_s)
    reading.rest_after = meter.rest(method.rest_s)


def _deep(first: str, levels: int, each: str = "x") -> str:
    return "/".join([first, *[each] * (levels - 1)])


def _longest() -> Iterator[Block]:
    """Messages without end, each to a new topic with the most levels and bytes."""
    size = (MAX_SIZE_BYTES + 1) // MAX_LEVELS - 1
    return blocks((_deep(f"{number:0{size}d}", MAX_LEVELS, "x" * size) for number in count()), 0, size=1)


def _note(reading: Reading, which: str, latencies_s: list[float]) -> None:
    reading.extra[f"puback_p99.9_{which}_ms"] = 1000 * percentile(latencies_s, 99.9)
    reading.extra[f"puback_max_{which}_ms"] = 1000 * percentile(latencies_s, 100)
