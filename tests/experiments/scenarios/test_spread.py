"""Messages to all subscribers, in small rings."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.broadcast_bounds import least_depth, least_time_s
from ringmq.experiments.scenarios.spread import CHOICES, Setting, spread
from ringmq.experiments.scenarios.spread_figures import SpreadFigures
from ringmq.peer.engines.scribe.config import SCRIBE


def play(nodes: int, subscribers: int, *choices: Choice, **more: float) -> dict[str, SpreadFigures]:
    setting = Setting(nodes=nodes, subscribers=subscribers, **more)  # type: ignore[arg-type]
    return {row.dispatch: row for row in spread(setting, choices or CHOICES)}


def test_figures_of_all_ways_of_dispatching() -> None:
    rows = play(80, 80, topics=2)
    assert list(rows) == ["direct", "guided 5", "guided 10", "guided 25", "guided 64", "scribe"]
    direct = rows["direct"]
    assert (direct.most_sends, direct.senders, direct.depth) == (79, 1, 1)
    assert direct.ratio == pytest.approx(1.0)
    assert direct.sent_bytes == direct.most_bytes / 79 > 100
    for fanout in (5, 10, 25, 64):
        row = rows[f"guided {fanout}"]
        assert row.sends == 1.0
        assert row.relays == 0
        assert row.most_sends <= fanout
        assert row.depth == row.least_depth == least_depth(79, fanout)
        assert row.least_s == least_time_s(79, 30e-6, 0.05, fanout)
        assert 1.0 <= row.ratio <= 1.15
        assert row.busiest <= 4 * fanout
    scribe = rows["scribe"]
    assert 1.0 < scribe.sends < 1.1
    assert scribe.depth > 1
    assert scribe.ratio > 1.5


def test_peers_without_a_subscriber_relay_for_scribe_only() -> None:
    rows = play(150, 15, Choice("direct"), Choice("guided", 3), Choice(SCRIBE), topics=3)
    assert rows["direct"].sends == rows["guided 3"].sends == 1.0
    assert rows["direct"].relays == rows["guided 3"].relays == 0
    assert rows["scribe"].relays > 1
    assert rows["scribe"].sends > 1.1


def test_trees_of_different_topics_load_different_peers() -> None:
    few, many = (play(60, 60, Choice("guided", 5), topics=topics)["guided 5"] for topics in (1, 8))
    assert few.busiest == few.most_sends == 5
    assert many.busiest < 8 * 5 * 0.6, "other peers do the work for other topics"


def test_slow_uplink_makes_direct_slower_than_guided() -> None:
    rows = play(60, 60, Choice("direct"), Choice("guided", 4), topics=1, uplink_bits_per_s=100_000, body_bytes=1000)
    direct, guided = rows["direct"], rows["guided 4"]
    assert direct.time_s > 59 * 0.08
    assert guided.time_s < direct.time_s / 3
    assert guided.most_bytes > 4 * 1000, "each copy carries its part"


def test_the_same_seed_gives_the_same_figures() -> None:
    first, again, other_seed = (play(80, 80, Choice(SCRIBE), topics=2, seed=seed) for seed in (1, 1, 2))
    assert first == again != other_seed


def test_progress_is_reported_for_each_topic() -> None:
    reported: list[float] = []
    spread(Setting(nodes=10, subscribers=10, topics=2), (Choice("direct"), Choice(SCRIBE)), reported.append)
    assert reported == [0.25, 0.5, 0.75, 1.0]
