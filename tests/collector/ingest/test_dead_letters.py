"""Dead letters: one line of JSON each, for any bytes."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ringmq.collector.ingest.dead_letters import MAX_TOPIC_CHARS, DeadLetter, letter


def test_letter_has_reason_topic_time_and_line() -> None:
    line = letter("no record", "ringmq/log/x", 17.5, b'{"v":')
    assert line.endswith(b"\n")
    assert json.loads(line) == {"reason": "no record", "topic": "ringmq/log/x", "at": 17.5, "line": '{"v":'}


def test_bytes_that_are_not_utf8_stay_distinguishable() -> None:
    assert json.loads(letter("", "", 0.0, b"a\xff\xfe\x00z"))["line"] == "a\\xff\\xfe\x00z"


def test_long_topic_is_cut() -> None:
    shown = json.loads(letter("", "x" * 60_000, 0.0, b""))["topic"]
    assert len(shown) == MAX_TOPIC_CHARS
    assert shown.endswith("x…")
    assert json.loads(letter("", "x" * MAX_TOPIC_CHARS, 0.0, b""))["topic"] == "x" * MAX_TOPIC_CHARS


@given(st.binary(max_size=200), st.text(max_size=20), st.floats(0, 1e12))
def test_any_bytes_make_one_line(raw: bytes, topic: str, at: float) -> None:
    line = letter("why", topic, at, raw)
    assert line.count(b"\n") == 1
    assert msgspec.json.decode(line, type=DeadLetter).at == at
