"""A TOML file of settings: read within bounds, and its names compared with the known names.

The meaning of the names is for `peer.settings.load`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from ringmq.peer.errors import ConfigError

MAX_FILE_BYTES: Final = 1 << 20
"""Hundreds of times the size of a file with all settings."""
MAX_UNKNOWN: Final = 20
"""Unknown names with an error line of their own. A file with more is not for RingMQ, and each hint costs a search."""
_SHOWN_CHARS: Final = 200


def read_toml(file: Path) -> dict[str, object]:
    """Read the file, but not more than MAX_FILE_BYTES of it. Raises ConfigError with one line."""
    try:
        with file.open("rb") as source:
            # The file may be a device such as /dev/zero, which has no end and no size to check before.
            raw = source.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"config: cannot read {file}: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"config: {file} is longer than {MAX_FILE_BYTES} bytes")
    # A peer without a file, or without a wrong name in it, does without these modules: 200 kB.
    import tomllib  # noqa: PLC0415

    try:
        return tomllib.loads(raw.decode("utf-8"))
    except RecursionError:
        raise ConfigError(f"config: {file} is nested too deeply") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number with thousands of digits
        raise ConfigError(f"config: {file} is not TOML: {error}") from error


def check_names(names: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise ConfigError for unknown names. `where` begins each line: the file, and the word for such a name."""
    unknown = [name for name in names if name not in known]
    lines = [f"{where} {_named(name)}: {_hint(name, known)}" for name in unknown[:MAX_UNKNOWN]]
    if unknown[MAX_UNKNOWN:]:
        lines.append(f"{where}: {len(unknown) - MAX_UNKNOWN} more")
    if lines:
        raise ConfigError(*lines)


def _named(name: str) -> str:
    return name if name.isprintable() and len(name) <= _SHOWN_CHARS else shown(name)


def _hint(name: str, known: Collection[str]) -> str:
    import difflib  # noqa: PLC0415

    near = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
    return f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"


def shown(value: object) -> str:
    """Text of a wrong value for an error: one line of limited length."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number with thousands of digits, tables in tables in tables
        return "this value"
    return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
