"""`ringmq collect all`: from a running ring to tables and plots, in one go.

Owns the order of the steps, and the child that ingests.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from ringmq.collector.cli.options import read_local_data, spark_options
from ringmq.collector.cli.reduce import tell
from ringmq.collector.cli.show import MOST_ROWS, write
from ringmq.collector.data_lock import lock_folder
from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs import reduce as reducing
from ringmq.collector.jobs.stream import How, run
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report import read_tables
from ringmq.collector.report.tables import as_lines
from ringmq.collector.spark.java import find_java
from ringmq.collector.spark.session import session

DATA: Final = "collected"
SECONDS: Final = 30.0
STOP_S: Final = 15.0
"""How long the ingest has to land what it has. Above its own limit for it."""


@click.command("all")
@click.option(
    "--for",
    "seconds",
    default=SECONDS,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="How long to listen.",
)
@click.option("--peer", "peers", multiple=True, metavar="HOST:PORT", help="Where a peer serves MQTT, as for ingest.")
@click.option(
    "--data",
    default=DATA,
    show_default=True,
    callback=read_local_data,
    metavar="DIR",
    help="Where the records go; made if missing.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Where tables and plots go.  [default: DATA/out]"
)
@click.option("--user", metavar="NAME", help="As for ingest, and so the next two.")
@click.option("--password-file", metavar="FILE")
@click.option("--tls-ca", metavar="FILE")
@spark_options
def all(  # noqa: A001  # the name of the command
    seconds: float,
    peers: tuple[str, ...],
    data: Path,
    out: Path | None,
    master: str,
    settings: dict[str, str],
    verbose: bool,
    **access: str | None,
) -> None:
    """Listen to a running ring for a while, and show what it did: ingest, stream, reduce and show in one."""
    find_java()  # before anybody waits
    with ExitStack() as stack:
        for user in ("stream", "reduce"):
            stack.enter_context(lock_folder(data, user))
        _ingest(data, seconds, peers, access)
        with session(master, settings, verbose=verbose) as spark:
            total = run(spark, str(data), How(once=True), lambda _: None)
            click.echo(f"streamed: {total}", err=True)
            reducing.reduce(spark, str(data), tell)
    tables = read_tables.read_local(data, HEADS)
    click.echo("\n".join(as_lines(tables, MOST_ROWS)))
    write(tables, data / "out" if out is None else out)


def _ingest(folder: Path, seconds: float, peers: tuple[str, ...], access: dict[str, str | None]) -> None:
    """In a process of its own, which ends with this one. Raises CollectorError if it does not end well."""
    options = ["--data", str(folder), "--for", str(seconds)]
    for name, value in [*[("peer", peer) for peer in peers], *access.items()]:
        if value is not None:
            options += ["--" + name.replace("_", "-"), value]
    command = [sys.executable, "-P", "-m", "ringmq", "collect", "ingest", *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as child:  # noqa: S603  # it is ourselves
        try:
            status = child.wait()
        except BaseException:
            _end(child)
            raise
    if status:
        # What is wrong it has said itself.
        raise CollectorError("the ingest has failed")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
