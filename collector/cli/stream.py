"""`ringmq collect stream`: what has landed, into Parquet. Owns the command line; `collector.jobs.stream` does it."""

from __future__ import annotations

import click

from ringmq.collector.cli.options import data_option, spark_options
from ringmq.collector.data_lock import hold
from ringmq.collector.jobs.stream import BATCH_MB, PAUSE_S, How, Progress, run
from ringmq.collector.spark.session import session


@click.command()
@data_option
@click.option(
    "--once", is_flag=True, help="End when all that has landed is in the Parquet, instead of waiting for more."
)
@click.option(
    "--every",
    "pause_s",
    default=PAUSE_S,
    show_default=True,
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="From one batch to the next. Each writes files of its own.",
)
@click.option(
    "--batch",
    "batch_mb",
    default=BATCH_MB,
    show_default=True,
    type=click.FloatRange(0.001, 1_000_000),
    metavar="MB",
    help="Of landed lines at a time. More needs more memory.",
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
    """Write what has landed to DIR/parquet, each record once, until Ctrl-C.

    What is no record is set aside there, with the reason. Started again, it goes on where it was.
    """
    how = How(once=once, pause_s=pause_s, batch_mb=batch_mb, delete=delete)
    total = Progress()

    def tell(progress: Progress) -> None:
        nonlocal total
        total += progress
        if progress.lines:
            click.echo(f"streamed: {progress}", err=True)

    done = False
    try:
        with hold(data, "stream"), session(master, settings, verbose=verbose) as spark:
            click.echo(f"streaming {data}", err=True)
            run(spark, data, how, tell)
            done = True
    finally:
        if done or total.lines:
            click.echo(f"streamed in all: {total}")
