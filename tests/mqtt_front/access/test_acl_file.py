"""The ACL file: the rules of each client, names that would widen a pattern, and errors with their line."""

from __future__ import annotations

import contextlib
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.access.acl import NO_RIGHTS, Rights
from ringmq.mqtt_front.access.acl_file import MAX_SLOW_RULES, Acl, Grant, Rule, fill
from ringmq.mqtt_front.access.rule_lines import RuleFileError
from ringmq.mqtt_front.matching.topics import matches

TEXT = """\
# anonymous clients
topic read public/#

user alice
topic sensors/#
topic deny sensors/secret
topic\tread   two words/+

pattern readwrite home/%u/#
pattern write status/%c

user bob
topic write log
user alice
topic read log
"""
ACL = Acl.parse(TEXT)


@pytest.mark.parametrize(
    ("user_name", "readable", "writable"),
    [
        (None, {"public/x"}, {"status/c1"}),
        ("alice", {"sensors/x", "two words/x", "home/alice/x", "log"}, {"sensors/x", "home/alice/x", "status/c1"}),
        ("bob", {"home/bob/x"}, {"log", "home/bob/x", "status/c1"}),
        ("eve", {"home/eve/x"}, {"home/eve/x", "status/c1"}),
    ],
)
def test_rules_apply_by_user_and_client_id(user_name: str | None, readable: set[str], writable: set[str]) -> None:
    """Lines before the first `user` are for anonymous clients alone, patterns for all, wherever they stand."""
    topics = {
        *(
            "public/x",
            "sensors/x",
            "sensors/secret",
            "two words/x",
            "log",
            "status/c1",
            "status/c2",
            "home/x",
            "home//x",
        ),
        *("home/alice/x", "home/bob/x", "home/eve/x", "home/%u/x", "status/%c"),
    }
    rights = ACL.rights(user_name, "c1")
    assert {topic for topic in topics if rights.may_read(topic)} == readable
    assert {topic for topic in topics if rights.may_write(topic)} == writable


def test_deny_wins_wherever_it_stands() -> None:
    """Over patterns too, unlike in Mosquitto, where a user's own lines come first."""
    for text in (
        "user a\ntopic x/#\ntopic deny x/y",
        "user a\ntopic deny x/y\ntopic x/#",
        "user a\ntopic deny x/y\npattern x/#",
        "pattern deny x/y\nuser a\ntopic x/#",
        "user a\ntopic x/#\npattern deny x/%c",
        "user a\ntopic x/#\npattern deny +/y",
        "user a\ntopic x/y\npattern deny #",
    ):
        rights = Acl.parse(text).rights("a", "y")
        assert not rights.may_read("x/y")
        assert not rights.may_write("x/y")
        assert not rights.may_subscribe("x/y")


def test_an_empty_file_allows_nothing() -> None:
    for rights in (Acl.parse("").rights(None, "c"), Acl.parse("user a").rights("a", "c")):
        assert not rights.may_read("x")
        assert not rights.may_write("x")
        assert not rights.may_subscribe("#")


UNFIT = ["", "#", "+", "a/b", "a/#", "/", "a+", "#b", "a\0b"]


@pytest.mark.parametrize("name", UNFIT)
def test_a_name_does_not_widen_a_pattern(name: str) -> None:
    by_id = Acl.parse("pattern readwrite dev/%c/#").rights(None, name)
    by_user = Acl.parse("pattern readwrite dev/%u/#").rights(name, "c")
    for rights in (by_id, by_user):
        for topic in ("dev", "dev/x", "dev/other/x", "dev//x", "dev/a/b", "dev/a/b/x", f"dev/{name}/x"):
            assert not rights.may_read(topic)
            assert not rights.may_write(topic)
        for filter_ in ("dev/#", "dev/+/#", "dev/x", f"dev/{name}/x", f"dev/{name}"):
            assert not rights.may_subscribe(filter_)


def test_an_unfit_name_costs_the_patterns_only() -> None:
    rights = Acl.parse("topic read news\npattern write dev/%c").rights(None, "#")
    assert rights.may_read("news")
    assert not rights.may_write("dev/#")


@pytest.mark.parametrize("name", ["$SYS", "$share", "$x"])
def test_a_name_does_not_reach_topics_of_the_server(name: str) -> None:
    acl = Acl.parse("pattern readwrite %c/#")
    assert not acl.rights(None, name).may_read(f"{name}/load")
    assert not acl.rights(None, name).may_subscribe(f"{name}/#")
    assert acl.rights(None, "SYS").may_read("SYS/load")
    assert Acl.parse("pattern readwrite dev/%c/#").rights(None, name).may_read(f"dev/{name}/x"), "there it is a name"


@pytest.mark.parametrize("name", [*UNFIT, "$x"])
def test_a_deny_pattern_cannot_be_dodged_by_a_name(name: str) -> None:
    for pattern in ("pattern deny %c/private", "pattern deny data/+/%u", "pattern deny %u/#"):
        rights = Acl.parse(f"pattern data/#\n{pattern}").rights(name, name)
        assert rights is NO_RIGHTS or name == "$x"
        assert not rights.may_read("data/x/y") or name == "$x"
    assert Acl.parse("pattern data/#\npattern deny %c/private").rights(None, "$x") is NO_RIGHTS


