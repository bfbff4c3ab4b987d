"""Meetings with retained messages: each is seen once in a ring, not at all or twice where something is wrong."""

from __future__ import annotations

import os

import pytest

from ringmq.experiments.benchmarks import retained
from ringmq.experiments.benchmarks.retained import SUBSCRIBERS, Looks, Method, check, draw
from ringmq.experiments.load.client import Client
from ringmq.experiments.processes.peers import Ring
from ringmq.experiments.processes.servers import running
from ringmq.mqtt_front.codec.packets import Publish
from ringmq.mqtt_front.matching.topics import matches


async def test_each_message_is_seen_once(ring: Ring) -> None:
    figures = await check([peer.mqtt for peer in ring.peers], Method(meetings=40, at_once=4, seed=1))
    assert not figures.faults, figures.faults.examples
    assert figures.meetings == figures.as_what.total() == len(figures.subacks_s) == 40
    assert set(figures.as_what) <= {"live", "retained"}


async def test_strangers_miss_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "ARRIVE_S", 0.05)
    core = min(os.sched_getaffinity(0))
    with running("ringmq", core) as one, running("ringmq", core) as other:
        figures = await check([one.address, other.address], Method(meetings=30, at_once=2, seed=1))
    assert 0 < figures.faults.counts["missed"] < 30
    assert figures.as_what["never"] == figures.faults.counts["missed"]


async def test_what_comes_twice_is_told(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Client.publish
    monkeypatch.setattr(Client, "publish", lambda *a, **k: (once(*a, **k), once(*a, **k)))
    figures = await check([peer.mqtt for peer in ring.peers], Method(meetings=40, at_once=4, seed=1))
    assert figures.faults.counts["twice"] > 0
    assert any("live and live" in what or "live and retained" in what for what in figures.as_what)


def test_an_inbox_notes_the_form_of_its_own_message() -> None:
    looks = Looks(b"1")
    for payload, retain in ((b"1", False), (b"2", True), (b"1", True)):
        looks(Publish("a", payload, retain=retain))
    assert looks.forms == ["live", "retained"]
    assert looks.repeated == [b"1"]


def test_rounds_are_drawn_by_their_seed_and_their_filters_match() -> None:
    rounds = [draw(number, 13, seed=1) for number in range(200)]
    assert rounds == [draw(number, 13, seed=1) for number in range(200)]
    assert rounds[0] != draw(0, 13, seed=2)
    meetings = [(one.topic, meeting) for one in rounds for meeting in one.meetings]
    assert len(meetings) == 200 * SUBSCRIBERS
    assert all(matches(meeting.filter, topic) for topic, meeting in meetings)
    assert len({meeting.after_s > 0 for _, meeting in meetings}) == 2
    assert {one.qos for one in rounds} == {meeting.qos for _, meeting in meetings} == {0, 1}
