"""Trials one after the other, then the collector's tables of all of them: what every experiment with real rings does.

Owns what becomes of a trial that fails, and of Ctrl-C: what was measured is kept, and whoever plays goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ringmq.collector.jobs.tables import columns
from ringmq.collector.report.read_tables import Tables
from ringmq.collector.spark.java import find_java
from ringmq.experiments.studies.harness import rings, spark_reduce
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Request, Row
from ringmq.experiments.studies.harness.plan import Plan
from ringmq.experiments.studies.harness.trial import Trial, run, too_slow

KEPT: Final = ("runs", "per_peer", "boxes", "rates", "latencies", "stress")
"""Of the collector's tables."""


@dataclass(slots=True)
class Series:
    """What was played."""

    trials: dict[str, Trial] = field(default_factory=dict)
    """By what people call them. Those that failed are missing."""
    tables: Tables = field(default_factory=dict)
    """The collector's, of all of them; empty if somebody did not want to wait for it, or Spark failed."""

    def total(self, trial: Trial) -> Row:
        """What the peers of a trial recorded, all together; nothing if there are no tables."""
        rows = self.tables.get(columns.PER_PEER.name, ())
        return next((row for row in rows if row["run"] == trial.plan.run and row["row"] == "total"), {})


def play(plans: Mapping[str, Plan], request: Request, outcome: Outcome) -> Series:
    """Play all that can be, and put into `outcome` what all of these have: tables, settings, what was left out.

    A trial that fails is left out. Raises ExperimentError if that are all, and CollectorError if there is no Java.
    Interrupted before the first has ended, there is nothing in the series.
    """
    find_java()  # before anybody waits
    series = Series()
    request.progress.begin(len(plans) + 1)
    with TemporaryDirectory(prefix="ringmq-lab-data-", dir=request.folder) as folder:
        data = Path(folder)
        try:
            _play_all(plans, data, request, outcome, series)
        except KeyboardInterrupt:
            outcome.interrupted = True
            if series.trials:
                request.progress.say("interrupted: what was measured is being reduced; Ctrl-C again does without")
        if series.trials:
            _reduce(data, request, outcome, series)
        elif not outcome.interrupted:
            raise ExperimentError(f"nothing could be measured: {outcome.left_out[0]}")
    outcome.tables |= {name: series.tables[name] for name in KEPT if series.tables.get(name)}
    outcome.settings["seed"] = request.seed
    outcome.settings["plans"] = {what: asdict(trial.plan) for what, trial in series.trials.items()}
    return series


def _play_all(plans: Mapping[str, Plan], data: Path, request: Request, outcome: Outcome, series: Series) -> None:
    progress = request.progress
    for what, plan in plans.items():
        try:
            reason = rings.why_not(plan.peers, disk=data)
            if reason is not None:
                raise ExperimentError(reason)
            series.trials[what] = trial = run(plan, data)
        except ExperimentError as error:
            outcome.left_out.append(f"{what}: {error.message}")
            progress.say(f"left out: {outcome.left_out[-1]}")
        else:
            if plan.kill is None and not trial.counts.keeps_up:
                outcome.left_out.append(f"{what}: in the tables, but {too_slow(trial)}")
                progress.say(outcome.left_out[-1])
        progress.step(what)


def _reduce(data: Path, request: Request, outcome: Outcome, series: Series) -> None:
    try:
        series.tables = spark_reduce.reduce(data, request, outcome)
    except KeyboardInterrupt:
        outcome.interrupted = True
    if not outcome.interrupted:
        request.progress.step("tables")
