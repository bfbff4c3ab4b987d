"""`ringmq passwd`: sets and deletes passwords in a password file. Also reads password files and ACL files for peers.

`mqtt_front.access.passwords` knows the meaning of the lines. The file is replaced atomically, and all lines of other
users stay as they are, including comments.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from ringmq.mqtt_front.access.passwords import SALT_BYTES, Passwords, new_entry
from ringmq.mqtt_front.access.rule_lines import MAX_FILE_CHARS, RuleFileError, fault_in_user_name, shown
from ringmq.peer.errors import ConfigError, PeerError

MAX_PASSWORD_BYTES: Final = 65535
"""Longest password that fits into a CONNECT (5.0 §3.1.3.6)."""
_UTF_8_BYTES: Final = 4
"""Maximum bytes of a character."""


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("user")
@click.option("--delete", is_flag=True, help="Remove the user.")
@click.option("--batch", is_flag=True, help="Read the password from one line of standard input instead of asking.")
def passwd(file: Path, user: str, delete: bool, batch: bool) -> None:
    """Set the password of USER in the password file FILE, which is created if it is missing.

    A running peer reads the new file when it gets the signal SIGHUP.
    """
    fault = fault_in_user_name(user)
    if fault:
        raise ConfigError(f"{shown(user)}: {fault}")
    if delete and batch:
        raise click.UsageError("--delete and --batch exclude each other", click.get_current_context())
    _parsed(file, _present(file))  # Fail on a damaged file before asking for a password.
    line = None if delete else new_entry(user, _password(user, batch), secrets.token_bytes(SALT_BYTES)).line
    with _locked(file):
        old = _present(file)
        known = _parsed(file, old).entry(user) is not None
        if delete and not known:
            raise PeerError(f"{file} has no user {shown(user)}")
        new = with_line(old, user, line)
        _parsed(file, new)  # The limits of such a file hold for the new text too, or no peer could read it.
        _replace(file, new)
    click.echo(f"{shown(user)} {'deleted from' if delete else 'changed in' if known else 'added to'} {file}")


def read_rules(file: Path) -> str:
    """Text of a password file or an ACL file, read up to its maximum length. Raises PeerError."""
    limit = MAX_FILE_CHARS * _UTF_8_BYTES
    try:
        with file.open("rb") as source:
            raw = source.read(limit + 1)
        text = raw.decode("utf-8")
    except OSError as error:
        raise PeerError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PeerError(f"{file} is not text in UTF-8") from error
    if len(raw) > limit:
        raise PeerError(f"{file}: longer than {MAX_FILE_CHARS} characters")
    return text


def with_line(text: str, user: str, line: str | None) -> str:
    """Text of a password file with the user's line replaced by `line`, or removed if `line` is None."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    index = next((index for index, old in enumerate(lines) if _user_of(old) == user), len(lines))
    lines[index : index + 1] = [] if line is None else [line]
    return "".join(f"{text_line}\n" for text_line in lines)


def _user_of(line: str) -> str | None:
    name, colon, _ = line.removeprefix("\ufeff").strip(" \t\r").partition(":")
    return name if colon and not name.startswith("#") else None


def _present(file: Path) -> str:
    return read_rules(file) if os.path.lexists(file) else ""


def _parsed(file: Path, text: str) -> Passwords:
    try:
        return Passwords.parse(text, str(file))
    except RuleFileError as error:
        raise PeerError(str(error)) from error


def _password(user: str, batch: bool) -> bytes:
    if batch:
        raw = sys.stdin.buffer.read(MAX_PASSWORD_BYTES + len("\r\n") + 1)
        password, _, rest = raw.partition(b"\n")
        password = password.removesuffix(b"\r")
        if rest:
            raise PeerError("standard input must be one line with the password, got more")
    elif sys.stdin.isatty():
        asked = click.prompt(f"Password of {shown(user)}", hide_input=True, confirmation_prompt=True, err=True)
        password = str(asked).encode(errors="surrogateescape")
    else:
        raise PeerError("there is no terminal to ask for the password: use --batch to read it from standard input")
    if len(password) > MAX_PASSWORD_BYTES or not password.strip(b"\0"):  # HMAC pads with zeros: the same as none
        raise PeerError(f"a password must have 1 to {MAX_PASSWORD_BYTES} bytes")
    return password


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Exclude other `ringmq passwd` processes from this folder: of two concurrent changes one would be lost."""
    # The folder is locked, not the file: replacing the file would leave the lock on the old one.
    folder = file.resolve().parent
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PeerError(f"cannot write {file}: {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _replace(file: Path, text: str) -> None:
    """Replace the file atomically and durably. It keeps its owner, and only the owner can read it."""
    target = file.resolve()  # a link stays a link
    fresh = None
    try:
        descriptor, fresh = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)  # mode 0600
        with os.fdopen(descriptor, "wb") as output:
            with contextlib.suppress(FileNotFoundError):
                old, new = target.stat(), os.fstat(descriptor)
                if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                    os.fchown(descriptor, old.st_uid, old.st_gid)
            output.write(text.encode("utf-8"))
            output.flush()
            os.fsync(descriptor)
        Path(fresh).replace(target)
        fresh = None
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise PeerError(f"cannot write {file}: {error.strerror}") from error
    finally:
        if fresh is not None:
            with contextlib.suppress(OSError):
                Path(fresh).unlink()