def test_patterns_with_a_user_name_are_not_about_anonymous_clients() -> None:
    rights = Acl.parse("topic read data/#\npattern deny data/%u\npattern %u/%c").rights(None, "#")
    assert rights.may_read("data/x")
    assert not rights.may_write("/x")


def test_names_are_not_filled_in_twice() -> None:
    acl = Acl.parse("pattern dev/%u/%c")
    assert acl.rights("%c", "secret").may_read("dev/%c/secret")
    assert not acl.rights("%c", "secret").may_read("dev/secret/secret")
    assert not acl.rights("u", "%u").may_read("dev/u/u")


@given(st.text(alphabet="ab+#/$%cu\0", max_size=4), st.text(alphabet="ab+#/$%cu", max_size=4))
def test_a_filled_pattern_allows_one_name_alone(user_name: str, client_id: str) -> None:
    pattern = "x/%u/+/%c/#"
    filled = fill(pattern, user_name, client_id)
    if filled is not None:
        assert filled.count("/") == pattern.count("/")
        assert filled.split("/")[1::2] == [user_name, client_id]
        assert matches(filled, f"x/{user_name}/any/{client_id}/more")
        for other in ("a", "b", "ab"):
            assert matches(filled, f"x/{other}/any/{client_id}/y") == (other == user_name)
            assert matches(filled, f"x/{user_name}/any/{other}/y") == (other == client_id)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("topic a/b", Rule(Grant.READWRITE, "a/b")),
        ("topic readwrite a b", Rule(Grant.READWRITE, "a b")),
        ("topic readwrite read", Rule(Grant.READWRITE, "read")),
        ("topic read #", Rule(Grant.READ, "#")),
        ("  topic\twrite\t+/x  ", Rule(Grant.WRITE, "+/x")),
        ("topic deny $SYS/#", Rule(Grant.DENY, "$SYS/#")),
        ("topic Read", Rule(Grant.READWRITE, "Read")),
        ("topic 100%/x", Rule(Grant.READWRITE, "100%/x")),
    ],
)
def test_a_rule(line: str, rule: Rule) -> None:
    assert Acl.parse(line).sections[None] == (rule,)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("topics a", "must be user, topic or pattern, got 'topics'"),
        ("Topic a", "must be user, topic or pattern, got 'Topic'"),
        ("topic", "the filter is missing"),
        ("topic read", "the filter is missing"),
        ("pattern", "the filter is missing"),
        ("topic reads a", "must be one of read, write, readwrite, deny, got 'reads'"),
        ("topic a b", "must be one of read, write, readwrite, deny, got 'a'"),
        ("topic read a # ours", "wildcard that is not a whole level"),
        ("topic read a/#/b", "'#' that is not its last level"),
        ("topic read a+", "wildcard that is not a whole level"),
        ("topic read a\0b", "null character"),
        ("topic read $share/g/a", "omit $share/GROUP/"),
        ("pattern read $share/%c/a", "omit $share/GROUP/"),
        ("topic read dev/%c", "%c and %u need the keyword 'pattern', got 'topic'"),
        ("pattern read dev-%c", "%c or %u must be a whole level"),
        ("pattern read %u%c/x", "%c or %u must be a whole level"),
        ("user", "a user name must have 1 to 256 characters, got 0"),
        ("user a:b", "a user name must not contain ':'"),
        ("user a\x07", "must not contain control characters"),
        ("user bob # the builder", "a comment must be on a line of its own"),
    ],
)
def test_a_bad_line_is_one_clear_error(line: str, says: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        Acl.parse(f"# ours\r\n{line}\r\n", "acl.txt")
    assert str(caught.value).startswith("acl.txt:2: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="topicuser adnyw+#/%$\n\0", max_size=60))
def test_garbage_gives_only_the_one_error(text: str) -> None:
    with contextlib.suppress(RuleFileError):
        Acl.parse(text)


def test_slow_rules_of_one_client_are_bounded() -> None:
    fast = "topic x\n" * 2 * MAX_SLOW_RULES
    text = fast + "user a\n" + "topic +/x\n" * (MAX_SLOW_RULES - 1) + "user b\ntopic +/x\ntopic deny x\n" + fast
    Acl.parse(text + "pattern +/x")
    for more in ("pattern +/x\npattern +/y", "user a\ntopic +/x\ntopic +/y", "user a\ntopic deny x\ntopic deny y"):
        with pytest.raises(RuleFileError, match=f"at most {MAX_SLOW_RULES} rules"):
            Acl.parse(text + more)


def test_the_same_rules_are_the_same_rights() -> None:
    acl = Acl.parse("user a\ntopic x\nuser b\ntopic x\npattern write own/%u")
    assert acl.rights("a", "c1") is acl.rights("a", "c2")
    assert acl.rights("a", "c1") is not acl.rights("b", "c1")
    by_id = Acl.parse("pattern own/%c")
    assert by_id.rights("a", "c1") is not by_id.rights("a", "c2")


def test_rights_of_gone_clients_are_not_kept() -> None:
    acl = Acl.parse("pattern own/%c")
    kept: list[Rights] = [acl.rights(None, f"c{number}") for number in range(100)]
    assert len(acl._shared) == 100
    del kept[:]
    gc.collect()
    assert len(acl._shared) == 0
