"""`ringmq collect show`: the tables in the terminal, as CSV or JSON, and the plots. Owns the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from ringmq.collector.cli.options import data_option, spark_options
from ringmq.collector.data_folder import REDUCED, below, local_path
from ringmq.collector.errors import CollectorError, SettingError
from ringmq.collector.folders import Folders
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report import plots, read_tables
from ringmq.collector.report.read_tables import Tables
from ringmq.collector.report.tables import as_csv, as_json, as_lines
from ringmq.collector.spark.session import session

MOST_ROWS: Final = 20
FORMATS: Final = ("table", "csv", "json")


@click.command()
@data_option
@click.option("--table", "names", multiple=True, type=click.Choice([*HEADS]), help="Only this table; may be repeated.")
@click.option("--run", metavar="RUN", help="Only this run.")
@click.option(
    "--format", "form", default=FORMATS[0], show_default=True, type=click.Choice(FORMATS), help="Format of the output."
)
@click.option(
    "--rows",
    "most_rows",
    default=MOST_ROWS,
    show_default=True,
    type=click.IntRange(1),
    help="The most topics, and the most steps of time, in the terminal.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write all tables as CSV, and the plots as PNG, to this folder.",
)
@spark_options
def show(
    data: str,
    names: tuple[str, ...],
    run: str | None,
    form: str,
    most_rows: int,
    out: Path | None,
    master: str,
    settings: dict[str, str],
    verbose: bool,
) -> None:
    """Show the tables that reduce has written, and plot them.

    Spark is needed only if DIR is not on this machine.
    """
    names = names or tuple(HEADS)
    if form == "csv" and len(names) > 1:
        raise SettingError(
            f"--format csv needs exactly one --table, of {', '.join(HEADS)}; --out writes all tables as CSV"
        )
    folder = local_path(data)
    # Plots need all tables, whichever are shown.
    needed = tuple(HEADS) if out else names
    if folder is None:
        tables = _read_remote(data, needed, master, settings, verbose)
    else:
        tables = read_tables.read_local(folder, needed)
    if run is not None:
        tables = read_tables.only_run(tables, run)
    click.echo(_formatted({name: rows for name, rows in tables.items() if name in names}, form, most_rows))
    if out is not None:
        write(tables, out)


def write(tables: Tables, out: Path) -> None:
    """Write all tables and plots to files. Raises CollectorError if a file cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, rows in tables.items():
            (out / f"{name}.csv").write_text(as_csv(HEADS[name], rows), encoding="utf-8")
    except OSError as error:
        raise CollectorError(f"--out: cannot write to {out}: {error.strerror}") from error
    files = plots.write(tables, out)
    click.echo(f"written: {len(tables)} tables and {len(files)} plots in {out}", err=True)


def _formatted(tables: Tables, form: str, most_rows: int) -> str:
    if form == "json":
        return as_json(tables)
    if form == "csv":
        ((name, rows),) = tables.items()
        return as_csv(HEADS[name], rows).removesuffix("\n")
    return "\n".join(as_lines(tables, most_rows))


def _read_remote(data: str, names: Sequence[str], master: str, settings: dict[str, str], verbose: bool) -> Tables:
    lines = {}
    with session(master, settings, verbose=verbose) as spark:
        for name in names:
            folder = below(data, REDUCED, name)
            if Folders(spark).exists(folder):
                lines[name] = [row.value for row in spark.read.text(folder).collect()]
    return read_tables.from_lines(lines, data)
