"""Synthetic records are valid, have unique names, and follow from the seed."""

from __future__ import annotations

from collections import defaultdict

from ringmq.experiments.load.synthetic_records import BATCH, PEERS, RECEIVERS, SAMPLE_EVERY, batches
from ringmq.logger.records import Delivery, Sample, decode

MANY = SAMPLE_EVERY * PEERS * 2


def test_each_record_is_valid_and_belongs_to_its_batch() -> None:
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
    for of_peer in numbers.values():
        assert of_peer == list(range(len(of_peer)))


def test_records_are_deliveries_and_some_samples() -> None:
    records = [decode(line) for batch in batches(MANY, 1) for line in batch.lines.split(b"\n")]
    samples = [record for record in records if isinstance(record, Sample)]
    deliveries = [record for record in records if isinstance(record, Delivery)]
    assert len(samples) + len(deliveries) == MANY
    assert PEERS <= len(samples) <= PEERS * 4


def test_each_delivery_comes_from_an_earlier_receiver() -> None:
    messages: dict[tuple[str, int], list[Delivery]] = defaultdict(list)
    for batch in batches(2_000, 1):
        for line in batch.lines.split(b"\n"):
            record = decode(line)
            if isinstance(record, Delivery):
                messages[record.origin, record.sequence].append(record)
    whole = [deliveries for deliveries in messages.values() if len(deliveries) == RECEIVERS]
    assert whole
    for deliveries in whole:
        hops = {delivery.peer: delivery.hops for delivery in deliveries}
        assert len(hops) == RECEIVERS
        for delivery in deliveries:
            assert delivery.received_ns >= delivery.sent_ns
            if delivery.peer != delivery.origin:
                assert hops[delivery.sender] == delivery.hops - 1


def test_the_same_seed_gives_the_same_records() -> None:
    assert list(batches(5_000, 3)) == list(batches(5_000, 3))
    assert list(batches(5_000, 3)) != list(batches(5_000, 4))
