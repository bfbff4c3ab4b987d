"""`ringmq passwd`: sets and deletes the passwords in a password file, and the reading of such files and of ACL files.

What the lines mean is `mqtt_front.access.passwords`' to know. The file is replaced as a whole or not at all; all lines
but the one in question stay as they are, comments too.
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
"""A CONNECT can hold no longer one (5.0 §3.1.3.6)."""
_UTF_8_BYTES: Final = 4
"""The most of one character."""


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("user")
@click.option("--delete", is_flag=True, help="Remove the user.")
@click.option("--batch", is_flag=True, help="Read the password from standard input, one line, and ask nothing.")
def passwd(file: Path, user: str, delete: bool, batch: bool) -> None:
    """Set the password of USER in the password file FILE, which is made if there is none.

    A running peer takes the new file into account when it gets the signal SIGHUP.
    """
    fault = fault_in_user_name(user)
    if fault:
        raise ConfigError(f"{shown(user)}: {fault}")
    if delete and batch:
        raise click.UsageError("--delete and --batch do not go together", click.get_current_context())
    _parsed(file, _present(file))  # or a password would be asked for in vain
    line = None if delete else new_entry(user, _password(user, batch), secrets.token_bytes(SALT_BYTES)).line
    with _locked(file):
        old = _present(file)
        known = _parsed(file, old).entry(user) is not None
        if delete and not known:
            raise PeerError(f"{file} has no user {shown(user)}")
        new = with_line(old, user, line)
        _parsed(file, new)  # not more lines than can be read again
        _replace(file, new)
    click.echo(f"{shown(user)} {'deleted from' if delete else 'changed in' if known else 'added to'} {file}")


def read_rules(file: Path) -> str:
    """The text of a password file or an ACL file; no more of it than such a file may have. Raises PeerError."""
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
    """A password file's text with this as the user's line, without one for None. Other lines stay as they are."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    place = next((place for place, old in enumerate(lines) if _user_of(old) == user), len(lines))
    lines[place : place + 1] = [] if line is None else [line]
    return "".join(f"{one}\n" for one in lines)


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
            raise PeerError("standard input has more than one line: give it the password alone")
    elif sys.stdin.isatty():
        asked = click.prompt(f"Password of {shown(user)}", hide_input=True, confirmation_prompt=True, err=True)
        password = str(asked).encode(errors="surrogateescape")
    else:
        raise PeerError("there is no terminal to ask for the password: use --batch to read it from standard input")
    if len(password) > MAX_PASSWORD_BYTES or not password.strip(b"\0"):  # only zero bytes: the same as none at all
        raise PeerError(f"a password has 1 to {MAX_PASSWORD_BYTES} bytes")
    return password


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Lets no other `ringmq passwd` change files in this folder meanwhile, or one of two new users would be lost."""
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
    """Atomically, and on the disk when it returns. Only its owner can read the file, who stays the same."""
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
