"""`ringmq status`: the table for people, and what it says when nobody answers."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ringmq.peer.cli.status import MAX_ROWS, duration, lines_of, lines_of_topic, name_of, size, table

LEAF = {"id": "4" * 32, "address": "127.0.0.1:4884"}
ANSWER: dict[str, Any] = {
    "id": "3f2a9c01" + "0" * 24,
    "address": "127.0.0.1:4883",
    "ring": "hall 7",
    "active": True,
    "uptime_s": 125.2,
    "neighbours": {"clockwise": LEAF, "counterclockwise": LEAF},
    "leaves": {"clockwise": [LEAF, LEAF], "counterclockwise": [LEAF]},
    "table_size": 7,
    "suspects": 0,
    "dead": 1,
    "links": [
        {**LEAF, "rtt_ms": 0.52, "bytes_out": 12_345, "bytes_in": 999, "queued_bytes": 70},
        {
            "id": "0" * 32,
            "address": "[::1]:48831",
            "rtt_ms": None,
            "bytes_out": 0,
            "bytes_in": 3_400_000_000,
            "queued_bytes": 5,
        },
        {"rtt_ms": 1.0, "bytes_out": 0, "bytes_in": 0, "queued_bytes": 0},
    ],
    "ring_counters": {"delivered": 1234567, "deaths": 0, "joins_granted": 1},
    "counters": {"frames_refused": 2},
}

IN_STEP, BEHIND = {**LEAF, "in_step": True}, {**LEAF, "in_step": False}


def partition(number: int, role: str = "coordinator") -> dict[str, Any]:
    counts = {"reign": 3, "entries": 1234, "retained": 17, "holders": 2}
    return {"partition": number, "role": role, **counts, "shadows": [IN_STEP, BEHIND]}


def topic(name: str, fanout: int | None = None, peers: int | None = None) -> dict[str, Any]:
    dispatch = "direct" if fanout is None else "guided"
    told = {"topic": name, "dispatch": dispatch, "fanout": fanout, "peers": peers}
    return told | {"waiting": 5, "trusted_s": 2.0449}


LISTENERS = {"mqtt": "127.0.0.1:1883", "mqtt_ws": "127.0.0.1:8083"}
FRONT = {
    "clients": 3,
    "counters": {
        "publish_received": 1234,
        "publish_sent": 5,
        "publish_dropped": 6,
        "bytes_received": 7,
        "bytes_sent": 8_000_000,
        "refused": 0,
        "log_received": 0,
        "log_sent": 0,
        "log_dropped": 0,
        "log_bytes_received": 0,
        "log_bytes_sent": 0,
    },
}
ROLES = {
    "partitions": {
        "total": 4,
        "coordinated": 2,
        "owned": 1365,
        "gathering": 1,
        "shadowed": 2731,
        "entries": 2468,
        "lasting": 100,
        "away": 7,
    }
    | {"retained": 34, "holders": 2, "shadows_total": 4, "out_of_step": 1, "silent": []}
    | {"shown": [partition(7), partition(4095), partition(8, "gathering"), partition(9, "shadow")]},
    "publishing": {
        "topics_total": 2,
        "topics": [topic("a/b", 4, 12), topic("x")],
        "held": 4096,
        "trusted": 4095,
        "routes": 1234,
    },
    "subscribing": {
        "total": 5,
        "wide": 0,
        "stages": {"asking": 1, "fetching": 0, "in_force": 2, "changing": 1, "leaving": 1},
        "filters": [],
    },
    "queues": {"waiting_bytes": 2000, "unacknowledged": 1, "peers_total": 1, "peers": []},
    "counters": {"published": 9, "resent": 0},
}
SERVING = ANSWER | {"pubsub": ROLES, "listeners": LISTENERS, "front": FRONT}

SHOWN_SERVING = """\
also known  7 in the table, 0 suspected, 1 dead
clients     3 on mqtt 127.0.0.1:1883, mqtt_ws 127.0.0.1:8083
messages    1,234 in (7 B), 5 out (8.0 MB), 6 dropped
partitions  1,365 owned, 2,731 shadowed, 1 being taken over
keeps       2,468 entries (100 lasting), 7 of peers that are away, 34 retained messages
followers   1 of 4 shadows out of step, routes at 2 peers
publishes   2 topics by 1,234 routes, 4,096 partitions held of which 4,095 are trusted
subscribes  3 filters in force, 2 on their way
waiting     2.0 kB for peers, 1 messages unacknowledged, 75 B on links

