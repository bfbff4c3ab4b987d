"""`ringmq collect all`: from a running ring to tables and plots, with one command.

Owns the order of the steps, and the child process that ingests.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from ringmq.collector.cli.options import read_local_data, spark_options
from ringmq.collector.cli.reduce import report_table
from ringmq.collector.cli.show import MOST_ROWS, write
from ringmq.collector.data_lock import lock_folder
from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs import reduce as reducing
from ringmq.collector.jobs.stream import StreamSettings, run
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report import read_tables
from ringmq.collector.report.tables import as_lines
from ringmq.collector.spark.java import find_java
from ringmq.collector.spark.session import session

DATA: Final = "collected"
SECONDS: Final = 30.0
STOP_S: Final = 15.0
"""The longest time that the ingest has to land its last messages, above its own limit for that (`ingest.DRAIN_S`)."""


@click.command("all")
@click.option(
    "--for",
    "seconds",
    default=SECONDS,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="Listen for this time.",
)
@click.option("--peer", "peers", multiple=True, metavar="HOST:PORT", help="MQTT address of a peer, as for ingest.")
@click.option(
    "--data",
    default=DATA,
    show_default=True,
    callback=read_local_data,
    metavar="DIR",
    help="Folder for the records, created if missing.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder for tables and plots.  [default: DATA/out]"
)
@click.option("--user", metavar="NAME", help="MQTT user name, as for ingest.")
@click.option("--password-file", metavar="FILE", help="File with the password of --user, as for ingest.")
@click.option("--tls-ca", metavar="FILE", help="Use TLS with these CA certificates, as for ingest.")
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
    """Record a running ring for a while, and show the results: ingest, stream, reduce and show in one."""
    # Missing Java and locked folders fail here, before the user waits for an ingest that would be in vain.
    find_java()
    with ExitStack() as stack:
        for user in ("stream", "reduce"):
            stack.enter_context(lock_folder(data, user))
        _ingest(data, seconds, peers, access)
        with session(master, settings, verbose=verbose) as spark:
            total = run(spark, str(data), StreamSettings(once=True), lambda _: None)
            click.echo(f"streamed: {total}", err=True)
            reducing.reduce(spark, str(data), report_table)
    tables = read_tables.read_local(data, HEADS)
    click.echo("\n".join(as_lines(tables, MOST_ROWS)))
    write(tables, data / "out" if out is None else out)


def _ingest(folder: Path, seconds: float, peers: tuple[str, ...], access: dict[str, str | None]) -> None:
    """Ingest in a child process, which ends with this process. Raises CollectorError if the child fails."""
    options = ["--data", str(folder), "--for", str(seconds)]
    for name, value in [*[("peer", peer) for peer in peers], *access.items()]:
        if value is not None:
            options += ["--" + name.replace("_", "-"), value]
    command = [sys.executable, "-P", "-m", "ringmq", "collect", "ingest", *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr) as child:  # noqa: S603  # it is ourselves
        try:
            status = child.wait()
        # KeyboardInterrupt too: SIGTERM and SIGINT must not leave the child behind.
        except BaseException:
            _stop(child)
            raise
    if status:
        # The child has already written the reason to stderr.
        raise CollectorError("the ingest has failed")


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
