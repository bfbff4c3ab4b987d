"""What becomes of each line of a message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import intake as module
from collector.intake import Batch, Intake
from collector.seen import Seen, Verdict
from logger.records import MAX_LINE_BYTES, decode, encode
from tests.collector.ingest_bench import OTHER, PEER, TOPIC, delivery, lines, names

NOW = 1_800_000_100.123456


@pytest.fixture
def intake() -> Intake:
    return Intake(Seen())


def read(found: list[bytes]) -> list[dict[str, Any]]:
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in found)
    return [json.loads(line) for line in found]


def numbers(batch: Batch) -> list[int]:
    return [number for _, _, number in names(read(batch.records))]


def test_a_record_is_landed_as_it_was_with_the_time(intake: Intake) -> None:
    intake.take(TOPIC, encode(delivery(7)), NOW)
    batch = intake.batch()
    assert read(batch.records) == [json.loads(encode(delivery(7))) | {"landed": NOW}]
    assert decode(batch.records[0]) == delivery(7)
    assert batch.dead == []
    assert batch.size_bytes == len(batch.records[0])


def test_all_lines_of_a_message_in_order(intake: Intake) -> None:
    intake.take(TOPIC, lines(range(100)) + b"\r\n\n \n", NOW)
    intake.take(TOPIC, lines([100]), NOW + 1)
    assert intake.size_bytes > 10_000
    batch = intake.batch()
    assert numbers(batch) == list(range(101))
    assert (intake.records, intake.dead, intake.repeated, intake.size_bytes) == (101, 0, 0, 0)
    assert intake.batch() == Batch()


def test_a_record_comes_once(intake: Intake) -> None:
    intake.take(TOPIC, lines([0, 1, 1, 0, 2]), NOW)
    intake.take(TOPIC, lines([2, 3]), NOW)
    assert numbers(intake.batch()) == [0, 1, 2, 3]
    intake.take(TOPIC, lines([3]), NOW)
    assert intake.batch() == Batch()
    assert (intake.records, intake.repeated) == (4, 4)


def test_nothing_passes_that_a_sender_wrote_in_addition(intake: Intake) -> None:
    line = b'{"landed":1,"extra":{"a":[]},"number":8,' + encode(delivery(7))[1:]
    intake.take(TOPIC, line, NOW)
    assert read(intake.batch().records) == [json.loads(encode(delivery(7))) | {"landed": NOW}]


GOOD = encode(delivery(1))
BAD: dict[bytes, str] = {
    b"hello": "malformed",
    GOOD[:40]: "truncated",
    GOOD.replace(b'"v":1', b'"v":2'): "$.v",
    GOOD.replace(b'"hops":1,', b""): "`hops`",
    GOOD.replace(b'"hops":1', b'"hops":"1"'): "$.hops",
    GOOD.replace(b'"kind":"delivery"', b'"kind":"rumour"'): "$.kind",
    GOOD.replace(b"hall", b"h\xffll"): "utf-8",
    encode(delivery(1, OTHER)): f"a record of peer {OTHER}, which is not the one of the topic",
    b"[" * 100_000: "array",
    b"7" * (MAX_LINE_BYTES + 1): f"a record must have at most {MAX_LINE_BYTES} bytes, got {MAX_LINE_BYTES + 1}",
}


@pytest.mark.parametrize("line", BAD, ids=[str(number) for number in range(len(BAD))])
def test_a_bad_line_is_set_aside_with_its_reason(intake: Intake, line: bytes) -> None:
    intake.take(TOPIC, b"\n".join([encode(delivery(0)), line, encode(delivery(2))]), NOW)
    batch = intake.batch()
    assert numbers(batch) == [0, 2]
    [found] = read(batch.dead)
    assert BAD[line] in found.pop("reason")
    assert found == {"topic": TOPIC, "at": NOW, "line": line.decode("utf-8", "backslashreplace")}
    assert batch.size_bytes == sum(map(len, batch.records + batch.dead))
    assert (intake.records, intake.dead) == (2, 1)


@pytest.mark.parametrize("topic", ["ringmq/log", "ringmq/log/x", f"{TOPIC}/more", PEER, "", f"ringmq/log/{OTHER}"])
def test_a_record_under_another_topic_is_set_aside(intake: Intake, topic: str) -> None:
    intake.take(topic, lines([0]), NOW)
    intake.take(TOPIC, lines([0]), NOW)
    batch = intake.batch()
    assert numbers(batch) == [0], "it was not taken for seen"
    assert [(found["topic"], found["line"]) for found in read(batch.dead)] == [(topic, lines([0]).decode())]


@pytest.mark.parametrize("payload", [b"", b"\n", b" \r\n\n"])
def test_an_empty_message_is_set_aside(intake: Intake, payload: bytes) -> None:
    intake.take(TOPIC, payload, NOW)
    assert [found["reason"] for found in read(intake.batch().dead)] == ["an empty message"]


def test_a_message_of_too_many_lines_is_one_letter(intake: Intake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LINES", 3)
    intake.take(TOPIC, lines([0, 1, 2]), NOW)
    intake.take(TOPIC, lines([3, 4, 5, 6]), NOW)
    batch = intake.batch()
    assert numbers(batch) == [0, 1, 2]
    found = [(one["reason"], one["line"]) for one in read(batch.dead)]
    assert found == [("4 lines are more than a message has", lines([3, 4, 5, 6]).decode())]


def test_what_may_be_a_repetition_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    monkeypatch.setattr(seen, "add", lambda *name: Verdict.TOO_LATE)
    intake = Intake(seen)
    intake.take(TOPIC, lines([5]), NOW)
    batch = intake.batch()
    assert batch.records == []
    assert [found["reason"] for found in read(batch.dead)] == ["too late: its number is below what is remembered"]


@given(st.lists(st.one_of(st.binary(max_size=50), st.integers(0, 9).map(lambda n: encode(delivery(n)))), max_size=30))
def test_garbage_harms_nothing_around_it(found: list[bytes]) -> None:
    intake = Intake(Seen())
    intake.take(TOPIC, b"\n".join(found), NOW)
    batch = intake.batch()
    good = [json.loads(line)["number"] for line in found if line.startswith(b'{"kind":"delivery"')]
    assert numbers(batch) == list(dict.fromkeys(good))
    assert len(read(batch.records)) + intake.repeated == len(good)
    assert len(read(batch.dead)) == intake.dead
