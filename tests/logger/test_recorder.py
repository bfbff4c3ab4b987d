"""The records of a peer: choice of messages, numbers without gaps, bounded batches, and latencies by interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.logger.config import RecordConfig
from ringmq.logger.histogram import bucket_of
from ringmq.logger.recorder import MAX_BATCH_BYTES, MAX_SERIES, MAX_WAITING_BYTES, Recorder, is_of_the_log
from ringmq.logger.records import MAX_LINE_BYTES, Delivery, Latencies, LinkTraffic, Record, Sample, decode

ME, OTHER = "0" * 31 + "1", "0" * 31 + "2"
T0_NS = 1_700_000_000_000_000_000


def new_recorder(**settings: Any) -> Recorder:
    return Recorder("spring", ME, 7, RecordConfig(**settings), T0_NS / 1e9)


def deliver(recorder: Recorder, took_ns: int = 2_000_000, **members: Any) -> dict[str, Any]:
    """Record a delivery; returns its members by their names in the record."""
    members = {
        "origin": OTHER,
        "origin_boot": 3,
        "sequence": 4,
        "topic": "hall/7/door",
        "dispatching": "guided",
        "sender": OTHER,
        "sent_ns": T0_NS,
        "received_ns": T0_NS + took_ns,
        "hops": 1,
        "size": 32,
        "clients": 2,
        "sends": 5,
        "duplicate": False,
    } | members
    recorder.delivered(**members)
    members["bytes"] = members.pop("size")
    return members


def batches(recorder: Recorder) -> list[bytes]:
    found = []
    while batch := recorder.take():
        found.append(batch)
    return found


def taken_records(recorder: Recorder) -> list[Record]:
    lines = b"".join(batches(recorder)).split(b"\n")
    assert lines.pop() == b"", "the last line has no line feed"
    return [decode(line) for line in lines]


@settings(deadline=None)
@given(st.integers(2, 200), st.integers(1, 20))
def test_one_message_in_every_block_is_chosen(every: int, blocks: int) -> None:
    recorder = new_recorder(every=every)
    for _ in range(blocks):
        assert sum(recorder.chooses() for _ in range(every)) == 1


def test_all_positions_are_chosen_equally_often() -> None:
    """Otherwise, of topics that are published to in a fixed order, some might never be recorded."""
    recorder = new_recorder(every=10)
    positions = Counter(position for _ in range(5000) for position in range(10) if recorder.chooses())
    assert set(positions) == set(range(10))
    assert min(positions.values()) > 350  # 500 with a standard deviation of 21
    assert max(positions.values()) < 650


def test_choices_depend_on_peer_and_start_alone() -> None:
    config = RecordConfig(every=10)
    same, again, other_peer, other_boot = [
        Recorder("spring", peer, boot, config, 0) for peer, boot in ((ME, 7), (ME, 7), (OTHER, 7), (ME, 8))
    ]
    choices = [[recorder.chooses() for _ in range(1000)] for recorder in (same, again, other_peer, other_boot)]
    assert choices[0] == choices[1]
    assert choices[0] not in (choices[2], choices[3])


@pytest.mark.parametrize(
    ("settings", "answer"),
    [({"every": 1}, True), ({"deliveries": "off", "every": 1}, False), ({"deliveries": "off", "every": 2}, False)],
)
def test_every_one_chooses_all_and_off_chooses_none(settings: dict[str, Any], answer: bool) -> None:
    recorder = new_recorder(**settings)
    assert {recorder.chooses() for _ in range(1000)} == {answer}


def test_histogram_chooses_the_same_messages() -> None:
    each, histogram = new_recorder(), new_recorder(deliveries="histogram")
    assert [each.chooses() for _ in range(1000)] == [histogram.chooses() for _ in range(1000)]


@pytest.mark.parametrize("topic", ["ringmq/log", "ringmq/log/", "ringmq/log/" + ME, "ringmq/log/a/b"])
def test_topics_of_the_log_are_recognised(topic: str) -> None:
    assert is_of_the_log(topic)


@pytest.mark.parametrize("topic", ["ringmq", "ringmq/", "ringmq/logs", "ringmq/logs/a", "/ringmq/log", "a/ringmq/log"])
def test_other_topics_are_not_of_the_log(topic: str) -> None:
    assert not is_of_the_log(topic)


@pytest.mark.parametrize("duplicate", [False, True])
def test_delivery_becomes_a_record(duplicate: bool) -> None:
    recorder = new_recorder()
    members = deliver(recorder, duplicate=duplicate)
    common = {"run": "spring", "peer": ME, "boot": 7, "number": 0, "at": (T0_NS + 2_000_000) / 1e9}
    assert taken_records(recorder) == [Delivery(**common, **members)]


def test_delivery_is_no_duplicate_by_default() -> None:
    recorder = new_recorder()
    recorder.delivered(OTHER, 3, 4, "a", "direct", OTHER, T0_NS, T0_NS, 0, 32, 1, 0)
    assert [record.duplicate for record in taken_records(recorder) if isinstance(record, Delivery)] == [False]


def test_sample_gets_its_number_and_the_unrecorded_count(make_sample: Callable[..., Sample]) -> None:
    recorder = new_recorder()
    deliver(recorder)
    recorder.unrecorded = 5
    recorder.sample(make_sample())
    assert taken_records(recorder)[1] == make_sample(number=1, unrecorded=5)


def test_deliveries_off_records_only_samples(make_sample: Callable[..., Sample]) -> None:
    recorder = new_recorder(deliveries="off")
    deliver(recorder)
    recorder.end_interval(T0_NS / 1e9 + 1)
    recorder.sample(make_sample())
    assert taken_records(recorder) == [make_sample(number=0, unrecorded=0)]


def test_numbers_continue_after_a_batch_is_taken() -> None:
    recorder = new_recorder()
    numbers = []
    for _ in range(3):
        deliver(recorder)
        deliver(recorder)
        numbers += [record.number for record in taken_records(recorder)]
        assert recorder.take() == b""
        assert recorder.waiting_bytes == 0
    assert numbers == list(range(6))


@settings(deadline=None)
@given(st.lists(st.integers(0, MAX_BATCH_BYTES + 1000), max_size=40))
def test_batches_are_bounded_and_lose_nothing(sizes: list[int]) -> None:
    recorder = new_recorder()
    for size in sizes:
        deliver(recorder, topic="t" * size)
    assert recorder.waiting_bytes > MAX_BATCH_BYTES or not recorder.full
    found = batches(recorder)
    for batch in found:
        assert batch.endswith(b"\n")
        assert len(batch) <= MAX_BATCH_BYTES or batch.count(b"\n") == 1
    records = [decode(line) for batch in found for line in batch.splitlines()]
    assert [record.number for record in records] == list(range(len(sizes)))
    assert [len(record.topic) for record in records if isinstance(record, Delivery)] == sizes
    for first, second in pairwise(found):
        line = second.split(b"\n", 1)[0]
        assert len(first) + len(line) + 1 > MAX_BATCH_BYTES, "the first batch had space for this line"


def test_recorder_is_full_when_a_batch_is_complete() -> None:
    recorder = new_recorder()
    waiting = 0
    while not recorder.full:
        assert recorder.waiting_bytes == waiting < MAX_BATCH_BYTES
        deliver(recorder)
        waiting = recorder.waiting_bytes
    first = recorder.take()
    assert not recorder.full
    assert len(first) + recorder.waiting_bytes == waiting
    assert recorder.take().count(b"\n") == 1


def test_batch_may_have_exactly_the_maximum_size() -> None:
    recorder = new_recorder()
    deliver(recorder, topic="")
    rest = MAX_BATCH_BYTES - 2 * recorder.waiting_bytes
    deliver(recorder, topic="t" * rest)
    deliver(recorder, topic="")
    deliver(recorder, topic="t" * rest)
    deliver(recorder, topic="")
    deliver(recorder, topic="t" * (rest + 1))
    found = batches(recorder)
    assert [batch.count(b"\n") for batch in found] == [2, 2, 1, 1]
    assert len(found[0]) == len(found[1]) == MAX_BATCH_BYTES


def test_line_may_have_exactly_the_maximum_length() -> None:
    recorder = new_recorder()
    deliver(recorder, topic="")
    rest = MAX_LINE_BYTES - (len(recorder.take()) - 1)
    deliver(recorder, topic="t" * rest)
    assert len(recorder.take()) == MAX_LINE_BYTES + 1
    deliver(recorder, topic="t" * (rest + 1))
    assert (recorder.take(), recorder.unrecorded) == (b"", 1)


def test_record_beyond_the_buffer_is_counted_and_leaves_no_gap() -> None:
    recorder = new_recorder()
    while recorder.waiting_bytes < MAX_WAITING_BYTES:
        deliver(recorder, topic="t" * 10_000)
    kept = recorder.waiting_bytes
    assert kept < MAX_WAITING_BYTES + 11_000
    for _ in range(3):
        deliver(recorder)
    assert (recorder.unrecorded, recorder.waiting_bytes) == (3, kept)
    before = taken_records(recorder)
    deliver(recorder)
    after = taken_records(recorder)
    assert [record.number for record in before + after] == list(range(len(before) + 1))
    assert recorder.unrecorded == 3


def test_record_with_a_too_long_line_is_dropped(make_sample: Callable[..., Sample]) -> None:
    recorder = new_recorder()
    links = [LinkTraffic(peer=OTHER, bytes_in=0, bytes_out=0, queued_bytes=0)] * (MAX_LINE_BYTES // 60)
    recorder.sample(make_sample(links=links))
    assert (recorder.unrecorded, recorder.waiting_bytes, recorder.take()) == (1, 0, b"")
    deliver(recorder)
    assert [record.number for record in taken_records(recorder)] == [0]


def test_latencies_of_an_interval_are_one_record() -> None:
    recorder = new_recorder(deliveries="histogram", interval_s=10)
    took_ns = [1_000_000, 5_000_000, -3_000_000]
    for took in took_ns:
        deliver(recorder, took)
    assert recorder.take() == b"", "an interval is recorded at its end"
    end = T0_NS / 1e9 + 12.5
    recorder.end_interval(end)
    seconds = [took / 1e9 for took in took_ns]
    assert taken_records(recorder) == [
        Latencies(
            run="spring",
            peer=ME,
            boot=7,
            number=0,
            at=end,
            interval_s=12.5,
            topic="hall/7/door",
            dispatching="guided",
            hops=1,
            count=3,
            sum_s=sum(seconds),
            min_s=-0.003,
            max_s=0.005,
            bytes=96,
            buckets=Counter(map(bucket_of, seconds)),
        )
    ]
    recorder.end_interval(end + 1)
    assert taken_records(recorder) == [], "nothing arrived"
    deliver(recorder)
    recorder.end_interval(end + 3)
    (second,) = taken_records(recorder)
    assert isinstance(second, Latencies)
    assert (second.interval_s, second.count, second.number) == (2.0, 1, 1)


def test_clock_set_back_gives_an_interval_of_zero() -> None:
    recorder = new_recorder(deliveries="histogram")
    deliver(recorder)
    recorder.end_interval(T0_NS / 1e9 - 60)
    assert [record.interval_s for record in taken_records(recorder) if isinstance(record, Latencies)] == [0]


def test_latencies_exclude_duplicates_and_messages_without_clients() -> None:
    recorder = new_recorder(deliveries="histogram")
    deliver(recorder, clients=0)
    deliver(recorder, duplicate=True)
    recorder.end_interval(T0_NS / 1e9 + 1)
    assert taken_records(recorder) == []


def test_topic_dispatching_and_hops_have_separate_series() -> None:
    recorder = new_recorder(deliveries="histogram")
    series = [(topic, way, hops) for topic in ("a", "b") for way in ("direct", "guided") for hops in (0, 1, 2)]
    for times, (topic, way, hops) in enumerate(series, 1):
        for _ in range(times):
            deliver(recorder, topic=topic, dispatching=way, hops=hops)
    recorder.end_interval(T0_NS / 1e9 + 1)
    found = [
        (record.topic, record.dispatching, record.hops, record.count)
        for record in taken_records(recorder)
        if isinstance(record, Latencies)
    ]
    assert found == [(*key, times) for times, key in enumerate(series, 1)]


def test_topics_beyond_the_limit_share_a_series_until_the_interval_ends() -> None:
    recorder = new_recorder(deliveries="histogram")
    for number in range(MAX_SERIES + 10):
        deliver(recorder, topic=f"t/{number}", hops=1 + number % 2)
    deliver(recorder, topic="t/0", hops=1)
    recorder.end_interval(T0_NS / 1e9 + 1)
    counts = {
        (record.topic, record.hops): record.count for record in taken_records(recorder) if isinstance(record, Latencies)
    }
    expected = {(f"t/{number}", 1 + number % 2): 1 for number in range(MAX_SERIES)}
    assert counts == expected | {("t/0", 1): 2, ("", 1): 5, ("", 2): 5}
    deliver(recorder, topic="t/1005")
    recorder.end_interval(T0_NS / 1e9 + 2)
    assert [record.topic for record in taken_records(recorder) if isinstance(record, Latencies)] == ["t/1005"]