coordinates  epoch  entries  retained  holders  in step
7            3        1,234        17        2   1 of 2
4095         3        1,234        17        2   1 of 2

publishes  dispatch  peers  waiting  trusted for
a/b        guided 4     12        5        2.0 s
x          direct        -        5        2.0 s

link      address         round trip     sent  received
00000000  [::1]:48831              -      0 B    3.4 GB
44444444  127.0.0.1:4884     0.52 ms  12.3 kB     999 B

counted
delivered               1,234,567
joins granted                   1
frames refused                  2
pubsub published                9
front publish received      1,234
front publish sent              5
front publish dropped           6
front bytes received            7
front bytes sent        8,000,000"""


def test_records_get_a_line_if_there_are_any() -> None:
    counted = {"log_received": 1, "log_sent": 2000, "log_dropped": 3, "log_bytes_received": 4, "log_bytes_sent": 5000}
    front = FRONT | {"counters": FRONT["counters"] | counted}  # type: ignore[operator]
    lines = list(lines_of(SERVING | {"front": front}))
    assert "records     1 in (4 B), 2,000 out (5.0 kB), 3 dropped" in lines
    assert not any(line.startswith("records ") for line in lines_of(SERVING))


def test_status_text_of_a_peer_with_clients() -> None:
    lines = list(lines_of(SERVING))
    assert "\n".join(lines[5:]) == SHOWN_SERVING


PEER = {"id": "7" * 32, "address": "127.0.0.1:4887"}


ENTRIES = {"a/b": "passing", "a/#": "lasting", "a/+": "away"}


def subscribed(*filters: str, total: int) -> dict[str, Any]:
    subscribers = [{"filter": name, **LEAF, "entry": ENTRIES[name]} for name in filters]
    return {"subscribers_total": total, "subscribers": subscribers}


TOPIC = {
    "topic": "a/b",
    "partitions": [
        {"partition": 7, "filters": ["a/b"], "coordinator": PEER, "held": partition(7) | subscribed("a/b", total=1)},
        {"partition": 8, "filters": ["a/#"], "coordinator": LEAF}
        | {"held": partition(8, "gathering") | subscribed("a/#", "a/+", total=14)},
        {"partition": 4095, "filters": ["#"], "coordinator": LEAF, "held": None},
    ],
}
SHOWN_TOPIC = """\
topic       a/b

filters of  coordinator         address  partition      epoch  holders  in step
a/b         77777777     127.0.0.1:4887          7          3        2   1 of 2
a/#         44444444     127.0.0.1:4884          8  gathering        2   1 of 2
#           44444444     127.0.0.1:4884       4095          -        -        -

filter  subscriber         address    entry
a/b     44444444    127.0.0.1:4884  passing
a/#     44444444    127.0.0.1:4884  lasting
a/+     44444444    127.0.0.1:4884     away
and 12 more"""


def test_topic_text_lists_coordinators_and_subscribers() -> None:
    assert "\n".join(lines_of_topic(TOPIC)) == SHOWN_TOPIC


def test_topic_text_without_subscribers() -> None:
    assert list(lines_of_topic(TOPIC | {"partitions": TOPIC["partitions"][2:]}))[-2:] == ["", "nobody subscribes"]


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("a/#", "--topic: topic name 'a/#' has a wildcard"),
        ("", "--topic: topic name '' is empty"),
        ("é" * 2048, "--topic must be at most 4095 bytes, got 4096"),
    ],
)
def test_invalid_topic_fails_with_one_line(ringmq: Callable[..., Any], closed_port: int, topic: str, says: str) -> None:
    process = ringmq("status", "--peer", f"127.0.0.1:{closed_port}", "--topic", topic)
    assert (process.popen.returncode, process.out, process.err) == (2, "", f"ringmq: {says}\n")


def test_status_text_of_a_peer_without_listeners() -> None:
    lines = list(lines_of(SERVING | {"listeners": {}, "front": None}))
    assert "clients     not served" in lines
    assert not [line for line in lines if line.startswith(("messages", "front"))]


def test_status_text_before_listeners_are_open() -> None:
    assert "clients     3 on no listener yet" in lines_of(SERVING | {"listeners": {}})


def test_only_the_first_partitions_and_topics_are_shown() -> None:
    shown = [partition(1000 + number) for number in range(100)]
    partitions = ROLES["partitions"] | {"coordinated": 2000, "shown": shown}
    topics = ROLES["publishing"] | {"topics_total": 11, "topics": [topic(f"t/{number}") for number in range(11)]}
    lines = list(lines_of(SERVING | {"pubsub": ROLES | {"partitions": partitions, "publishing": topics}}))
    assert [line.split()[0] for line in lines if line.startswith("10")] == [f"{1000 + row}" for row in range(MAX_ROWS)]
    assert [line.split()[0] for line in lines if line.startswith("t/")] == [f"t/{number}" for number in range(MAX_ROWS)]
    assert [line for line in lines if line.endswith(" more")] == ["and 1,990 more", "and 1 more"]
    topics = topics | {"topics_total": 10, "topics": topics["topics"][:10]}
    lines = list(lines_of(SERVING | {"pubsub": ROLES | {"publishing": topics}}))
    assert not [line for line in lines if line.endswith(" more")]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a/b", "a/b"),
        ("n" * 40, "n" * 40),
        ("n" * 41, "n" * 39 + "…"),
        ("\x1b[2Jgone\r\n", "\ufffd[2Jgone\ufffd\ufffd"),
        ("Fühler/1", "Fühler/1"),
    ],
)
def test_names_of_clients_are_made_printable(name: str, shown: str) -> None:
    assert name_of(name) == shown


SHOWN = """\
peer        3f2a9c01 at 127.0.0.1:4883 of ring hall 7
state       active, up 2 min 5 s
before      44444444 at 127.0.0.1:4884
after       44444444 at 127.0.0.1:4884
leaf set    1 before, 2 after
also known  7 in the table, 0 suspected, 1 dead

