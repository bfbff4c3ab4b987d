"""Verifies users: the names and hashed passwords of a password file.

Only scrypt, each line with its own salt and cost. Pure: the text of the file and the random bytes are arguments.
`verify` takes tens of milliseconds of a core: call it, and `Passwords.check`, on a thread, not on the event loop.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from ringmq.mqtt_front.access.rule_lines import RuleFileError, fault_in_user_name, lines_of, shown

SALT_BYTES: Final = 16
"""Each line has its own salt, so that guesses must be computed for each line separately."""
KEY_BYTES: Final = 32
MIN_MEMORY_BYTES: Final = 2 << 20
"""Lower costs are refused: they make guessing too cheap for passwords."""
MAX_MEMORY_BYTES: Final = 64 << 20
"""Maximum memory of one verification, whatever a line of the file demands."""
MAX_WORK_BYTES: Final = 256 << 20
"""Memory times passes: eight times the work of `COST`, about a third of a second."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The parameters of scrypt (RFC 7914 §2), N as its logarithm. Raises ValueError when out of bounds."""

    log_n: int
    r: int
    p: int

    def __post_init__(self) -> None:
        # Checked before anything is computed with them: 1 << log_n alone could exhaust the memory.
        # RFC 7914 §2 defines scrypt only for log_n < 16 r.
        if not (1 <= self.r <= 64 and 1 <= self.log_n < min(31, 16 * self.r) and 1 <= self.p <= 64):
            raise ValueError(f"scrypt parameters are out of range: ln={self.log_n}, r={self.r}, p={self.p}")
        if not MIN_MEMORY_BYTES <= self.memory_bytes <= MAX_MEMORY_BYTES:
            raise ValueError(f"scrypt must take {MIN_MEMORY_BYTES >> 20} to {MAX_MEMORY_BYTES >> 20} MiB of memory")
        if self.memory_bytes * self.p > MAX_WORK_BYTES:
            raise ValueError("scrypt parameters demand too much work")

    @property
    def memory_bytes(self) -> int:
        return 128 * self.r << self.log_n

    @property
    def _all_bytes(self) -> int:
        """`memory_bytes` and the small buffers that OpenSSL includes in `maxmem`."""
        return 128 * self.r * ((1 << self.log_n) + 2 + self.p)

    def derive(self, password: bytes, salt: bytes) -> bytes:
        """Slow on purpose. Other threads run meanwhile, since hashlib releases the interpreter's lock."""
        n = 1 << self.log_n
        return hashlib.scrypt(password, salt=salt, n=n, r=self.r, p=self.p, maxmem=self._all_bytes, dklen=KEY_BYTES)


COST: Final = Cost(14, 8, 2)
"""The cost of new lines: 16 MiB, so that four at a time do no harm to a machine of 512 MB; two passes, some 40 ms on
the core of a small server (`python -m timeit -s "from ringmq.mqtt_front.access.passwords import COST"
"COST.derive(b'', bytes(16))"`), so that a login is bearable on a core five times slower."""

_LINE: Final = re.compile(
    r"\$scrypt\$ln=([1-9][0-9]?),r=([1-9][0-9]?),p=([1-9][0-9]?)\$([A-Za-z0-9+/]{22})\$([A-Za-z0-9+/]{43})"
)
"""The PHC string format, which passlib and others write too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a password file. Equal entries have the same user, whose password was not set again."""

    user_name: str
    cost: Cost
    salt: bytes = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def line(self) -> str:
        cost = self.cost
        return f"{self.user_name}:$scrypt$ln={cost.log_n},r={cost.r},p={cost.p}${_b64(self.salt)}${_b64(self.key)}"


def new_entry(user_name: str, password: bytes, salt: bytes, cost: Cost = COST) -> Entry:
    """Hash a password. `salt` must be SALT_BYTES of the system's random source, different in each call."""
    fault = fault_in_user_name(user_name)
    if fault or len(salt) != SALT_BYTES:
        raise ValueError(fault or f"a salt must have {SALT_BYTES} bytes, got {len(salt)}")
    return Entry(user_name, cost, salt, cost.derive(password, salt))


