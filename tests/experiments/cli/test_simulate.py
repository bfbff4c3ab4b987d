"""The commands: figures that can be parsed, and an exit status that shows whether all conditions held."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.cli import simulate, simulate_report
from ringmq.experiments.scenarios.join import StormFigures
from ringmq.experiments.simulator.checks import InvariantBrokenError

SMALL = {
    "hops": ["--nodes", "300", "--lookups", "100"],
    "join": ["--nodes", "20", "--storms", "0"],
    "fail": ["--nodes", "40", "--lookups", "50"],
    "split": ["--nodes", "20", "--apart", "10"],
    "churn": ["--nodes", "20", "--hours", "0.01", "--lan-hours", "0.01", "--median", "60"],
    "pubsub": ["--nodes", "8", "--seconds", "5"],
    "costs": ["--nodes", "3", "--topics", "1", "--count", "1"],
    "spread": ["--nodes", "40", "--topics", "1"],
}


def run(command: str, *more: str) -> Result:
    return CliRunner().invoke(simulate.simulate, [command, *SMALL[command], *more])


def figures_of(result: Result) -> dict[str, Any]:
    figures = json.loads(result.stdout)
    assert isinstance(figures, dict)
    return figures


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("hops", ["tables as in Pastry, leaf set 16", "tables filled, leaf set 32"]),
        ("join", ["20 at once"]),
        ("fail", ["30% of 40 die at once", "10% dead and unrepaired"]),
        ("split", ["20 peers, apart for 10 s"]),
        ("pubsub", ["1 runs of 8 peers"]),
        ("costs", ["3 peers"]),
        ("spread", ["setting", "spread"]),
        ("churn", [f"{name} lost in bursts" for name in ("wan, 0.01 h, 0%", "wan, 0.01 h, 5%", "lan, 0.01 h, 0%")]),
    ],
)
def test_json_output_has_the_figures_of_all_parts(command: str, parts: list[str]) -> None:
    result = run(command, "--json")
    assert result.exit_code == 0, result.output
    figures = figures_of(result)
    assert list(figures) == [*parts, "memory_mb", "broken"]
    assert figures["broken"] == []
    assert figures["memory_mb"] > 10
    assert all(figures[part] for part in parts)
    assert result.stderr == "", "no progress bar beside JSON"


def test_table_output_has_a_line_for_each_figure() -> None:
    result = run("hops", "--leaf-set", "8")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "tables as in Pastry, leaf set 16"
    assert "tables filled, leaf set 8" in lines
    assert any(line.split() == ["wrong", "0"] for line in lines)
    assert any(line.split() == ["unlike_figure_5", "-"] for line in lines)
    assert lines[-1].startswith("memory: ")


def test_joined_tables_are_compared_with_perfect_ones() -> None:
    figures = figures_of(run("hops", "--nodes", "40", "--joined", "--json"))
    filled, joined = figures["tables filled, leaf set 32"], figures["tables joined, leaf set 32"]
    ratio = figures["joined against filled"]["mean_ratio"]
    assert ratio == pytest.approx(joined["mean"] / filled["mean"], abs=0.001)


def test_the_same_seed_gives_the_same_figures() -> None:
    runs = [figures_of(run("join", "--json", "--seed", seed)) for seed in ("1", "1", "2")]
    first, again, another = (
        {key: value for key, value in figures["20 at once"].items() if key not in ("events_per_s", "seed")}
        for figures in runs
    )
    assert first == again != another


def test_figures_of_storms_are_summed() -> None:
    result = run("join", "--storms", "3", "--json", "--seed", "5")
    assert result.exit_code == 0
    storms = figures_of(result)["3 storms"]
    assert (storms["seeds"], storms["one_ring"], storms["joins"]) == (3, 3, 150)


class Pool:
    """A pool without processes, so that patches of this process apply to its work."""

    def __init__(self, workers: int | None) -> None: ...
    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None: ...
    def map(self, work: Any, items: Any) -> Any:
        return map(work, items)


def storm(seed: int, *, one_ring: bool = True, faults: int = 0) -> StormFigures:
    return StormFigures(seed, 50, 1, 1, 1, one_ring, faults, 0, 9)


@pytest.mark.parametrize(
    ("broken", "reported"),
    [(storm(8, one_ring=False), "seed 8"), (storm(8, faults=1), "seed 8"), (storm(8), None)],
)
def test_storm_without_a_single_ring_fails_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, broken: StormFigures, reported: str | None
) -> None:
    monkeypatch.setattr(simulate_report, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(simulate, "join_storm", lambda seed: broken if seed == 8 else storm(seed))
    result = run("join", "--storms", "4", "--seed", "6", "--json")
    assert result.exit_code == (1 if reported else 0)
    assert [reported in text for text in figures_of(result)["broken"] if reported] == ([True] if reported else [])
    assert figures_of(result)["4 storms"]["one_ring"] == (3 if reported else 4)


def test_storm_that_breaks_an_invariant_is_reported_with_its_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaking(seed: int) -> StormFigures:
        if seed != 7:
            return storm(seed)
        error = InvariantBrokenError("two owners: one and other")
        error.add_note("seed 7, at 1.5 s")
        raise error

    monkeypatch.setattr(simulate_report, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(simulate, "join_storm", breaking)
    result = run("join", "--storms", "2", "--seed", "6")
    assert result.exit_code == 1
    assert "broken: two owners: one and other\nseed 7, at 1.5 s" in result.stderr
    assert "one_ring               1" in result.stdout


@pytest.mark.parametrize(
    ("command", "scenario", "change", "reported"),
    [
        ("hops", "hops_filled", {"wrong": 3}, "3 lookups ended at a wrong peer"),
        ("hops", "hops_as_in_pastry", {"wrong": 2}, "2 lookups ended at a wrong peer"),
        ("join", "join_at_once", {"one_ring_after_s": None}, "not form a single ring"),
        ("join", "join_at_once", {"faults": 1}, "not form a single ring"),
        ("fail", "fail_at_once", {"one_ring_after_s": None}, "one ring again"),
        ("fail", "fail_at_once", {"lookups.lost": 4}, "4 lookups were lost"),
        ("fail", "detours", {"wrong": 5}, "5 lookups ended at a wrong peer"),
        ("split", "split_and_heal", {"one_ring_after_s": None}, "did not become one ring"),
        ("split", "split_and_heal", {"lookups_after.lost": 1}, "1 lookups were lost"),
        ("split", "split_and_heal", {"lookups_after.wrong": 2}, "2 wrong"),
        ("churn", "churn", {"lookups.wrong": 6}, "6 lookups were delivered to a wrong peer"),
        ("churn", "churn", {"lookups.lost": 7}, "7 lookups were lost"),
    ],
)
def test_broken_condition_ends_with_status_1(
    monkeypatch: pytest.MonkeyPatch, command: str, scenario: str, change: dict[str, object], reported: str
) -> None:
    real = getattr(simulate, scenario)

    def broken(*arguments: Any, **named: Any) -> Any:
        figures = real(*arguments, **named)
        for field, value in change.items():
            outer, _, inner = field.partition(".")
            new = replace(getattr(figures, outer), **{inner: value}) if inner else value
            figures = replace(figures, **{outer: new})
        return figures

    monkeypatch.setattr(simulate, scenario, broken)
    result = run(command, "--json")
    assert result.exit_code == 1
    assert reported in figures_of(result)["broken"][0]


def test_lookups_lost_under_loss_break_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    real = simulate.churn

    def lossy(*arguments: Any, **named: Any) -> Any:
        figures = real(*arguments, **named)
        return replace(figures, lookups=replace(figures.lookups, lost=1)) if figures.burst_loss else figures

    monkeypatch.setattr(simulate, "churn", lossy)
    assert run("churn", "--json").exit_code == 0


def test_churn_run_of_zero_hours_is_left_out() -> None:
    figures = figures_of(run("churn", "--hours", "0", "--json"))
    assert list(figures) == ["lan, 0.01 h, 0% lost in bursts", "memory_mb", "broken"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["hops", "--nodes", "1"],
        ["hops", "--nodes", "2000001"],
        ["hops", "--lookups", "0"],
        ["hops", "--leaf-set", "3"],
        ["fail", "--fraction", "0.95"],
        ["split", "--timing", "mars"],
        ["spread", "--uplink-mbps", "0"],
    ],
)
def test_option_outside_its_range_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(simulate.simulate, arguments)
    assert result.exit_code == 2
    assert arguments[1] in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["fail", "--lookups", "0", "--nodes", "10"],
        ["join", "--storms", "-1", "--nodes", "2"],
        ["split", "--apart", "-1", "--nodes", "4"],
        ["churn", "--hours", "-1", "--lan-hours", "0", "--nodes", "4"],
        ["churn", "--median", "0", "--hours", "0.001", "--lan-hours", "0", "--nodes", "4"],
        ["churn", "--loss", "1.0", "--hours", "0.001", "--lan-hours", "0", "--nodes", "4"],
    ],
)
def test_option_without_a_meaningful_value_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(simulate.simulate, arguments)
    assert result.exit_code == 2
    assert arguments[1] in result.stderr


def test_spread_table_has_a_row_for_each_way_of_dispatching() -> None:
    result = run("spread", "--subscribers", "30")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("dispatch "))
    assert [line.split()[0] for line in lines[head + 1 : head + 7]] == ["direct", *["guided"] * 4, "scribe"]
    assert len({len(line) for line in lines[head : head + 7]}) == 1


def test_tree_that_is_too_deep_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    real = simulate.spread
    monkeypatch.setattr(simulate, "spread", lambda *a, **named: [replace(row, depth=9) for row in real(*a, **named)])
    result = run("spread", "--json")
    assert result.exit_code == 1
    assert [text.split(":")[0] for text in figures_of(result)["broken"]] == [
        "direct", "guided 5", "guided 10", "guided 25", "guided 64",
    ]  # fmt: skip


def test_message_that_does_not_arrive_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> Any:
        raise InvariantBrokenError("it came twice")

    monkeypatch.setattr(simulate, "spread", fail)
    result = run("spread", "--json")
    assert result.exit_code == 1
    assert figures_of(result)["broken"] == ["it came twice"]


def test_more_subscribers_than_peers_is_a_usage_error() -> None:
    result = run("spread", "--subscribers", "41")
    assert result.exit_code == 2
    assert "--subscribers" in result.stderr
