"""`ringmq collect stream`: from landed records to Parquet. Owns the command line; `collector.jobs.stream` does it."""

from __future__ import annotations

import click

from ringmq.collector.cli.options import data_option, spark_options
from ringmq.collector.data_lock import hold
from ringmq.collector.jobs.stream import BATCH_MB, PAUSE_S, StreamProgress, StreamSettings, run
from ringmq.collector.spark.session import session


@click.command()
@data_option
@click.option(
    "--once", is_flag=True, help="End when all landed records are in the Parquet, instead of waiting for more."
)
@click.option(
    "--every",
    "pause_s",
    default=PAUSE_S,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="Time between two batches. Each batch writes files of its own.",
)
@click.option(
    "--batch",
    "batch_mb",
    default=BATCH_MB,
    show_default=True,
    type=click.FloatRange(0.001, 1_000_000),
    metavar="MB",
    help="Landed lines per batch. Larger batches need more memory.",
)
@click.option("--delete", is_flag=True, help="Delete landed files that are in the Parquet.")
@spark_options
def stream(
    data: str,
    once: bool,
    pause_s: float,
    batch_mb: float,
    delete: bool,
    master: str,
    settings: dict[str, str],
    verbose: bool,
) -> None:
    """Write landed records to DIR/parquet, each record once, until Ctrl-C.

    Lines that are not records are stored there as well, with the reason. A restart continues where the last run ended.
    """
    stream_settings = StreamSettings(once=once, pause_s=pause_s, batch_mb=batch_mb, delete=delete)
    # Kept here as well: an interrupted `run` returns no total.
    total = StreamProgress()

    def report(progress: StreamProgress) -> None:
        nonlocal total
        total += progress
        if progress.lines:
            click.echo(f"streamed: {progress}", err=True)

    done = False
    try:
        with hold(data, "stream"), session(master, settings, verbose=verbose) as spark:
            click.echo(f"streaming {data}", err=True)
            run(spark, data, stream_settings, report)
            done = True
    finally:
        if done or total.lines:
            click.echo(f"streamed in all: {total}")
