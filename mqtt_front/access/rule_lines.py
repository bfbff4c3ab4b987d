"""The syntax that the password file and the ACL file share: bounded lines of text, comments, user names, one error.

Given text, never a path: `peer` reads the files.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

from ringmq.mqtt_front.errors import FrontError

MAX_FILE_CHARS: Final = 1 << 20
"""Room for ten thousand users, or twice as many rules; a longer file was named by mistake."""
MAX_LINE_CHARS: Final = 1024
"""Far longer than any sensible line, and short enough to show in an error."""
MAX_USER_NAME_CHARS: Final = 256
_SHOWN_CHARS: Final = 60
_UNFIT_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, surrogates, line and paragraph separators. MQTT strings cannot contain surrogates and should not
contain control characters (5.0 §1.5.4); separators look like the end of a line. Unicode cannot extend these sets."""
_BYTE_ORDER_MARK: Final = "\ufeff"
"""Some editors write it at the start of a file, where it would become part of the first user's name."""


class RuleFileError(FrontError):
    """A file of rules cannot be used; the text is one line that names the file and the line in it."""

    def __init__(self, file: str, line: int | None, text: str) -> None:
        super().__init__(f"{file}: {text}" if line is None else f"{file}:{line}: {text}")
        self.file = file
        self.line = line


def lines_of(file: str, text: str) -> Iterator[tuple[int, str]]:
    """The lines that are neither empty nor comments, stripped, with their numbers. Raises RuleFileError.

    Only a `#` at the start of a line begins a comment, since filters and names may contain it. Errors do not show the
    line, which may contain a password.
    """
    if len(text) > MAX_FILE_CHARS:
        raise RuleFileError(file, None, f"longer than {MAX_FILE_CHARS} characters")
    # Not `splitlines`, which also splits at characters that a filter may contain, such as U+0085.
    for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split("\n"), 1):
        if len(line) > MAX_LINE_CHARS:
            raise RuleFileError(file, number, f"longer than {MAX_LINE_CHARS} characters")
        bare = line.strip(" \t\r")
        if bare and not bare.startswith("#"):
            yield number, bare


def fault_in_user_name(name: str) -> str | None:
    """The fault of a user name in these files; None if it is valid."""
    if not 0 < len(name) <= MAX_USER_NAME_CHARS:
        return f"a user name must have 1 to {MAX_USER_NAME_CHARS} characters, got {len(name)}"
    if ":" in name:
        return "a user name must not contain ':'"
    if name.startswith("#") or name != name.strip():
        return "a user name must not begin with '#' or have spaces around it"
    if name.startswith(_BYTE_ORDER_MARK) or any(unicodedata.category(char) in _UNFIT_CATEGORIES for char in name):
        return "a user name must not contain control characters"
    return None


def shown(text: str) -> str:
    """`text` as an error shows it: on one line, and shortened."""
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")
