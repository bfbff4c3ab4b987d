"""What the password file and the ACL file have in common: bounded lines of text, comments, user names, one error.

Given text, never a path: reading files is for `peer`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

from ringmq.mqtt_front.errors import FrontError

MAX_FILE_CHARS: Final = 1 << 20
"""Ten thousand users, or twice as many rules; what is longer is another file, named by mistake."""
MAX_LINE_CHARS: Final = 1024
"""Far above any line that makes sense, and short enough to be shown."""
MAX_USER_NAME_CHARS: Final = 256
_SHOWN_CHARS: Final = 60
_UNFIT_CATEGORIES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Control characters, halves of surrogate pairs, line and paragraph separators: the first three kinds cannot come in
an MQTT string (5.0 §1.5.4) or should not, the last look like the end of a line. No version of Unicode adds to them."""
_BYTE_ORDER_MARK: Final = "\ufeff"
"""Some editors put it at the start of a file. Left there, it would be part of the first user's name."""


class RuleFileError(FrontError):
    """A file of rules cannot be used; the text is one line that names the file and the line in it."""

    def __init__(self, file: str, line: int | None, text: str) -> None:
        super().__init__(f"{file}: {text}" if line is None else f"{file}:{line}: {text}")
        self.file = file
        self.line = line


def lines_of(file: str, text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, with their numbers, without space around them. Raises RuleFileError.

    A `#` makes a comment only where a line begins with it: it may stand in filters and in names. No line is shown in
    an error here, as it may hold a password.
    """
    if len(text) > MAX_FILE_CHARS:
        raise RuleFileError(file, None, f"longer than {MAX_FILE_CHARS} characters")
    for number, line in enumerate(text.removeprefix(_BYTE_ORDER_MARK).split("\n"), 1):
        if len(line) > MAX_LINE_CHARS:
            raise RuleFileError(file, number, f"longer than {MAX_LINE_CHARS} characters")
        bare = line.strip(" \t\r")
        if bare and not bare.startswith("#"):
            yield number, bare


def fault_in_user_name(name: str) -> str | None:
    """What is wrong with a name that is to stand in these files; None if nothing is."""
    if not 0 < len(name) <= MAX_USER_NAME_CHARS:
        return f"a user name has 1 to {MAX_USER_NAME_CHARS} characters"
    if ":" in name:
        return "a user name has no ':'"
    if name.startswith("#") or name != name.strip():
        return "a user name neither begins with '#' nor has space around it"
    if name.startswith(_BYTE_ORDER_MARK) or any(unicodedata.category(char) in _UNFIT_CATEGORIES for char in name):
        return "a user name has no control characters"
    return None


def shown(text: str) -> str:
    """`text` as it may stand in an error: on one line, and not long."""
    return repr(text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…")
