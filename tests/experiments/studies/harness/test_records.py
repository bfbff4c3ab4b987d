"""Landing the records of peers: only complete lines from the measured time."""

from __future__ import annotations

import json
from pathlib import Path

from ringmq.experiments.studies.harness.records import land


def line(at: float, number: int, **members: object) -> str:
    return json.dumps({"kind": "sample", "at": at, "number": number, **members}) + "\n"


def test_only_complete_records_of_the_measured_time_land(tmp_path: Path) -> None:
    file, data = tmp_path / "records", tmp_path / "data"
    sent = [int(at * 1e9) for at in (9.5, 10.5)]
    file.write_text(
        line(9.9, 0)
        + line(10.0, 1)
        + line(10.1, 2, sent_ns=sent[0])
        + line(20.1, 3, sent_ns=sent[1])
        + line(20.0, 4)
        + line(20.1, 5)
        + line(15.0, 6)[:-5]
    )
    assert land([file], data, "run", 10.0, 20.0) == 3
    (landed,) = (data / "landing").iterdir()
    assert landed.name == "run-0.jsonl"
    assert [json.loads(record)["number"] for record in landed.read_text().splitlines()] == [1, 3, 4]


def test_each_peer_has_a_landed_file_even_without_records(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    for file in (files[0], files[2]):
        file.write_text(line(1.0, 0))
    assert land(files, tmp_path, "one", 0.0, 2.0) == 2
    assert land(files, tmp_path, "two", 0.0, 2.0) == 2
    names = {file.name for file in (tmp_path / "landing").iterdir()}
    assert names == {f"{run}-{number}.jsonl" for run in ("one", "two") for number in range(3)}
