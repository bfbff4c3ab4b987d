"""`ringmq collect ingest`: stores the records of the peers in the landing folder of a data folder.

Owns the command line, the files that it names, and the signals; `collector.ingest.ingest` does the work.
"""

from __future__ import annotations

import signal
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import click

from ringmq.collector.cli.addresses import Address, parse_address, parse_addresses
from ringmq.collector.cli.ingest_progress import StreamReporter, summary
from ringmq.collector.cli.options import read_local_data
from ringmq.collector.data_lock import lock_folder
from ringmq.collector.errors import SettingError
from ringmq.collector.ingest.ingest import Ingest, IngestProgress, StopCondition
from ringmq.collector.ingest.intake import FILTER
from ringmq.collector.ingest.spool import Spool
from ringmq.collector.ingest.subscriber import Credentials, Inbox, Listener

DEFAULT_PEER: Final = "127.0.0.1:1883"
MAX_PASSWORD_BYTES: Final = 65535
"""The longest password of a CONNECT packet (MQTT 5.0 §3.1.3.6)."""


@click.command()
@click.option(
    "--data", callback=read_local_data, metavar="DIR", required=True, help="The data folder, created if missing."
)
@click.option(
    "--peer",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    callback=parse_addresses,
    help=f"MQTT address of a peer; repeat it to survive the loss of a peer.  [default: {DEFAULT_PEER}]",
)
@click.option("--for", "seconds", type=click.FloatRange(0.1), metavar="SECONDS", help="End after this time.")
@click.option(
    "--until-idle",
    "idle_s",
    type=click.FloatRange(0.1),
    metavar="SECONDS",
    help="End when no message has arrived for this time.",
)
@click.option("--user", metavar="NAME", help="MQTT user name.")
@click.option(
    "--password-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File whose first line is the password of --user.",
)
@click.option(
    "--tls-ca", type=click.Path(path_type=Path), metavar="FILE", help="Use TLS; CA certificates that sign the peers'."
)
def ingest(
    data: Path,
    addresses: tuple[Address, ...],
    seconds: float | None,
    idle_s: float | None,
    user: str | None,
    password_file: Path | None,
    tls_ca: Path | None,
) -> None:
    """Store the records of the peers in files, each record once, until Ctrl-C.

    Complete files appear in DIR/landing; lines that are not records go to DIR/dead. A restart continues where the last
    run ended.
    """
    credentials = read_credentials(user, password_file, tls_ca)
    addresses = addresses or (parse_address(DEFAULT_PEER),)
    progress = run_ingest(data, addresses, credentials, StopCondition(seconds=seconds, idle_s=idle_s))
    click.echo(f"ingested: {summary(progress)}")


def run_ingest(
    data: Path, addresses: Sequence[Address], credentials: Credentials, until: StopCondition
) -> IngestProgress:
    """Ingest until `until` holds, or until SIGINT or SIGTERM. Reports progress on stderr. Raises CollectorError."""
    reporter = StreamReporter(sys.stderr, sys.stdout)
    with lock_folder(data, "ingest"):
        spool = Spool(data)
        inbox: Inbox = SimpleQueue()
        listeners = [
            # The client id contains the address, so that two addresses of one peer do not take over each other's
            # session, and the id of the spool, so that a restart finds its session again.
            Listener(address, f"ringmq-collect-{spool.id}-{address}", FILTER, credentials, inbox)
            for address in addresses
        ]
        running = Ingest(spool, listeners, inbox, reporter)
        try:
            with _ended_by_signals(running):
                running.run(until)
        finally:
            reporter.close()
        return running.progress


def read_credentials(user: str | None, password_file: Path | None, tls_ca: Path | None) -> Credentials:
    """The credentials that the options name. Raises SettingError."""
    if (user is None) != (password_file is None):
        raise SettingError("--user and --password-file must be given together")
    password = None if password_file is None else _password(password_file)
    return Credentials(user, password, None if tls_ca is None else _tls(tls_ca))


def _password(file: Path) -> str:
    try:
        with file.open("rb") as source:
            line = source.readline(MAX_PASSWORD_BYTES + len("\r\n"))
        # Only the line ending is removed: other spaces may be part of the password.
        password = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except OSError as error:
        raise SettingError(f"--password-file: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"--password-file: {file} is not UTF-8 text") from error
    if not password:
        raise SettingError(f"--password-file: the first line of {file} is empty, expected a password")
    return password


def _tls(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise SettingError(f"--tls-ca: {file} contains no PEM certificates") from error
    except OSError as error:
        raise SettingError(f"--tls-ca: cannot read {file}: {error.strerror}") from error


@contextmanager
def _ended_by_signals(running: Ingest) -> Iterator[None]:
    """The first signal ends the ingest in order; a second signal has its default effect."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def end(*_: object) -> None:
        # Restored first, so that a second signal can end an ingest that hangs.
        restore()
        running.end()

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()