link      address         round trip     sent  received
00000000  [::1]:48831              -      0 B    3.4 GB
44444444  127.0.0.1:4884     0.52 ms  12.3 kB     999 B

counted
delivered       1,234,567
joins granted           1
frames refused          2"""


def test_status_text_of_a_peer() -> None:
    assert "\n".join(lines_of(ANSWER)) == SHOWN


def test_status_text_of_a_lone_peer() -> None:
    nobody = {"clockwise": None, "counterclockwise": None}
    none = {"links": [], "counters": {}, "ring_counters": {}, "leaves": {"clockwise": [], "counterclockwise": []}}
    search = {"search": "no ring found; asked 127.0.0.1:4884; founding in 9 s"}
    alone = ANSWER | none | search | {"active": False, "neighbours": nobody}
    assert list(lines_of(alone))[1:6] == [
        "state       joining, up 2 min 5 s",
        "search      no ring found; asked 127.0.0.1:4884; founding in 9 s",
        "before      nobody",
        "after       nobody",
        "leaf set    0 before, 0 after",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (3600, "1 h 0 min"),
        (90061, "1 d 1 h"),
        (86400 * 400, "400 d 0 h"),
    ],
)
def test_duration_shows_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5e12, "5.0 TB"), (5e16, "50000.0 TB")],
)
def test_size_shows_the_largest_unit(count: float, text: str) -> None:
    assert size(count) == text


def test_table_without_rows_has_its_heads() -> None:
    assert list(table(("one", "two", "three"), [])) == ["one  two  three"]


def test_status_of_an_unreachable_peer_fails_with_one_line(ringmq: Callable[..., Any], closed_port: int) -> None:
    process = ringmq("status", "--peer", f"127.0.0.1:{closed_port}")
    assert process.popen.returncode == 1
    assert process.out == ""
    assert process.err.startswith("ringmq: ")
    assert process.err.count("\n") == 1
    assert f"127.0.0.1:{closed_port}" in process.err


def test_status_command_starts_quickly() -> None:
    """Compares processor times: a busy machine changes their ratio little."""
    # A bare start of Python is no stable reference: without the hooks of the older editable install it takes half as
    # long. The older bound was 8 bare starts of 0.0166 s or more, so 0.133 s; 2.3 of these references are 0.127 s.
    reference_s = min(cpu_s("-c", "import asyncio, click") for _ in range(3))
    status_s = min(cpu_s("-m", "ringmq", "status", "--help") for _ in range(3))
    print(f"\nringmq status --help: {status_s / reference_s:.1f} times asyncio and click ({reference_s:.3f} s)")
    assert status_s < 2.3 * reference_s, "measured 1.8; the imports must not grow unnoticed"


def cpu_s(*arguments: str) -> float:
    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    subprocess.run([sys.executable, "-P", *arguments], check=True, capture_output=True, timeout=30)
    return used() - before
