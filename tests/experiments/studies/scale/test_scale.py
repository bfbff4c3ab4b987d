"""Small rings, simulated and real, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, SCRIBE, guided
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.scale import scale
from ringmq.experiments.studies.scale.figures import CORES, REAL, SIMULATED
from tests.experiments.studies.making import ProgressLog


@pytest.fixture
def progress() -> ProgressLog:
    return ProgressLog()


@pytest.fixture
def request_(tmp_path: Path, progress: ProgressLog, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A request for a very small quick run, without Spark, and without real rings unless a test asks for one."""
    monkeypatch.setattr(scale, "QUICK_SIZES", (5, 20))
    monkeypatch.setattr(scale, "QUICK_REAL_SIZES", ())
    monkeypatch.setattr(scale, "QUICK_CORES_SIZE", 8)
    monkeypatch.setattr(scale.spark_reduce, "tables", _no_spark)
    return Request(tmp_path, True, 1, progress)


def _no_spark(data: Path) -> Any:
    raise CollectorError("no Java was found")


def sources(outcome: Outcome, table: str, name: str) -> set[object]:
    return {row[name] for row in outcome.tables[table]}


def test_all_sizes_and_approaches_are_simulated(request_: Request, progress: ProgressLog) -> None:
    outcome = scale.run(request_)
    simulated = [(row["nodes"], row["approach"]) for row in outcome.tables["scale"]]
    assert simulated == [(size, approach.label) for size in (5, 20) for approach in ALL]
    assert sources(outcome, "scale", "source") == {SIMULATED}
    assert sources(outcome, "agreement", "against") == {CORES}
    assert [row["source"] for row in outcome.tables["costs"]].count(CORES) == 3, "the others are Direct in a small ring"
    assert len(progress.done) == progress.steps
    assert outcome.plots[0].is_file()
    assert outcome.left_out[0].endswith("nodes: not simulated with --quick")


def test_simulation_agrees_with_whole_cores(request_: Request) -> None:
    real, cores = scale.run(request_).quantities[:2]
    assert real.ours is None
    assert cores.ours is not None
    assert cores.ours < 2.0


def test_the_same_seed_gives_the_same_figures(request_: Request) -> None:
    first, again = scale.run(request_), scale.run(request_)
    assert first.tables["scale"] == again.tables["scale"]
    other_seed = scale.run(Request(request_.folder, True, 2, request_.progress))
    assert first.tables["scale"] != other_seed.tables["scale"]


def test_simulation_agrees_with_a_real_ring(
    request_: Request, progress: ProgressLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "QUICK_REAL_SIZES", (5,))
    monkeypatch.setattr(scale, "MEASURED_S", 1.0)
    monkeypatch.setattr(scale, "WARM_S", 0.3)
    monkeypatch.setattr(scale, "ALL", (*ALL, guided(3)))
    monkeypatch.setattr(scale, "QUICK_REAL", (SCRIBE, guided(3), guided(25)))
    outcome = scale.run(request_)
    real = [(row["nodes"], row["approach"]) for row in outcome.tables["scale"] if row["source"] == REAL]
    assert real == [(5, "Scribe"), (5, "Guided F=3")], progress.said
    agreement = outcome.quantities[0]
    assert agreement.ours is not None
    assert agreement.ours < 15.0, agreement.note
    assert "tables of the collector: no Java was found" in outcome.left_out
    assert not [*request_.folder.glob("ringmq-lab-data-*")]


def test_ring_that_cannot_be_formed_is_left_out(
    request_: Request, progress: ProgressLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(plan: Any, data: Path) -> Any:
        raise ExperimentError(f"{plan.run}: no ring")

    monkeypatch.setattr(scale, "QUICK_REAL_SIZES", (5,))
    monkeypatch.setattr(scale.trial, "run", fail)
    outcome = scale.run(request_)
    assert "5 real peers, Direct: scale-5-direct: no ring" in outcome.left_out
    assert "left out: 5 real peers, Direct: scale-5-direct: no ring" in progress.said
    assert len(outcome.tables["scale"]) == 2 * len(ALL)


def test_ring_that_is_too_large_for_the_machine_is_left_out(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "QUICK_REAL_SIZES", (5,))
    monkeypatch.setattr(scale.rings, "why_not", lambda peers, disk: f"{peers} peers need more memory")
    assert "5 real peers, Scribe: 5 peers need more memory" in scale.run(request_).left_out


def test_interrupted_run_keeps_its_results(
    request_: Request, progress: ProgressLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(done: str) -> None:
        progress.done.append(done)
        if len(progress.done) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(progress, "step", step)
    outcome = scale.run(request_)
    assert outcome.interrupted
    assert len(outcome.tables["scale"]) == 3
    assert outcome.plots[0].is_file()


def test_run_without_any_result_is_an_error(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "QUICK_SIZES", ())
    with pytest.raises(ExperimentError, match="there is no result"):
        scale.run(request_)


@pytest.mark.parametrize(("publishers", "topics"), [(14, 7), (6, 7), (13, 7), (3, 7), (1, 1)])
def test_few_messages_are_distributed_over_all_publishers_and_topics(publishers: int, topics: int) -> None:
    every = scale.pairs(range(publishers), topics, 1000)
    assert sorted(every) == [(publisher, topic) for publisher in range(publishers) for topic in range(topics)]
    some = scale.pairs(range(publishers), topics, publishers)
    assert [publisher for publisher, _ in some] == list(range(publishers))
    assert len({topic for _, topic in some}) == min(publishers, topics)


@pytest.mark.parametrize(("nodes", "publishers"), [(2, 1), (12, 3), (25, 7), (50, 14), (100_000, 14)])
def test_number_of_publishers_follows_the_thesis(nodes: int, publishers: int) -> None:
    assert scale.publishing(nodes) == publishers


@pytest.mark.parametrize("nodes", [12, 25, 50])
def test_times_of_real_rings_are_whole_rounds(nodes: int) -> None:
    size = scale.size_of(nodes)
    assert size.rate_hz * size.publishers * size.topics == pytest.approx(scale.PUBLISHED_HZ)
    for span_s, least_s in ((size.warm_s, 1.0), (size.measured_s, 4.0)):
        assert span_s >= least_s
        assert span_s * size.rate_hz == pytest.approx(round(span_s * size.rate_hz))


def test_choice_of_an_approach() -> None:
    assert scale.choice_of(DIRECT) == Choice("direct")
    assert scale.choice_of(guided(5)) == Choice("guided", 5)
    assert scale.choice_of(ALL[-1]) == Choice("guided", UNBOUNDED)
