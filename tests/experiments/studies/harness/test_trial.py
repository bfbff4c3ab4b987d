"""One small trial with real peers, which a kill is a part of: all counts agree, and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringmq.experiments.studies.harness import rings, trial
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.plan import Kill, ids
from ringmq.experiments.studies.harness.trial import run, too_slow
from tests.experiments.studies.making import plan, steady
from tests.experiments.studies.making import trial as made_up


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs tests may run several at a time."""
    monkeypatch.setattr("ringmq.experiments.processes.servers.READY_S", 60.0)


def test_a_small_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "INTERVAL_S", 0.2)
    pids: list[int] = []
    play = trial._play

    async def remember(*arguments: object) -> object:
        pids.extend(peer.pid for peer in arguments[1].peers)  # type: ignore[attr-defined]
        return await play(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(trial, "_play", remember)
    made = plan(
        run="small",
        publishers=(0,),
        subscribers=(0, 1, 2),
        rate_hz=20.0,
        measured_s=1.0,
        kill=Kill(at_s=0.5, victims=(2,)),
    )
    found = run(made, tmp_path)
    assert found.counts.published == made.messages == 40
    assert found.killed_s is not None
    assert found.killed_s >= 0.5
    by_place = {one.place: len(set(one.numbers)) for one in found.traffic.arrivals}
    assert by_place[0] == by_place[1] == 40
    assert by_place[2] < 40
    records = [json.loads(line) for file in (tmp_path / "landing").iterdir() for line in file.read_text().splitlines()]
    assert len(records) == found.records
    assert {record["run"] for record in records} == {"small"}
    live = [point.hex() for point in ids(made.seed, 2)]
    told = {record["peer"]: record["mqtt"]["messages_out"] for record in records if record["kind"] == "sample"}
    assert [told[peer] for peer in live] == [40, 40]
    reached = [record for record in records if record["kind"] == "delivery" and record["clients"]]
    assert len({(record["peer"], record["sequence"]) for record in reached}) >= 80
    assert len(pids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_ring_that_does_not_come_about_is_told(tmp_path: Path) -> None:
    made = plan(run="none", delay="no delay")
    with pytest.raises(ExperimentError, match=r"none: peer 1 .* does not accept connections .*: ringmq: --delay"):
        run(made, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_said_of_a_machine_that_is_too_small() -> None:
    one = made_up(told=steady(20, 0.05, [0], [1, 2], 0.4))
    assert not one.counts.keeps_up
    assert too_slow(one) == "this machine is too small for 40 deliveries/s: one in a hundred took 400 ms or more"


def test_latencies_are_without_those_of_the_warming_up() -> None:
    told = steady(20, 0.1, [0], [1], 0.01)
    told.arrivals[0].times[0] = 5.0
    assert made_up(plan(warm_s=1.0), told).counts.p99_s == pytest.approx(0.01)
    assert made_up(plan(warm_s=0.0), told).counts.p99_s == pytest.approx(5.0)
