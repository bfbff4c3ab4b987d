"""Classification of the lines of a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.collector.ingest import intake as module
from ringmq.collector.ingest.intake import Batch, Intake
from ringmq.collector.ingest.seen import Seen, Verdict
from ringmq.logger.records import MAX_LINE_BYTES, decode, encode
from tests.collector.ingest_bench import OTHER, PEER, TOPIC, delivery, lines, names

NOW = 1_800_000_100.123456


@pytest.fixture
def intake() -> Intake:
    return Intake(Seen())


def parsed(output: list[bytes]) -> list[dict[str, Any]]:
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in output)
    return [json.loads(line) for line in output]


def numbers(batch: Batch) -> list[int]:
    return [number for _, _, number in names(parsed(batch.records))]


def test_record_is_landed_unchanged_with_its_time(intake: Intake) -> None:
    intake.take(TOPIC, encode(delivery(7)), NOW)
    batch = intake.batch()
    assert parsed(batch.records) == [json.loads(encode(delivery(7))) | {"landed": NOW}]
    assert decode(batch.records[0]) == delivery(7)
    assert batch.dead == []
    assert batch.size_bytes == len(batch.records[0])


def test_lines_of_a_message_are_landed_in_order(intake: Intake) -> None:
    intake.take(TOPIC, lines(range(100)) + b"\r\n\n \n", NOW)
    intake.take(TOPIC, lines([100]), NOW + 1)
    assert intake.size_bytes > 10_000
    batch = intake.batch()
    assert numbers(batch) == list(range(101))
    assert (intake.records, intake.dead, intake.repeated, intake.size_bytes) == (101, 0, 0, 0)
    assert intake.batch() == Batch()


def test_repeated_records_are_counted_and_dropped(intake: Intake) -> None:
    intake.take(TOPIC, lines([0, 1, 1, 0, 2]), NOW)
    intake.take(TOPIC, lines([2, 3]), NOW)
    assert numbers(intake.batch()) == [0, 1, 2, 3]
    intake.take(TOPIC, lines([3]), NOW)
    assert intake.batch() == Batch()
    assert (intake.records, intake.repeated) == (4, 4)


def test_additional_members_are_removed(intake: Intake) -> None:
    line = b'{"landed":1,"extra":{"a":[]},"number":8,' + encode(delivery(7))[1:]
    intake.take(TOPIC, line, NOW)
    assert parsed(intake.batch().records) == [json.loads(encode(delivery(7))) | {"landed": NOW}]


GOOD = encode(delivery(1))
BAD: dict[bytes, str] = {
    b"hello": "malformed",
    GOOD[:40]: "truncated",
    GOOD.replace(b'"v":1', b'"v":2'): "$.v",
    GOOD.replace(b'"hops":1,', b""): "`hops`",
    GOOD.replace(b'"hops":1', b'"hops":"1"'): "$.hops",
    GOOD.replace(b'"kind":"delivery"', b'"kind":"rumour"'): "$.kind",
    GOOD.replace(b"hall", b"h\xffll"): "utf-8",
    encode(delivery(1, OTHER)): f"a record of peer {OTHER} under the topic of another peer",
    b"[" * 100_000: "array",
    b"7" * (MAX_LINE_BYTES + 1): f"a record must have at most {MAX_LINE_BYTES} bytes, got {MAX_LINE_BYTES + 1}",
}


@pytest.mark.parametrize("line", BAD, ids=[str(number) for number in range(len(BAD))])
def test_bad_line_becomes_a_dead_letter_with_its_reason(intake: Intake, line: bytes) -> None:
    intake.take(TOPIC, b"\n".join([encode(delivery(0)), line, encode(delivery(2))]), NOW)
    batch = intake.batch()
    assert numbers(batch) == [0, 2]
    [letter] = parsed(batch.dead)
    assert BAD[line] in letter.pop("reason")
    assert letter == {"topic": TOPIC, "at": NOW, "line": line.decode("utf-8", "backslashreplace")}
    assert batch.size_bytes == sum(map(len, batch.records + batch.dead))
    assert (intake.records, intake.dead) == (2, 1)


@pytest.mark.parametrize("topic", ["ringmq/log", "ringmq/log/x", f"{TOPIC}/more", PEER, "", f"ringmq/log/{OTHER}"])
def test_record_under_another_topic_becomes_a_dead_letter(intake: Intake, topic: str) -> None:
    intake.take(topic, lines([0]), NOW)
    intake.take(TOPIC, lines([0]), NOW)
    batch = intake.batch()
    assert numbers(batch) == [0], "the refused record does not count as seen"
    assert [(letter["topic"], letter["line"]) for letter in parsed(batch.dead)] == [(topic, lines([0]).decode())]


@pytest.mark.parametrize("payload", [b"", b"\n", b" \r\n\n"])
def test_empty_message_becomes_a_dead_letter(intake: Intake, payload: bytes) -> None:
    intake.take(TOPIC, payload, NOW)
    assert [letter["reason"] for letter in parsed(intake.batch().dead)] == ["an empty message"]


def test_message_with_too_many_lines_becomes_one_dead_letter(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 3)
    intake.take(TOPIC, lines([0, 1, 2]), NOW)
    intake.take(TOPIC, lines([3, 4, 5, 6]), NOW)
    batch = intake.batch()
    assert numbers(batch) == [0, 1, 2]
    letters = [(letter["reason"], letter["line"]) for letter in parsed(batch.dead)]
    assert letters == [("a message must have at most 3 lines, got 4", lines([3, 4, 5, 6]).decode())]


def test_record_that_may_be_repeated_becomes_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    monkeypatch.setattr(seen, "add", lambda *name: Verdict.TOO_LATE)
    intake = Intake(seen)
    intake.take(TOPIC, lines([5]), NOW)
    batch = intake.batch()
    assert batch.records == []
    assert [letter["reason"] for letter in parsed(batch.dead)] == [
        "too late: its number is lower than all remembered numbers"
    ]


@given(st.lists(st.one_of(st.binary(max_size=50), st.integers(0, 9).map(lambda n: encode(delivery(n)))), max_size=30))
def test_garbage_does_not_affect_good_lines(payload_lines: list[bytes]) -> None:
    intake = Intake(Seen())
    intake.take(TOPIC, b"\n".join(payload_lines), NOW)
    batch = intake.batch()
    good = [json.loads(line)["number"] for line in payload_lines if line.startswith(b'{"kind":"delivery"')]
    assert numbers(batch) == list(dict.fromkeys(good))
    assert len(parsed(batch.records)) + intake.repeated == len(good)
    assert len(parsed(batch.dead)) == intake.dead
