"""The ACL file: its lines, written as for Mosquitto, and which of them apply to whom.

Owns the reading of the file and the filling in of names; what the rules then allow is `acl`'s. docs/access.md has the
rules for people. Given text, never a path.
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
"""That apply to one client. A rule with a wildcard or a deny is looked at for each topic and filter that is new to the
client; other rules are found in one step, and need no bound but that of the file."""
CLIENT_ID: Final = "%c"
USER_NAME: Final = "%u"
_UNFIT_IN_LEVEL: Final = frozenset("+#/\0")


class Grant(Enum):
    """What a rule does; the words of the file."""

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
    """The rules of one file. Rights it gave stay as they are when it is replaced: ask the new one again."""

    sections: Mapping[str | None, tuple[Rule, ...]]
    """By user name; None has what stands before the first `user` line, for anonymous clients."""
    patterns: tuple[Rule, ...]
    _given: WeakValueDictionary[tuple[Rule, ...], Rights] = field(
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
        """Of a client whose user name is proven; None for an anonymous one.

        A pattern that cannot be filled in with these names gives nothing. If it is one that denies, nothing at all is
        left: without it there would be more.
        """
        rules = list(self.sections.get(user_name, ()))
        for grant, pattern in self.patterns:
            if user_name is None and USER_NAME in pattern.split("/"):
                continue  # it is about somebody else
            filled = fill(pattern, user_name or "", client_id)
            if filled is not None:
                rules.append(Rule(grant, filled))
            elif grant is Grant.DENY:
                return NO_RIGHTS
        key = tuple(rules)
        rights = self._given.get(key)
        if rights is None:
            rights = self._given[key] = _rights_by(key)
        return rights


def fill(pattern: str, user_name: str, client_id: str) -> str | None:
    """The filter that a pattern is for this client. None if a name is not fit to be one level of a topic.

    A name with `+`, `#` or `/` would make it a wider filter or another one (this was CVE-2017-7650 elsewhere), and so
    would one with `$` in front at the first level: topics that begin with it are out of reach of wildcards.
    """
    levels = pattern.split("/")
    for place, level in enumerate(levels):
        if level in (CLIENT_ID, USER_NAME):
            name = client_id if level == CLIENT_ID else user_name
            if not name or not _UNFIT_IN_LEVEL.isdisjoint(name) or (place == 0 and name.startswith("$")):
                return None
            levels[place] = name
    return "/".join(levels)


def _rights_by(rules: tuple[Rule, ...]) -> Rights:
    return Rights(
        read=[rule.filter for rule in rules if rule.grant in (Grant.READ, Grant.READWRITE)],
        write=[rule.filter for rule in rules if rule.grant in (Grant.WRITE, Grant.READWRITE)],
        denied=[rule.filter for rule in rules if rule.grant is Grant.DENY],
    )


class _Reader:
    """The file line by line. All its methods raise ValueError or PacketError for a wrong one."""

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
            raise ValueError(f"{shown(word)} is not one of user, topic, pattern")

    def _begin(self, user_name: str) -> None:
        fault = fault_in_user_name(user_name)
        if fault is None and " #" in user_name:
            fault = "a comment needs a line of its own"
        if fault:
            raise ValueError(fault)
        self._user = user_name
        self.sections.setdefault(user_name, [])

    def _add_topic(self, rule: Rule) -> None:
        if not {CLIENT_ID, USER_NAME}.isdisjoint(rule.filter.split("/")):
            raise ValueError(f"{CLIENT_ID} and {USER_NAME} are filled in after 'pattern', not after 'topic'")
        self.sections[self._user].append(rule)
        self._slow[self._user] += rule.slow
        self._slow_most = max(self._slow_most, self._slow[self._user])
        self._check_number()

    def _add_pattern(self, rule: Rule) -> None:
        for level in rule.filter.split("/"):
            if level not in (CLIENT_ID, USER_NAME) and (CLIENT_ID in level or USER_NAME in level):
                raise ValueError(f"{CLIENT_ID} or {USER_NAME} must be all of a level, as in a/{CLIENT_ID}/b")
        self.patterns.append(rule)
        self._slow_patterns += rule.slow
        self._check_number()

    def _check_number(self) -> None:
        if self._slow_most + self._slow_patterns > MAX_SLOW_RULES:
            raise ValueError(f"more than {MAX_SLOW_RULES} rules with wildcards, or that deny, apply to one user")


def _rule(text: str) -> Rule:
    """`[read|write|readwrite|deny] FILTER`; without the word both, but then the filter has no space."""
    words = {grant.value: grant for grant in Grant}
    first, rest = _split(text)
    if first in words:
        grant, filter_ = words[first], rest
    elif rest:
        raise ValueError(f"{shown(first)} is not one of {', '.join(words)}")
    else:
        grant, filter_ = Grant.READWRITE, first
    if not filter_:
        raise ValueError("the filter is missing")
    if filter_.startswith(SHARED):
        raise ValueError(f"leave out {SHARED}GROUP/: a shared subscription is allowed by the filter behind it")
    check_filter(filter_)
    return Rule(grant, filter_)


def _split(text: str) -> tuple[str, str]:
    """The first word and what follows, which may have spaces in it; empty if there is none."""
    first, rest, *_ = *text.split(None, 1), "", ""
    return first, rest
