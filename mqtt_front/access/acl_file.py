"""The ACL file: its lines, in the syntax of Mosquitto, and the rules that apply to a client.

Owns the parsing of the file and the substitution of names; `acl` evaluates the rules. docs/access.md describes the
rules for users. Given text, never a path.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Self
from weakref import WeakValueDictionary

from ringmq.mqtt_front.access.acl import NO_RIGHTS, Rights
from ringmq.mqtt_front.access.rule_lines import RuleFileError, fault_in_user_name, lines_of, shown
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import SHARED, check_filter, has_wildcard

MAX_SLOW_RULES: Final = 256
"""Maximum number of slow rules for one client. A rule with a wildcard or a deny is checked for each topic and filter
that is new to the client; other rules are found in one step, and the size of the file bounds them."""
CLIENT_ID: Final = "%c"
USER_NAME: Final = "%u"
_UNFIT_IN_LEVEL: Final = frozenset("+#/\0")


class Grant(Enum):
    """The effect of a rule, by its keyword in the file."""

    READ = "read"
    WRITE = "write"
    READWRITE = "readwrite"
    DENY = "deny"


class Rule(NamedTuple):
    grant: Grant
    filter: str

    @property
    def slow(self) -> bool:
        return self.grant is Grant.DENY or has_wildcard(self.filter)


@dataclass(frozen=True, slots=True)
class Acl:
    """The rules of one file. Replacing it does not change Rights that it has returned: ask the new file again."""

    sections: Mapping[str | None, tuple[Rule, ...]]
    """Rules by user name; None for the rules before the first `user` line, which hold for anonymous clients."""
    patterns: tuple[Rule, ...]
    _shared: WeakValueDictionary[tuple[Rule, ...], Rights] = field(
        default_factory=WeakValueDictionary, repr=False, compare=False
    )

    @classmethod
    def parse(cls, text: str, file: str = "ACL file") -> Self:
        """Read the text of an ACL file. Raises RuleFileError."""
        reader = _Reader()
        for number, line in lines_of(file, text):
            try:
                reader.read(line)
            except (ValueError, PacketError) as error:
                raise RuleFileError(file, number, str(error)) from None
        return cls({name: tuple(rules) for name, rules in reader.sections.items()}, tuple(reader.patterns))

    def rights(self, user_name: str | None, client_id: str) -> Rights:
        """The rights of a client with a proven user name, or None for an anonymous client.

        A pattern that these names cannot fill in grants nothing. If such a pattern denies, the client has no rights at
        all: ignoring it would grant more than the file allows.
        """
        rules = list(self.sections.get(user_name, ()))
        for grant, pattern in self.patterns:
            if user_name is None and USER_NAME in pattern.split("/"):
                continue  # An anonymous client has no user name, so the pattern cannot mean it.
            filled = fill(pattern, user_name or "", client_id)
            if filled is not None:
                rules.append(Rule(grant, filled))
            elif grant is Grant.DENY:
                return NO_RIGHTS
        # Shared by clients with equal rules, so that thousands of anonymous clients have one cache of topics.
        key = tuple(rules)
        rights = self._shared.get(key)
        if rights is None:
            rights = self._shared[key] = _rights_by(key)
        return rights


def fill(pattern: str, user_name: str, client_id: str) -> str | None:
    """The filter that results from a pattern for this client. None if a name cannot be one level of a topic.

    A name with `+`, `#` or `/` would result in a wider or different filter (as in Mosquitto's CVE-2017-7650), and so
    would a name with `$` at the start of the first level, since wildcards do not reach topics that begin with it.
    """
    levels = pattern.split("/")
    for index, level in enumerate(levels):
        if level in (CLIENT_ID, USER_NAME):
            name = client_id if level == CLIENT_ID else user_name
            if not name or not _UNFIT_IN_LEVEL.isdisjoint(name) or (index == 0 and name.startswith("$")):
                return None
            levels[index] = name
    return "/".join(levels)


def _rights_by(rules: tuple[Rule, ...]) -> Rights:
    return Rights(
        read=[rule.filter for rule in rules if rule.grant in (Grant.READ, Grant.READWRITE)],
        write=[rule.filter for rule in rules if rule.grant in (Grant.WRITE, Grant.READWRITE)],
        denied=[rule.filter for rule in rules if rule.grant is Grant.DENY],
    )


class _Reader:
    """Parses the file line by line. All methods raise ValueError or PacketError for an invalid line."""

    def __init__(self) -> None:
        self.sections: dict[str | None, list[Rule]] = {None: []}
        self.patterns: list[Rule] = []
        self._user: str | None = None
        self._slow: Counter[str | None] = Counter()
        self._slow_most = 0
        self._slow_patterns = 0

    def read(self, line: str) -> None:
        word, rest = _split(line)
        if word == "user":
            self._begin(rest)
        elif word == "topic":
            self._add_topic(_rule(rest))
        elif word == "pattern":
            self._add_pattern(_rule(rest))
        else:
            raise ValueError(f"the first word must be user, topic or pattern, got {shown(word)}")

    def _begin(self, user_name: str) -> None:
        fault = fault_in_user_name(user_name)
        # A name may contain spaces, so a comment behind it would silently become part of it.
        if fault is None and " #" in user_name:
            fault = "a comment must be on a line of its own"
        if fault:
            raise ValueError(fault)
        self._user = user_name
        self.sections.setdefault(user_name, [])

    def _add_topic(self, rule: Rule) -> None:
        if not {CLIENT_ID, USER_NAME}.isdisjoint(rule.filter.split("/")):
            raise ValueError(f"{CLIENT_ID} and {USER_NAME} need the keyword 'pattern', got 'topic'")
        self.sections[self._user].append(rule)
        self._slow[self._user] += rule.slow
        self._slow_most = max(self._slow_most, self._slow[self._user])
        self._check_number()

    def _add_pattern(self, rule: Rule) -> None:
        for level in rule.filter.split("/"):
            if level not in (CLIENT_ID, USER_NAME) and (CLIENT_ID in level or USER_NAME in level):
                raise ValueError(f"{CLIENT_ID} or {USER_NAME} must be a whole level, as in a/{CLIENT_ID}/b")
        self.patterns.append(rule)
        self._slow_patterns += rule.slow
        self._check_number()

    def _check_number(self) -> None:
        # The patterns apply to each user, so they count beside the rules of the user with the most.
        if self._slow_most + self._slow_patterns > MAX_SLOW_RULES:
            raise ValueError(f"at most {MAX_SLOW_RULES} rules with wildcards or deny may apply to one user")


def _rule(text: str) -> Rule:
    """Parse `[read|write|readwrite|deny] FILTER`; without a keyword readwrite, the filter without spaces."""
    words = {grant.value: grant for grant in Grant}
    first, rest = _split(text)
    if first in words:
        grant, filter_ = words[first], rest
    elif rest:
        raise ValueError(f"the access must be one of {', '.join(words)}, got {shown(first)}")
    else:
        grant, filter_ = Grant.READWRITE, first
    if not filter_:
        raise ValueError("the filter is missing")
    if filter_.startswith(SHARED):
        raise ValueError(f"omit {SHARED}GROUP/: the filter behind it allows the shared subscription")
    check_filter(filter_)
    return Rule(grant, filter_)


def _split(text: str) -> tuple[str, str]:
    """The first word and the rest, which may contain spaces; empty texts if they are absent."""
    first, rest, *_ = *text.split(None, 1), "", ""
    return first, rest
