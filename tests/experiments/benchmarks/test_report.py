"""Figures as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.benchmarks.goals import Verdict
from ringmq.experiments.benchmarks.report import Report, as_figures, line, one_table, table

Make = Callable[..., Figures]


def test_table_has_a_line_for_each_server(figures: Make) -> None:
    found = Result([figures(egress_hz=hz) for hz in (9000, 10_000, 11_000)], False, [figures()])
    lines = table("qos0-1to10", {"ringmq": found, "mosquitto": Result(), "amqtt": Result([figures()], True)}).split(
        "\n"
    )
    assert lines[0] == "qos0-1to10"
    assert lines[2].split() == ["ringmq", "1000", "10000", "20%", "0.00%", "50%", "50%", "20000", "51.00", "100.00"]
    assert lines[3] == "mosquitto    never kept up"
    assert ">=10000" in lines[4]


def test_one_table_has_the_results_of_several_patterns(figures: Make) -> None:
    found = Result([figures(server_cpu=cpu) for cpu in (0.01, 0.02, 0.03)], False, [figures()])
    lines = one_table({"five-B": {"ringmq": found, "bridged": Result()}, "five-C": {"ringmq": found}}).split("\n")
    assert lines[0].split()[:3] == ["pattern", "servers", "ingress/s"]
    cells = ["1000", "10000", "0%", "0.00%", "2%", "50%", "2.00", "51.00", "100.00"]
    assert lines[1].split() == ["five-B", "ringmq", *cells]
    assert lines[2].split() == ["five-B", "bridged", "never", "kept", "up"]
    assert lines[3].split() == ["five-C", "ringmq", *cells]


def test_long_names_of_patterns_keep_the_columns(figures: Make) -> None:
    lines = one_table({"qos1-two-1to10-4096B": {"ringmq": Result([figures()])}, "one-A": {"ringmq": Result()}}).split(
        "\n"
    )
    assert [line.index("ringmq") for line in lines[1:]] == [lines[0].index("servers")] * 2


def test_line_shows_whether_the_server_keeps_up(figures: Make) -> None:
    assert "keeps up" in line(figures())
    assert "does not" in line(figures(egress_hz=1.0))


def test_figures_are_valid_json_without_nan(figures: Make) -> None:
    shown = json.loads(json.dumps(as_figures(Result([figures()], False, [figures(latencies_s=())])), allow_nan=False))
    assert shown["at_limit"][0]["latency_p50_s"] == 0.051
    assert shown["at_half"][0]["latency_p99_s"] is None


def test_output_with_json_is_only_json(figures: Make, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(as_json=True, verbose=True)
    report.measured("ringmq", figures())
    report.add_pattern("qos0-1to1", {"ringmq": Result([figures()])})
    report.add_patterns({"five-B": {"ringmq": Result([figures()])}, "five-C": {}})
    report.add("idle", {"clients": 3})
    report.add_table("against", {"ratio": 1.5}, "a table")
    report.detail("a detail")
    report.judge([Verdict("a", 1.0, 2.0, at_least=True)])
    report.end()
    output = capsys.readouterr()
    shown = json.loads(output.out)
    assert set(shown) == {"qos0-1to1", "five-B", "five-C", "idle", "against", "goals"}
    assert shown["against"] == {"ratio": 1.5}
    assert "a table\na detail\n" in output.err
    assert shown["goals"][0]["reached"] is False
    assert "MISSED: a" in output.err


def test_tables_are_the_output_without_json(figures: Make, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(as_json=False, verbose=False)
    report.measured("ringmq", figures())
    report.detail("a detail")
    report.add_pattern("qos0-1to1", {"ringmq": Result([figures(server_waited=0.5)])})
    report.end()
    output = capsys.readouterr()
    assert output.out.startswith("qos0-1to1")
    assert output.err == "other processes had 50% of the cores: only the ratios are meaningful\n"
