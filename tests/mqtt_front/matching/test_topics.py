"""The rules of topic names and filters, as tables from the specification (5.0 §4.7, §4.8.2); ids name the clause."""

from __future__ import annotations

import re
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import MalformedPacketError, PacketError
from ringmq.mqtt_front.matching.topics import (
    MAX_LEVELS,
    MAX_SIZE_BYTES,
    check_filter,
    check_form,
    check_topic_name,
    is_state_of_a_bridge,
    literal_prefix,
    matches,
    parse_shared,
)

EITHER_MALFORMED = [
    pytest.param("", "is empty", id="MQTT-4.7.3-1"),
    pytest.param("a/\0", "null", id="MQTT-4.7.3-2"),
]
EITHER_UNWANTED = [
    pytest.param("x" * (MAX_SIZE_BYTES + 1), "bytes", id="MQTT-4.7.3-3"),
    pytest.param("é" * (MAX_SIZE_BYTES // 2 + 1), "bytes", id="MQTT-4.7.3-3 in bytes, not characters"),
    pytest.param("/" * MAX_LEVELS, "levels", id="too deep"),
]
EITHER_VALID = [
    pytest.param("/", id="4.7.3 a slash alone"),
    pytest.param("a//b/", id="4.7.3 empty levels"),
    pytest.param("Accounts payable", id="4.7.3 spaces"),
    pytest.param("sport/tennis/player1", id="levels"),
    pytest.param("$SYS/broker", id="4.7.2 a name that begins with a dollar"),
    pytest.param("x" * MAX_SIZE_BYTES, id="MQTT-4.7.3-3 the longest"),
    pytest.param("é" * (MAX_SIZE_BYTES // 2), id="MQTT-4.7.3-3 the longest in bytes"),
    pytest.param("/" * (MAX_LEVELS - 1), id="the deepest"),
    pytest.param("$share", id="4.8.2 no shared filter without a slash"),
]


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        *EITHER_MALFORMED,
        *EITHER_UNWANTED,
        pytest.param("a/+", "wildcard", id="MQTT-4.7.1-1 single-level"),
        pytest.param("a/#", "wildcard", id="MQTT-4.7.1-1 multi-level"),
        pytest.param("a+b", "wildcard", id="MQTT-3.3.2-2"),
    ],
)
def test_invalid_topic_names(topic: str, fault: str) -> None:
    with pytest.raises(PacketError, match=fault) as caught:
        check_topic_name(topic)
    assert caught.value.reason is Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("topic", [*EITHER_VALID, pytest.param("$share/g", id="topic names know no share")])
def test_valid_topic_names(topic: str) -> None:
    check_topic_name(topic)


MALFORMED = [
    *EITHER_MALFORMED,
    pytest.param("sport/tennis#", "whole level", id="MQTT-4.7.1-1 whole level"),
    pytest.param("sport/tennis/#/ranking", "last level", id="MQTT-4.7.1-1 last"),
    pytest.param("#/", "last level", id="MQTT-4.7.1-1 last, before an empty level"),
    pytest.param("##", "whole level", id="MQTT-4.7.1-1 twice"),
    pytest.param("sport+", "whole level", id="MQTT-4.7.1-2"),
    pytest.param("a/+b/c", "whole level", id="MQTT-4.7.1-2 inside"),
    pytest.param("++", "whole level", id="MQTT-4.7.1-2 twice"),
]
MALFORMED_SHARED = [
    pytest.param("$share/", "empty share name", id="MQTT-4.8.2-1 nothing"),
    pytest.param("$share//a", "empty share name", id="MQTT-4.8.2-1 empty"),
    pytest.param("$share/g", "no filter", id="MQTT-4.8.2-2 no slash"),
    pytest.param("$share/g/", "no filter", id="MQTT-4.8.2-2 no filter"),
]


@pytest.mark.parametrize(
    ("topic_filter", "fault"),
    [
        *MALFORMED,
        *MALFORMED_SHARED,
        pytest.param("$share/+/a", "share name", id="MQTT-4.8.2-2 plus"),
        pytest.param("$share/g#/a", "share name", id="MQTT-4.8.2-2 hash"),
        pytest.param("$share/g/a#", "whole level", id="MQTT-4.8.2-2 the filter inside"),
    ],
)
def test_what_is_no_filter_is_malformed(topic_filter: str, fault: str) -> None:
    for check in (check_filter, partial(check_form, knows_shares=True)):
        with pytest.raises(MalformedPacketError, match=fault):
            check(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "fault"),
    [
        *MALFORMED,
        pytest.param("$share/+g/a", "whole level", id="MQTT-4.7.1-3 of 3.1.1"),
        pytest.param("$share/g/a#", "whole level", id="MQTT-4.7.1-2 of 3.1.1"),
    ],
)
def test_what_is_no_filter_in_mqtt_3(topic_filter: str, fault: str) -> None:
    with pytest.raises(MalformedPacketError, match=fault):
        check_form(topic_filter, knows_shares=False)


@pytest.mark.parametrize("topic_filter", ["$share/", "$share//a", "$share/g", "$share/g/", "$share/+/a"])
def test_mqtt_3_knows_no_share_names(topic_filter: str) -> None:
    check_form(topic_filter, knows_shares=False)


@pytest.mark.parametrize(
    ("topic_filter", "fault"),
    [
        *EITHER_UNWANTED,
        pytest.param("$share/g/" + "x" * (MAX_SIZE_BYTES - 8), "bytes", id="MQTT-4.7.3-3 with the share name"),
    ],
)
def test_filters_that_are_not_accepted_are_well_formed(topic_filter: str, fault: str) -> None:
    check_form(topic_filter, knows_shares=True)
    with pytest.raises(PacketError, match=fault) as caught:
        check_filter(topic_filter)
    assert caught.value.reason is Reason.TOPIC_FILTER_INVALID


@pytest.mark.parametrize(
    ("topic", "is_state"),
    [
        ("$SYS/broker/connection/host.name/state", True),
        ("$SYS/broker/connection//state", False),
        ("$SYS/broker/connection/state", False),
        ("$SYS/broker/connection/a/b/state", False),
        ("$SYS/broker/connection/a/state/", False),
        ("$SYS/broker/connection/a", False),
        ("SYS/broker/connection/a/state", False),
    ],
)
def test_states_of_bridges(topic: str, is_state: bool) -> None:
    assert is_state_of_a_bridge(topic) is is_state


@pytest.mark.parametrize(
    "topic_filter",
    [
        *EITHER_VALID,
        "#",
        "+",
        "/+",
        "+/+",
        "sport/tennis/#",
        "+/tennis/#",
        "sport/+/player1",
        "$SYS/#",
        "$share/g/#",
        "$share/g//",
        "$share/consumer1/sport/tennis/+",
        pytest.param("$share/g/" + "/" * (MAX_LEVELS - 1), id="the deepest, shared"),
    ],
)
def test_valid_filters(topic_filter: str) -> None:
    check_filter(topic_filter)


def test_an_error_is_one_short_line() -> None:
    with pytest.raises(PacketError) as caught:
        check_topic_name("\n" * 1000 + "#")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_surrogates_are_no_failure_of_the_check() -> None:
    check_topic_name("\ud800" * (MAX_SIZE_BYTES // 3))


@pytest.mark.parametrize(
    ("topic_filter", "parsed"),
    [
        ("$share/g/a/b", ("g", "a/b")),
        ("$share/g//a", ("g", "/a")),
        ("$share/g/#", ("g", "#")),
        ("$share/g/$share/h/a", ("g", "$share/h/a")),
        ("$share", None),
        ("$shared/g/a", None),
        ("a/$share/g/b", None),
    ],
)
def test_parse_shared(topic_filter: str, parsed: tuple[str, str] | None) -> None:
    assert parse_shared(topic_filter) == parsed


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        # The examples of §4.7.1.2, §4.7.1.3, §4.7.2 and §4.7.3, in their order.
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "sport/tennis", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+", "sport", True),
        ("+/tennis/#", "sport/tennis/x", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        pytest.param("#", "$SYS/a", False, id="MQTT-4.7.2-1 hash"),
        pytest.param("#", "$SYS", False, id="MQTT-4.7.2-1 hash, one level"),
        pytest.param("+/monitor/Clients", "$SYS/monitor/Clients", False, id="MQTT-4.7.2-1 plus"),
        pytest.param("+/#", "$SYS/a", False, id="MQTT-4.7.2-1 plus and hash"),
        pytest.param("$SYS/#", "$SYS/monitor", True, id="4.7.2 named, hash"),
        pytest.param("$SYS/#", "$SYS", True, id="4.7.2 named, parent"),
        pytest.param("$SYS/monitor/+", "$SYS/monitor/Clients", True, id="4.7.2 named, plus"),
        pytest.param("+/$SYS", "a/$SYS", True, id="4.7.2 only the first level"),
        pytest.param("ACCOUNTS", "Accounts", False, id="MQTT-4.7.3 case"),
        pytest.param("/a", "a", False, id="4.7.3 leading slash"),
        pytest.param("a/", "a", False, id="4.7.3 trailing slash"),
        pytest.param("A\u030a", "\u00c5", False, id="MQTT-4.7.3-4 no normalization"),
        ("a/b", "a/b", True),
        ("a/b/#", "a", False),
        ("a/+/c", "a/b/d", False),
        ("a/#", "ab", False),
        ("+/#", "a", True),
        ("/#", "", True),
    ],
)
def test_matches(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


LEVEL = st.sampled_from(["", "a", "b", "$a"])


@given(st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=5), st.booleans(), st.lists(LEVEL, min_size=1))
def test_matches_as_a_pattern_would(wanted: list[str], rest: bool, levels: list[str]) -> None:
    """A second opinion that shares no code: the filter as a regular expression."""
    pattern = "/".join("[^/]*" if level == "+" else re.escape(level) for level in wanted) + "(/.*)?" * rest
    topic = "/".join(levels)
    hidden = topic.startswith("$") and wanted[0] == "+"
    expected = re.fullmatch(pattern, topic) is not None and not hidden
    assert matches("/".join(wanted + ["#"] * rest), topic) is expected


@pytest.mark.parametrize(
    ("topic_filter", "prefix"),
    [
        ("a/b/+/c", "a/b"),
        ("a/b/#", "a/b"),
        ("a/+/b/#", "a"),
        ("#", ""),
        ("+/x", ""),
        ("/+", ""),
        ("//#", "/"),
        ("/a/+", "/a"),
        ("a/b", "a/b"),
        ("a/", "a/"),
    ],
)
def test_literal_prefix(topic_filter: str, prefix: str) -> None:
    assert literal_prefix(topic_filter) == prefix
