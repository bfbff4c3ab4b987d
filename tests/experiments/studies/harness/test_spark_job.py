"""The process of Spark: the order of its steps. The tests of `spark_reduce` run it with a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ringmq.experiments.studies.harness import spark_job


def test_job_streams_landed_records_and_then_reduces(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[object, ...]] = []

    @contextmanager
    def session(master: str, settings: object) -> Iterator[str]:
        done.append(("began", master))
        yield "spark"
        done.append(("ended",))

    monkeypatch.setattr(spark_job, "session", session)
    monkeypatch.setattr(spark_job, "run", lambda spark, data, how, report: done.append((spark, data, how.once)))
    monkeypatch.setattr(spark_job.reducing, "reduce", lambda spark, data, report: done.append((spark, data)))
    spark_job.main("there")
    assert done == [("began", "local[2]"), ("spark", "there", True), ("spark", "there"), ("ended",)]
