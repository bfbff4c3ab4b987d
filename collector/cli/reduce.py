"""`ringmq collect reduce`: from Parquet to tables. Owns the command line; `collector.jobs.reduce` does the work."""

from __future__ import annotations

import click

from ringmq.collector.cli.options import data_option, spark_options
from ringmq.collector.data_folder import REDUCED, below
from ringmq.collector.data_lock import hold
from ringmq.collector.jobs import reduce as reducing
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.spark.session import session


@click.command()
@data_option
@spark_options
def reduce(data: str, master: str, settings: dict[str, str], verbose: bool) -> None:
    """Reduce the Parquet to tables in DIR/reduced: a row per peer, box plots, rates, stress, latencies."""
    with hold(data, "reduce"), session(master, settings, verbose=verbose) as spark:
        reducing.reduce(spark, data, report_table)
    click.echo(f"reduced: {len(HEADS)} tables in {below(data, REDUCED)}")


def report_table(table: str) -> None:
    """Report on stderr the table that is being computed."""
    click.echo(f"reducing: {table}", err=True)
