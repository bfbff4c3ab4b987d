"""Validation of lines: known lines, and agreement with the schema on random lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ringmq.collector.jobs.validation import is_sound, parsed, refusal_reason
from ringmq.logger.records import MAX_LINE_BYTES, LinkTraffic, Traffic, decode
from tests.collector.making import PEERS, delivery, latencies, line, sample

LINK = LinkTraffic(peer=PEERS[1], bytes_in=1, bytes_out=2, queued_bytes=3, rtt_s=0.5)
SAMPLE = line(sample(mqtt=Traffic(bytes_in=7), links=[LINK], run="7"), landed=1.5)
DELIVERY = line(delivery(topic='5"run":5', number=3), landed=2)
LATENCIES = line(latencies(buckets={"3": 4}, sum_s=-0.5, min_s=-0.5))


def reasons(spark: SparkSession, lines: list[bytes]) -> list[str | None]:
    """The reason for which each line is refused; None for a record."""
    value, record = f.col("value"), f.col("record")
    found = (
        spark.createDataFrame([(index, bytearray(raw)) for index, raw in enumerate(lines)], "index int, raw binary")
        .select("index", f.col("raw").cast("string").alias("value"))
        .withColumn("record", parsed(value))
        .withColumn("sound", is_sound(value, record))
        .select("index", f.when(~f.col("sound"), refusal_reason(value, record)).alias("reason"))
    )
    return [row.reason for row in sorted(found.collect())]


BAD = {
    DELIVERY[:50]: "not JSON",
    "garbage": "not JSON",
    "": "an empty line",
    " \t": "an empty line",
    "17": "not a JSON object",
    "null": "not a JSON object",
    f"[{DELIVERY}]": "not a JSON object",
    DELIVERY + DELIVERY: "not JSON",
    f"{DELIVERY},{DELIVERY}": "more than one record",
    f"{DELIVERY}]": "not JSON",
    f"{DELIVERY}] garbage": "not JSON",
    f"{DELIVERY} garbage": "not JSON",
    DELIVERY.replace('"v":1', '"v":2'): "unsupported version 2",
    DELIVERY.replace('"v":1', '"v":2').replace('"hops":0', '"hops":"many"'): "unsupported version 2",
    DELIVERY.replace('"kind":"delivery"', '"kind":"rumour"'): "unknown kind rumour",
    DELIVERY.replace('"kind":"delivery",', ""): "kind is missing",
    DELIVERY.replace('"hops":0', '"hops":"0"'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"hops":0', '"hops":0.5'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"hops":0', f'"hops":{1 << 63}'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"hops":0', '"hops":-1'): "hops is below 0",
    DELIVERY.replace('"hops":0,', ""): "hops is missing",
    DELIVERY.replace('"hops":0', '"hops":null'): "hops is missing",
    DELIVERY.replace('"run":"r"', '"run":5'): "a member that must be a text is none",
    DELIVERY.replace('"run":"r"', '"run" : true'): "a member that must be a text is none",
    DELIVERY.replace('"run":"r"', '"run":"../r"'): "run has a wrong form",
    DELIVERY.replace('"run":"r"', '"run":"r\\n"'): "run has a wrong form",
    DELIVERY.replace(f'"peer":"{PEERS[0]}"', f'"peer":"{PEERS[0][1:]}"'): "peer has a wrong form",
    DELIVERY.replace(f'"{PEERS[0]}"', "1" * 32): "a member that must be a text is none",
    DELIVERY.replace(
        '"dispatching":"direct"', f'"dispatching":"{"d" * 257}"'
    ): "dispatching is longer than 256 characters",
    DELIVERY.replace('"at":1700000000.0', '"at":1e400'): "at is too large",
    DELIVERY.replace('"at":1700000000.0', '"at":-1'): "at is below 0",
    DELIVERY.replace('"at":1700000000.0', '"at":1e12'): "at is after the year 9999",
    DELIVERY.replace('"at":1700000000.0', '"at":NaN'): "not JSON",
    DELIVERY.replace('"at":1700000000.0', '"at":"NaN"'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"run":"r"', '"run":"__HIVE_DEFAULT_PARTITION__"'): (
        "run is __HIVE_DEFAULT_PARTITION__, Spark's name for null"
    ),
    SAMPLE.replace('"uptime_s":1.0', '"uptime_s":1e308'): "uptime_s is too large",
    SAMPLE.replace('"rtt_s":0.5', '"rtt_s":1.1e18'): "links: a wrong item",
    LATENCIES.replace('"min_s":-0.5', '"min_s":-1.1e18'): "min_s is too large",
    SAMPLE.replace('"mqtt":"10', '"mqtt":10,"ws":"10'): "a member that must be a text is none",
    SAMPLE.replace('"bytes_in":7', '"bytes_in":-7'): "mqtt: bytes_in is below 0",
    SAMPLE.replace('"queued_bytes":3', '"queued_bytes":-3'): "links: a wrong item",
    SAMPLE.replace('"links":[{', '"links":[null,{'): "links: a wrong item",
    LATENCIES.replace('"3":4', '"3":-4'): "buckets: a wrong value",
    LATENCIES.replace('"topic":"a/b"', f'"topic":"{"a" * MAX_LINE_BYTES}"'): "line too long",
}


def test_bad_lines_have_their_reasons(spark: SparkSession) -> None:
    lines = [text.encode() for text in BAD] + [DELIVERY.encode().replace(b"a/b", b"\xff")]
    lines.append(DELIVERY.encode().replace(b"direct", b"\xff\xfe"))
    found = reasons(spark, lines)
    assert dict(zip(BAD, found, strict=False)) == BAD
    assert found[-1] == "not UTF-8"


GOOD = [
    SAMPLE,
    DELIVERY,
    LATENCIES,
    f"  {DELIVERY}\r",
    DELIVERY.replace(",", " , ").replace('":', '" : '),
    DELIVERY.replace('"hops":0', '"extra":{"a":[1]},"hops":0'),
    DELIVERY.replace('"v":1,', ""),
    DELIVERY.replace('"duplicate":false,', ""),
    DELIVERY.replace('"hops":0', f'"hops":{(1 << 63) - 1}'),
    DELIVERY.replace('5\\"run\\":5', "}{]\\u2028ü"),
    DELIVERY.replace('5\\"run\\":5', ""),
    DELIVERY.replace('"at":1700000000.0', '"at":17'),
    DELIVERY.replace('"run":"r"', '"run":"__hive_default_partition__"'),
    LATENCIES.replace('"min_s":-0.5', '"min_s":-1e18'),
    SAMPLE.replace(',"rtt_s":0.5', ""),
    SAMPLE.replace('"rtt_s":0.5', '"rtt_s":null'),
    SAMPLE.replace('"bytes_in":7', '"bytes_out":7'),
    SAMPLE.replace('"mqtt":"10', '"5":"true","mqtt":"10'),
]


def test_good_lines_have_no_reason(spark: SparkSession) -> None:
    assert reasons(spark, [text.encode() for text in GOOD]) == [None] * len(GOOD)


VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 1.0, 1e300, (1 << 63) - 1, 1 << 63, "", "1", "true", "a" * 257, PEERS[2], "r 1",
    [], [1], [None], {}, {"a": 1}, {"a": "b"}, {"a": None}, {"bytes_in": 1}, {"bytes_in": "1"}, {"1": 2}, {"1": -2},
]  # fmt: skip


@st.composite
def changed_lines(draw: st.DrawFn) -> bytes:
    """A line with a few changes, many of which make it invalid."""
    text = draw(st.sampled_from((SAMPLE, DELIVERY, LATENCIES)))
    if draw(st.booleans()):
        members = json.loads(text)
        for name in draw(st.lists(st.sampled_from(sorted(set(members) - {"landed"})), max_size=2)):
            if draw(st.booleans()):
                members[name] = draw(st.sampled_from(VALUES))
            else:
                members.pop(name, None)
        return json.dumps(members).encode()
    raw = bytearray(text.encode())
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(raw)))
        raw[start : start + draw(st.integers(0, 3))] = draw(
            st.sampled_from((b"", b"1", b"-", b'"', b",", b"}", b"\xff"))
        )
    return bytes(raw).replace(b"\n", b"")


def is_record(raw: bytes) -> bool:
    try:
        decode(raw)
    except ValueError:
        return False
    return True


def differs_by_design(raw: bytes, reason: str | None) -> bool:
    """Whether Spark and the schema are allowed to disagree about a line."""
    if reason is None:
        return b"null" in raw  # Spark reads null as missing, for a member with a default
    # The schema has no upper limit for times, and ignores bytes in unknown members.
    return "9999" in reason or reason.endswith("is too large") or reason == "not UTF-8"


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(changed_lines(), min_size=150, max_size=300))
def test_spark_agrees_with_the_schema(spark: SparkSession, lines: list[bytes]) -> None:
    found = reasons(spark, lines)
    disagreed = [
        (raw, reason) for raw, reason in zip(lines, found, strict=True) if is_record(raw) is not (reason is None)
    ]
    assert [(raw, reason) for raw, reason in disagreed if not differs_by_design(raw, reason)] == []
    assert "not a record" not in found


@pytest.mark.parametrize("text", [SAMPLE, DELIVERY, LATENCIES])
def test_example_lines_are_records(text: str) -> None:
    assert is_record(text.encode())
