"""Tables formatted as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json

from ringmq.collector.jobs.tables.columns import BOXES, HEADS, LATENCIES, PER_PEER, RATES
from ringmq.collector.report.read_tables import Row, Tables
from ringmq.collector.report.tables import as_csv, as_json, as_lines


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    rows: list[Row] = [
        {"by": "ingest", "reason": "not JSON", "lines": 12345},
        {"by": "stream", "reason": "line too long", "lines": 1},
    ]
    assert list(as_lines({"dead": rows}, 20)) == [
        "Refused lines",
        "by      reason          lines",
        "ingest  not JSON       12,345",
        "stream  line too long       1",
    ]


def test_single_run_is_in_the_title() -> None:
    row: Row = {"run": "a", "messages": 1}
    assert next(as_lines({"stress": [row]}, 20)) == "Stress of peers and links (run a)"
    assert "run" not in list(as_lines({"stress": [row]}, 20))[1].split()
    assert list(as_lines({"stress": [row, {**row, "run": "b"}]}, 20))[1].split()[0] == "run"


def test_empty_tables_have_titles_and_heads() -> None:
    lines = "\n".join(as_lines({name: [] for name in HEADS}, 20))
    assert lines.count("no rows") == len(HEADS)
    for head in HEADS.values():
        assert head.title in lines


def test_terminal_omits_some_columns() -> None:
    heads = list(as_lines({"per_peer": []}, 20))[1].split()
    assert heads == [column.name for column in PER_PEER.columns if column.shown]
    assert "cpu_time" not in heads


def test_topics_with_the_most_messages_are_shown() -> None:
    rows: list[Row] = [{"run": "r", "by": "all", "count": 10}]
    rows += [{"run": "r", "by": "topic", "topic": f"t{number}", "count": number} for number in range(10)]
    lines = list(as_lines({LATENCIES.name: rows}, 3))
    assert [line.split()[2] for line in lines[2:-1]] == ["-", "t7", "t8", "t9"]
    assert lines[-1] == "7 more rows"


def test_steps_of_time_are_thinned_out_evenly_with_the_last() -> None:
    rows: list[Row] = [{"run": run, "dispatching": "direct", "time": time} for run in "ab" for time in range(10)]
    lines = list(as_lines({RATES.name: rows}, 4))
    assert [line.split()[0:1] + line.split()[2:3] for line in lines[2:-1]] == [
        [run, time] for run in "ab" for time in ("0", "3.00", "6.00", "9.00")
    ]
    assert lines[-1] == "12 more rows"


def test_csv_has_all_columns() -> None:
    rows: list[Row] = [{"run": 'a,"b', "outliers": [0.5, 2.0], "median": 3.0, "mean": 0.25}]
    found = list(csv.DictReader(io.StringIO(as_csv(BOXES, rows))))
    assert list(found[0]) == BOXES.names
    assert {name: found[0][name] for name in ("run", "outliers", "median", "mean", "unit")} == {
        "run": 'a,"b',
        "outliers": "0.5 2",
        "median": "3",
        "mean": "0.25",
        "unit": "",
    }


def test_json_has_all_columns_with_null_for_missing_values() -> None:
    tables: Tables = {"dead": [{"by": "x", "lines": 3.0}], "runs": []}
    assert json.loads(as_json(tables)) == {"dead": [{"by": "x", "reason": None, "lines": 3}], "runs": []}
    assert '"lines": 3' in as_json(tables)
