"""Which lines are records: one by one, and in agreement with the schema on random lines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ringmq.collector.jobs.validation import is_sound, parsed, why_not
from ringmq.logger.records import MAX_LINE_BYTES, LinkTraffic, Traffic, decode
from tests.collector.making import PEERS, delivery, latencies, line, sample

LINK = LinkTraffic(peer=PEERS[1], bytes_in=1, bytes_out=2, queued_bytes=3, rtt_s=0.5)
SAMPLE = line(sample(mqtt=Traffic(bytes_in=7), links=[LINK], run="7"), landed=1.5)
DELIVERY = line(delivery(topic='5"run":5', number=3), landed=2)
LATENCIES = line(latencies(buckets={"3": 4}, sum_s=-0.5, min_s=-0.5))


def verdicts(spark: SparkSession, lines: list[bytes]) -> list[str | None]:
    """Why each is no record, None for those that are."""
    value, record = f.col("value"), f.col("record")
    found = (
        spark.createDataFrame([(place, bytearray(one)) for place, one in enumerate(lines)], "place int, raw binary")
        .select("place", f.col("raw").cast("string").alias("value"))
        .withColumn("record", parsed(value))
        .withColumn("sound", is_sound(value, record))
        .select("place", f.when(~f.col("sound"), why_not(value, record)).alias("why"))
    )
    return [row.why for row in sorted(found.collect())]


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
    DELIVERY.replace('"v":1', '"v":2'): "of version 2",
    DELIVERY.replace('"v":1', '"v":2').replace('"hops":0', '"hops":"many"'): "of version 2",
    DELIVERY.replace('"kind":"delivery"', '"kind":"rumour"'): "of the unknown kind rumour",
    DELIVERY.replace('"kind":"delivery",', ""): "of no kind",
    DELIVERY.replace('"hops":0', '"hops":"0"'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"hops":0', '"hops":0.5'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"hops":0', f'"hops":{1 << 63}'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"hops":0', '"hops":-1'): "hops is below 0",
    DELIVERY.replace('"hops":0,', ""): "hops is missing",
    DELIVERY.replace('"hops":0', '"hops":null'): "hops is missing",
    DELIVERY.replace('"run":"r"', '"run":5'): "a member that is no text",
    DELIVERY.replace('"run":"r"', '"run" : true'): "a member that is no text",
    DELIVERY.replace('"run":"r"', '"run":"../r"'): "run is not as it must be",
    DELIVERY.replace('"run":"r"', '"run":"r\\n"'): "run is not as it must be",
    DELIVERY.replace(f'"peer":"{PEERS[0]}"', f'"peer":"{PEERS[0][1:]}"'): "peer is not as it must be",
    DELIVERY.replace(f'"{PEERS[0]}"', "1" * 32): "a member that is no text",
    DELIVERY.replace('"dispatching":"direct"', f'"dispatching":"{"d" * 257}"'): "dispatching is longer than 256",
    DELIVERY.replace('"at":1700000000.0', '"at":1e400'): "at is too large",
    DELIVERY.replace('"at":1700000000.0', '"at":-1'): "at is below 0",
    DELIVERY.replace('"at":1700000000.0', '"at":1e12'): "at is beyond the year 9999",
    DELIVERY.replace('"at":1700000000.0', '"at":NaN'): "not JSON",
    DELIVERY.replace('"at":1700000000.0', '"at":"NaN"'): "a member of a wrong type, or a number too large",
    DELIVERY.replace('"run":"r"', '"run":"__HIVE_DEFAULT_PARTITION__"'): (
        "run is __HIVE_DEFAULT_PARTITION__, which stands for none"
    ),
    SAMPLE.replace('"uptime_s":1.0', '"uptime_s":1e308'): "uptime_s is too large",
    SAMPLE.replace('"rtt_s":0.5', '"rtt_s":1.1e18'): "links: one is wrong",
    LATENCIES.replace('"min_s":-0.5', '"min_s":-1.1e18'): "min_s is too large",
    SAMPLE.replace('"mqtt":"10', '"mqtt":10,"ws":"10'): "a member that is no text",
    SAMPLE.replace('"bytes_in":7', '"bytes_in":-7'): "mqtt: bytes_in is below 0",
    SAMPLE.replace('"queued_bytes":3', '"queued_bytes":-3'): "links: one is wrong",
    SAMPLE.replace('"links":[{', '"links":[null,{'): "links: one is wrong",
    LATENCIES.replace('"3":4', '"3":-4'): "buckets: one is wrong",
    LATENCIES.replace('"topic":"a/b"', f'"topic":"{"a" * MAX_LINE_BYTES}"'): "longer than a record can be",
}


def test_what_is_wrong_is_said(spark: SparkSession) -> None:
    lines = [text.encode() for text in BAD] + [DELIVERY.encode().replace(b"a/b", b"\xff")]
    lines.append(DELIVERY.encode().replace(b"direct", b"\xff\xfe"))
    found = verdicts(spark, lines)
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


def test_what_is_right_passes(spark: SparkSession) -> None:
    assert verdicts(spark, [text.encode() for text in GOOD]) == [None] * len(GOOD)


VALUES: list[Any] = [
    None, True, False, 0, -1, 1.5, 1.0, 1e300, (1 << 63) - 1, 1 << 63, "", "1", "true", "a" * 257, PEERS[2], "r 1",
    [], [1], [None], {}, {"a": 1}, {"a": "b"}, {"a": None}, {"bytes_in": 1}, {"bytes_in": "1"}, {"1": 2}, {"1": -2},
]  # fmt: skip


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """A line with some of it changed, often for the worse."""
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


def differs_by_design(raw: bytes, why: str | None) -> bool:
    """What Spark and the schema see differently, and may."""
    if why is None:
        return b"null" in raw  # for a member with a default, Spark takes it as missing
    # Times without a bound, and bytes in what the schema leaves out.
    return "9999" in why or why.endswith("is too large") or why == "not UTF-8"


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(spoilt(), min_size=150, max_size=300))
def test_spark_agrees_with_the_schema(spark: SparkSession, lines: list[bytes]) -> None:
    found = verdicts(spark, lines)
    disagreed = [(raw, why) for raw, why in zip(lines, found, strict=True) if is_record(raw) is not (why is None)]
    assert [one for one in disagreed if not differs_by_design(*one)] == []
    assert "not a record" not in found


@pytest.mark.parametrize("text", [SAMPLE, DELIVERY, LATENCIES])
def test_the_examples_are_records(text: str) -> None:
    assert is_record(text.encode())
