"""`ringmq collect ingest`: takes what peers record into the landing folder of a data folder.

Owns the command line, the files that it names, and the signals. What is done is for `collector.ingest.ingest`.
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
from ringmq.collector.cli.ingest_progress import Teller, summary
from ringmq.collector.cli.options import read_local_data
from ringmq.collector.data_lock import lock_folder
from ringmq.collector.errors import SettingError
from ringmq.collector.ingest.ingest import Ingest, Progress, Until
from ringmq.collector.ingest.intake import FILTER
from ringmq.collector.ingest.spool import Spool
from ringmq.collector.ingest.subscriber import Access, Inbox, Listener

DEFAULT_PEER: Final = "127.0.0.1:1883"
MAX_PASSWORD_BYTES: Final = 65535
"""A CONNECT can hold no longer one (5.0 §3.1.3.6)."""


@click.command()
@click.option(
    "--data", callback=read_local_data, metavar="DIR", required=True, help="Where it all goes; made if missing."
)
@click.option(
    "--peer",
    "addresses",
    multiple=True,
    metavar="HOST:PORT",
    callback=parse_addresses,
    help=f"Where a peer serves MQTT; several times to stand the loss of one.  [default: {DEFAULT_PEER}]",
)
@click.option("--for", "seconds", type=click.FloatRange(0.1), metavar="SECONDS", help="End after so long.")
@click.option(
    "--until-idle", "idle_s", type=click.FloatRange(0.1), metavar="SECONDS", help="End when nothing came for so long."
)
@click.option("--user", metavar="NAME", help="What the peers know us as.")
@click.option(
    "--password-file", type=click.Path(path_type=Path), metavar="FILE", help="Its first line is the password of --user."
)
@click.option("--tls-ca", type=click.Path(path_type=Path), metavar="FILE", help="Speak TLS; who signs for the peers.")
def ingest(
    data: Path,
    addresses: tuple[Address, ...],
    seconds: float | None,
    idle_s: float | None,
    user: str | None,
    password_file: Path | None,
    tls_ca: Path | None,
) -> None:
    """Take what the peers record into files, until Ctrl-C: each record once.

    They appear whole in DIR/landing; what is no record, in DIR/dead. Started again, it goes on where it was.
    """
    access = access_from(user, password_file, tls_ca)
    addresses = addresses or (parse_address(DEFAULT_PEER),)
    done = run_ingest(data, addresses, access, Until(seconds=seconds, idle_s=idle_s))
    click.echo(f"ingested: {summary(done)}")


def run_ingest(data: Path, addresses: Sequence[Address], access: Access, until: Until) -> Progress:
    """Ingest until then, or until SIGINT or SIGTERM, and say how it goes on stderr. Raises CollectorError."""
    teller = Teller(sys.stderr, sys.stdout)
    with lock_folder(data, "ingest"):
        spool = Spool(data)
        inbox: Inbox = SimpleQueue()
        listeners = [
            # One name for each address: two of them may lead to the same peer.
            Listener(address, f"ringmq-collect-{spool.id}-{address}", FILTER, access, inbox)
            for address in addresses
        ]
        running = Ingest(spool, listeners, inbox, teller)
        try:
            with _ended_by_signals(running):
                running.run(until)
        finally:
            teller.close()
        return running.progress


def access_from(user: str | None, password_file: Path | None, tls_ca: Path | None) -> Access:
    """What the options say. Raises SettingError."""
    if (user is None) != (password_file is None):
        raise SettingError("--user and --password-file go together")
    password = None if password_file is None else _password(password_file)
    return Access(user, password, None if tls_ca is None else _tls(tls_ca))


def _password(file: Path) -> str:
    try:
        with file.open("rb") as source:
            line = source.readline(MAX_PASSWORD_BYTES + len("\r\n"))
        password = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except OSError as error:
        raise SettingError(f"--password-file: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"--password-file: {file} is not text in UTF-8") from error
    if not password:
        raise SettingError(f"--password-file: {file} has no password in its first line")
    return password


def _tls(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise SettingError(f"--tls-ca: {file} holds no certificates in PEM") from error
    except OSError as error:
        raise SettingError(f"--tls-ca: cannot read {file}: {error.strerror}") from error


@contextmanager
def _ended_by_signals(running: Ingest) -> Iterator[None]:
    """The first signal ends it in order; a second one does what it always does."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def end(*_: object) -> None:
        restore()
        running.end()

    for number in numbers:
        signal.signal(number, end)
    try:
        yield
    finally:
        restore()
