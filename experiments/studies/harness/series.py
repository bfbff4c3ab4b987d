"""A series of trials and the collector's tables of all of them, the common part of all experiments with real rings.

Owns the handling of failed trials and of Ctrl-C: the trials so far are kept, and the experiment evaluates them.
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
"""Tables of the collector that an outcome keeps."""


@dataclass(slots=True)
class Series:
    """Trials that were played, and their tables."""

    trials: dict[str, Trial] = field(default_factory=dict)
    """Trials by label, without failed ones."""
    tables: Tables = field(default_factory=dict)
    """The collector's tables of all trials; empty after an interrupt, or if Spark failed."""

    def total(self, trial: Trial) -> Row:
        """The row with the totals that all peers of a trial recorded; empty without tables."""
        rows = self.tables.get(columns.PER_PEER.name, ())
        return next((row for row in rows if row["run"] == trial.plan.run and row["row"] == "total"), {})


def play(plans: Mapping[str, Plan], request: Request, outcome: Outcome) -> Series:
    """Play all plans, and add the tables, settings and left-out trials to `outcome`.

    A trial that fails is left out. Raises ExperimentError if all trials fail, and CollectorError if there is no Java.
    The series is empty if it is interrupted before the end of the first trial.
    """
    find_java()  # a missing Java must not be reported only after all trials
    series = Series()
    request.progress.begin(len(plans) + 1)
    # In the folder of the request: the Parquet or the records move there by a rename, which needs one file system.
    with TemporaryDirectory(prefix="ringmq-lab-data-", dir=request.folder) as folder:
        data = Path(folder)
        try:
            _play_all(plans, data, request, outcome, series)
        except KeyboardInterrupt:
            outcome.interrupted = True
            if series.trials:
                request.progress.say("interrupted: reducing the results so far; Ctrl-C again skips the tables")
        if series.trials:
            _reduce(data, request, outcome, series)
        elif not outcome.interrupted:
            raise ExperimentError(f"nothing could be measured: {outcome.left_out[0]}")
    outcome.tables |= {name: series.tables[name] for name in KEPT if series.tables.get(name)}
    outcome.settings["seed"] = request.seed
    outcome.settings["plans"] = {label: asdict(trial.plan) for label, trial in series.trials.items()}
    return series


def _play_all(plans: Mapping[str, Plan], data: Path, request: Request, outcome: Outcome, series: Series) -> None:
    progress = request.progress
    for label, plan in plans.items():
        try:
            reason = rings.why_not(plan.peers, disk=data)
            if reason is not None:
                raise ExperimentError(reason)
            series.trials[label] = trial = run(plan, data)
        except ExperimentError as error:
            outcome.left_out.append(f"{label}: {error.message}")
            progress.say(f"left out: {outcome.left_out[-1]}")
        else:
            if plan.kill is None and not trial.counts.keeps_up:
                outcome.left_out.append(f"{label}: in the tables, but {too_slow(trial)}")
                progress.say(outcome.left_out[-1])
        progress.step(label)


def _reduce(data: Path, request: Request, outcome: Outcome, series: Series) -> None:
    try:
        series.tables = spark_reduce.reduce(data, request, outcome)
    except KeyboardInterrupt:
        outcome.interrupted = True
    if not outcome.interrupted:
        request.progress.step("tables")
