"""`ringmq status`: the table for people, and what it says when nobody answers."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from peer.status import duration, lines_of, size, table

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
        {**LEAF, "rtt_ms": 0.52, "bytes_out": 12_345, "bytes_in": 999},
        {"id": "0" * 32, "address": "[::1]:48831", "rtt_ms": None, "bytes_out": 0, "bytes_in": 3_400_000_000},
        {"rtt_ms": 1.0, "bytes_out": 0, "bytes_in": 0},
    ],
    "ring_counters": {"delivered": 1234567, "deaths": 0, "joins_granted": 1},
    "counters": {"frames_refused": 2},
}

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


def test_a_status_for_people() -> None:
    assert "\n".join(lines_of(ANSWER)) == SHOWN


def test_a_peer_alone() -> None:
    nobody = {"clockwise": None, "counterclockwise": None}
    none = {"links": [], "counters": {}, "ring_counters": {}, "leaves": {"clockwise": [], "counterclockwise": []}}
    alone = ANSWER | none | {"active": False, "neighbours": nobody}
    assert list(lines_of(alone))[1:5] == [
        "state       joining, up 2 min 5 s",
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
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5e12, "5.0 TB"), (5e16, "50000.0 TB")],
)
def test_sizes(count: float, text: str) -> None:
    assert size(count) == text


def test_a_table_without_rows_has_its_heads() -> None:
    assert list(table(("one", "two", "three"), [])) == ["one  two  three"]


def test_nobody_there_is_one_line_and_status_1(ringmq: Callable[..., Any], closed_port: int) -> None:
    process = ringmq("status", "--peer", f"127.0.0.1:{closed_port}")
    assert process.popen.returncode == 1
    assert process.out == ""
    assert process.err.startswith("ringmq: ")
    assert process.err.count("\n") == 1
    assert f"127.0.0.1:{closed_port}" in process.err


def test_it_starts_quickly() -> None:
    """In processor time and as a ratio, which a busy machine does not change much."""
    nothing_s = min(cpu_s("-c", "pass") for _ in range(3))
    status_s = min(cpu_s("-m", "peer.command", "status", "--help") for _ in range(3))
    print(f"\nringmq status --help: {status_s / nothing_s:.1f} times the start of Python ({nothing_s:.3f} s)")
    assert status_s < 8 * nothing_s, "measured 3.5; what it imports must not grow unnoticed"


def cpu_s(*arguments: str) -> float:
    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    subprocess.run([sys.executable, "-P", *arguments], check=True, capture_output=True, timeout=30)
    return used() - before
