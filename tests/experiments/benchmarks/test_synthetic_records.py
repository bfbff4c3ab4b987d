"""Made records are such as peers send: each decodes, none has the name of another, and a seed gives the same ones."""

from __future__ import annotations

from collections import defaultdict

from ringmq.experiments.benchmarks.synthetic_records import BATCH, PEERS, RECEIVERS, SAMPLE_EVERY, batches
from ringmq.logger.records import Delivery, Sample, decode

MANY = SAMPLE_EVERY * PEERS * 2


def test_each_is_a_record_of_who_publishes_it() -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for batch in batches(MANY, 1):
        lines = batch.lines.split(b"\n")
        assert len(lines) == batch.records <= BATCH
        for line in lines:
            record = decode(line)
            assert record.peer == batch.peer
            numbers[record.peer].append(record.number)
    assert len(numbers) == PEERS
    assert sum(map(len, numbers.values())) == MANY
    for found in numbers.values():
        assert found == list(range(len(found)))


def test_both_kinds_are_there() -> None:
    records = [decode(line) for batch in batches(MANY, 1) for line in batch.lines.split(b"\n")]
    samples = [one for one in records if isinstance(one, Sample)]
    deliveries = [one for one in records if isinstance(one, Delivery)]
    assert len(samples) + len(deliveries) == MANY
    assert PEERS <= len(samples) <= PEERS * 4


def test_a_message_comes_from_who_had_it_before() -> None:
    messages: dict[tuple[str, int], list[Delivery]] = defaultdict(list)
    for batch in batches(2_000, 1):
        for line in batch.lines.split(b"\n"):
            record = decode(line)
            if isinstance(record, Delivery):
                messages[record.origin, record.sequence].append(record)
    whole = [found for found in messages.values() if len(found) == RECEIVERS]
    assert whole
    for found in whole:
        hops = {one.peer: one.hops for one in found}
        assert len(hops) == RECEIVERS
        for one in found:
            assert one.received_ns >= one.sent_ns
            if one.peer != one.origin:
                assert hops[one.sender] == one.hops - 1


def test_a_seed_gives_the_same() -> None:
    assert list(batches(5_000, 3)) == list(batches(5_000, 3))
    assert list(batches(5_000, 3)) != list(batches(5_000, 4))
