"""One small trial with real peers and a kill: all counts agree, and no process or file is left."""

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
    """Wait longer for the peers, since other tests may run at the same time."""
    monkeypatch.setattr("ringmq.experiments.processes.servers.READY_S", 60.0)


def test_counts_of_a_small_trial_agree_with_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    received = {arrivals.position: len(set(arrivals.numbers)) for arrivals in found.traffic.arrivals}
    assert received[0] == received[1] == 40
    assert received[2] < 40
    records = [json.loads(line) for file in (tmp_path / "landing").iterdir() for line in file.read_text().splitlines()]
    assert len(records) == found.records
    assert {record["run"] for record in records} == {"small"}
    live = [peer_id.hex() for peer_id in ids(made.seed, 2)]
    sent = {record["peer"]: record["mqtt"]["messages_out"] for record in records if record["kind"] == "sample"}
    assert [sent[peer] for peer in live] == [40, 40]
    reached = [record for record in records if record["kind"] == "delivery" and record["clients"]]
    assert len({(record["peer"], record["sequence"]) for record in reached}) >= 80
    assert len(pids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_ring_that_cannot_be_formed_is_an_error(tmp_path: Path) -> None:
    made = plan(run="none", delay="no delay")
    with pytest.raises(ExperimentError, match=r"none: peer 1 .* does not accept connections .*: ringmq: --delay"):
        run(made, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_remark_about_a_slow_machine_has_its_rate_and_latency() -> None:
    slow = made_up(observed=steady(20, 0.05, [0], [1, 2], 0.4))
    assert not slow.counts.keeps_up
    assert too_slow(slow) == "this machine is too small for 40 deliveries/s: one in a hundred took 400 ms or more"


def test_latencies_of_the_warm_up_do_not_count() -> None:
    observed = steady(20, 0.1, [0], [1], 0.01)
    observed.arrivals[0].times[0] = 5.0
    assert made_up(plan(warm_s=1.0), observed).counts.p99_s == pytest.approx(0.01)
    assert made_up(plan(warm_s=0.0), observed).counts.p99_s == pytest.approx(5.0)