def verify(entry: Entry, password: bytes) -> bool:
    """Whether this is the password. Slow on purpose; any number of threads may call it.

    scrypt ignores zero bytes at the end of a password, since it begins with HMAC, which pads with them.
    """
    # Compared in constant time, so that the duration reveals nothing about the key.
    return hmac.compare_digest(entry.cost.derive(password, entry.salt), entry.key)


class Passwords:
    """The users of one password file. Its methods may be called on any thread.

    With a `memory_key` (random, of this process alone) it remembers a keyed hash of each user's right password, so that
    a site that reconnects at once after a power cut does not wait for seconds of scrypt. The memory ends with this
    object, when the file is read again; wrong passwords are never remembered.
    """

    def __init__(self, entries: Mapping[str, Entry], memory_key: bytes | None = None) -> None:
        self._entries = dict(entries)
        self._memory_key = memory_key
        self._remembered: dict[str, bytes] = {}
        self._all = tuple(self._entries.values())
        self._choice_key = hashlib.sha256(b"".join(entry.key for entry in self._all)).digest()

    @classmethod
    def parse(cls, text: str, file: str = "password file", memory_key: bytes | None = None) -> Self:
        """Read the text of a password file. Raises RuleFileError, whose text never shows a password."""
        entries: dict[str, Entry] = {}
        for number, line in lines_of(file, text):
            try:
                entry = _parse(line)
            except ValueError as error:
                raise RuleFileError(file, number, str(error)) from None
            if entry.user_name in entries:
                raise RuleFileError(file, number, f"duplicate user {shown(entry.user_name)}")
            entries[entry.user_name] = entry
        return cls(entries, memory_key)

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, user_name: str) -> Entry | None:
        return self._entries.get(user_name)

    def recall(self, user_name: str, password: bytes) -> Entry | None:
        """The user's entry if this password was verified before, in microseconds. None proves nothing: `check` it."""
        entry = self._entries.get(user_name)
        remembered = self._remembered.get(user_name)
        if entry is None or remembered is None:
            return None
        return entry if hmac.compare_digest(self._digest(entry, password), remembered) else None

    def check(self, user_name: str, password: bytes) -> Entry | None:
        """The user's entry if this is the password. As slow as `verify`, whether or not the user exists."""
        # Otherwise the duration of a refusal would reveal which user names exist.
        entry = self._entries.get(user_name)
        tried = entry or self._stand_in(user_name)
        if tried is None:
            return None
        right = verify(tried, password)
        if entry is None or not right:
            return None
        if self._memory_key is not None:
            self._remembered[user_name] = self._digest(entry, password)
        return entry

    def _stand_in(self, user_name: str) -> Entry | None:
        """The entry whose cost an unknown user pays: always the same for the same name, and unpredictable without the
        file, so that different costs within a file do not reveal which names exist.
        """
        if not self._all:
            return None
        digest = hashlib.blake2b(user_name.encode(errors="replace"), key=self._choice_key, digest_size=8).digest()
        return self._all[int.from_bytes(digest) % len(self._all)]

    def _digest(self, entry: Entry, password: bytes) -> bytes:
        assert self._memory_key is not None
        return hmac.digest(self._memory_key, entry.salt + password, "sha256")


def _parse(line: str) -> Entry:
    """Raises ValueError, whose text shows at most the user's name."""
    user_name, colon, hashed = line.partition(":")
    if not colon:
        raise ValueError("a line must have the form USER:HASH")
    fault = fault_in_user_name(user_name)
    if fault:
        raise ValueError(fault)
    match = _LINE.fullmatch(hashed)
    if match is None:
        raise ValueError(f"the password of {shown(user_name)} is not hashed by scrypt: set it with `ringmq passwd`")
    log_n, r, p, salt, key = match.groups()
    try:
        cost = Cost(int(log_n), int(r), int(p))
    except ValueError as error:
        raise ValueError(f"the line of {shown(user_name)}: {error}") from None
    entry = Entry(user_name, cost, base64.b64decode(salt + "=="), base64.b64decode(key + "="))
    # The last base64 digit has unused bits, which `passwd` never sets.
    if entry.line != line:
        raise ValueError(f"the line of {shown(user_name)} is damaged")
    return entry


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii").rstrip("=")
