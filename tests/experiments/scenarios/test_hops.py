"""Figures of hops: their distribution, their ends, and the comparison with Pastry."""

from collections import Counter

import pytest

from ringmq.experiments.scenarios.hops import FIGURE_5, _figures, hops_as_in_pastry, hops_filled, hops_joined
from ringmq.experiments.simulator import filled


def test_figure_5_is_a_distribution() -> None:
    assert sum(FIGURE_5) == pytest.approx(1.0, abs=0.001)
    assert sum(hops * share for hops, share in enumerate(FIGURE_5)) == pytest.approx(4.0, abs=0.1)


@pytest.mark.parametrize("leaf_set", [8, 32])
def test_lookups_over_perfect_tables_end_at_the_owner(leaf_set: int) -> None:
    reported: list[float] = []
    figures = hops_filled(1000, 1, leaf_set // 2, 400, reported.append)
    assert (figures.nodes, figures.leaf_set, figures.lookups, figures.wrong) == (1000, leaf_set, 400, 0)
    assert sum(figures.shares) == pytest.approx(1.0, abs=0.001)
    assert sum(hops * share for hops, share in enumerate(figures.shares)) == pytest.approx(figures.mean, abs=0.01)
    assert 2.0 < figures.mean < 2.9, "log16(1000) is 2.5"
    assert figures.unlike_figure_5 is None
    assert reported == sorted(reported)
    assert figures == hops_filled(1000, 1, leaf_set // 2, 400)
    assert figures != hops_filled(1000, 2, leaf_set // 2, 400)


def test_lookups_over_pastrys_tables_take_more_hops() -> None:
    figures = hops_as_in_pastry(1000, 1, 400)
    assert (figures.leaf_set, figures.wrong) == (16, 0)
    assert hops_filled(1000, 1, 16, 400).mean < figures.mean < 3.0


def test_lookups_over_tables_of_joined_peers_end_at_the_owner() -> None:
    reported: list[float] = []
    figures = hops_joined(60, 1, 4, 300, reported.append)
    assert figures.wrong == 0
    assert figures.mean < 1.25 * hops_filled(60, 1, 4, 300).mean
    assert reported == sorted(reported)


def test_lookups_with_a_wrong_end_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "next_hop", lambda *_: None)
    figures = hops_filled(100, 1, 16, 200)
    assert figures.wrong > 190
    assert figures.mean == 0.0


def test_difference_from_figure_5_is_the_largest_of_all_shares() -> None:
    counts = Counter({2: 2, 3: 16, 4: 62, 5: 18, 6: 2})
    assert _figures("as in Pastry", 100_000, 16, counts, 0).unlike_figure_5 == pytest.approx(0.0249)
    assert _figures("filled", 100_000, 32, counts, 0).unlike_figure_5 is None
