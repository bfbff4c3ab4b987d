"""Meetings with retained messages: each subscriber gets a message once in a ring, and every fault is counted."""

from __future__ import annotations

import os

import pytest

from ringmq.experiments.benchmarks import retained
from ringmq.experiments.benchmarks.retained import SUBSCRIBERS, FormInbox, RetainedMethod, check, draw
from ringmq.experiments.load.client import Client
from ringmq.experiments.processes.peers import Ring
from ringmq.experiments.processes.servers import running
from ringmq.mqtt_front.codec.packets import Publish
from ringmq.mqtt_front.matching.topics import matches


async def test_each_subscriber_of_a_ring_gets_the_message_once(ring: Ring) -> None:
    figures = await check([peer.mqtt for peer in ring.peers], RetainedMethod(meetings=40, at_once=4, seed=1))
    assert not figures.faults, figures.faults.examples
    assert figures.meetings == figures.forms.total() == len(figures.subacks_s) == 40
    assert set(figures.forms) <= {"live", "retained"}


async def test_subscribers_of_an_unconnected_server_miss_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained, "ARRIVE_S", 0.05)
    core = min(os.sched_getaffinity(0))
    with running("ringmq", core) as first, running("ringmq", core) as second:
        figures = await check([first.address, second.address], RetainedMethod(meetings=30, at_once=2, seed=1))
    assert 0 < figures.faults.counts["missed"] < 30
    assert figures.forms["never"] == figures.faults.counts["missed"]


async def test_duplicates_are_a_fault(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Client.publish
    monkeypatch.setattr(Client, "publish", lambda *a, **k: (once(*a, **k), once(*a, **k)))
    figures = await check([peer.mqtt for peer in ring.peers], RetainedMethod(meetings=40, at_once=4, seed=1))
    assert figures.faults.counts["twice"] > 0
    assert any("live and live" in form or "live and retained" in form for form in figures.forms)


def test_inbox_records_the_forms_of_its_own_message() -> None:
    inbox = FormInbox(b"1")
    for payload, retain in ((b"1", False), (b"2", True), (b"1", True)):
        inbox(Publish("a", payload, retain=retain))
    assert inbox.forms == ["live", "retained"]
    assert inbox.repeated == [b"1"]


def test_rounds_are_drawn_by_their_seed_and_their_filters_match() -> None:
    rounds = [draw(number, 13, seed=1) for number in range(200)]
    assert rounds == [draw(number, 13, seed=1) for number in range(200)]
    assert rounds[0] != draw(0, 13, seed=2)
    meetings = [(drawn.topic, meeting) for drawn in rounds for meeting in drawn.meetings]
    assert len(meetings) == 200 * SUBSCRIBERS
    assert all(matches(meeting.filter, topic) for topic, meeting in meetings)
    assert len({meeting.after_s > 0 for _, meeting in meetings}) == 2
    assert {drawn.qos for drawn in rounds} == {meeting.qos for _, meeting in meetings} == {0, 1}
