"""Inboxes, faults and percentiles."""

from __future__ import annotations

import asyncio
from math import isnan

import pytest

from ringmq.experiments.load.tally import SHOWN, Faults, Inbox, percentile, percentile_line
from ringmq.mqtt_front.codec.packets import Publish


def message(payload: bytes) -> Publish:
    return Publish("a", memoryview(payload))


async def test_inbox_waits_until_all_messages_have_come() -> None:
    inbox = Inbox()
    inbox(message(b"1"))
    waiting = asyncio.create_task(inbox.until([b"1", b"2", b"3"], 60.0))
    await asyncio.sleep(0)
    for payload in (b"2", b"other", b"3"):
        assert not waiting.done()
        inbox(message(payload))
    assert await asyncio.wait_for(waiting, 10.0) == set()


async def test_inbox_returns_missing_messages() -> None:
    inbox = Inbox()
    inbox(message(b"1"))
    assert await inbox.until([b"1"], 0.0) == set()
    assert await inbox.until([b"1", b"2"], 0.01) == {b"2"}
    inbox(message(b"2"))
    assert await inbox.until([b"2"], 0.0) == set()


def test_inbox_counts_duplicates() -> None:
    inbox = Inbox()
    for payload in (b"1", b"2", b"1"):
        inbox(message(payload))
    assert inbox.repeated == [b"1"]
    assert inbox.times[b"1"] == 2


def test_all_faults_are_counted_and_the_first_described() -> None:
    faults = Faults("missed", "twice")
    assert not faults
    assert str(faults) == "0 missed, 0 twice"
    for number in range(SHOWN + 5):
        faults.add("missed", str(number))
    faults.add("strange", "x")
    assert faults
    assert str(faults) == f"{SHOWN + 5} missed, 0 twice, 1 strange"
    assert faults.examples == [*(f"missed: {number}" for number in range(SHOWN)), "strange: x"]


def test_absorbed_faults_are_summed() -> None:
    all_faults, first, second = Faults(), Faults("missed"), Faults("missed", "twice")
    first.add("missed", "a")
    second.add("missed", "b")
    all_faults.absorb(first)
    all_faults.absorb(second)
    assert all_faults.counts == {"missed": 2, "twice": 0}
    assert all_faults.examples == ["missed: a", "missed: b"]


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 51), (99, 100), (100, 100)])
def test_percentile_of_sorted_values(percent: float, value: float) -> None:
    assert percentile(range(1, 101), percent) == value


def test_percentile_without_values_is_nan() -> None:
    assert isnan(percentile([], 50))
    assert percentile_line("x", []).split() == ["x", "none"]


def test_percentile_line_is_in_milliseconds() -> None:
    assert percentile_line("x", [0.003, 0.001, 0.002]).split() == [
        *("x", "3", "times"),
        *("p50", "2.0", "p90", "3.0", "p99", "3.0", "max", "3.0", "ms"),
    ]
