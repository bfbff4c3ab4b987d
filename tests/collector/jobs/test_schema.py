"""Spark's schema of records: the same members as in `logger.records`, with the same types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import inspect
from pyspark.sql import types

from ringmq.collector.jobs.schema import (
    KIND,
    LANDED,
    LINE,
    MEMBERS,
    PARTITIONS,
    RECORD,
    STORED,
    is_required,
    spark_type,
    without_none,
)
from ringmq.logger.records import Delivery, Latencies, LinkTraffic, Record, Sample, Traffic
from tests.collector.making import PEERS, delivery, latencies, sample

LONG, DOUBLE, TEXT = types.LongType(), types.DoubleType(), types.StringType()
FULL = sample(mqtt=Traffic(), links=[LinkTraffic(peer=PEERS[1], bytes_in=1, bytes_out=1, queued_bytes=1, rtt_s=0.5)])


def fits(value: Any, kind: types.DataType) -> bool:
    match kind:
        case types.StructType():
            return set(value) == set(kind.names) and all(fits(value[field.name], field.dataType) for field in kind)
        case types.ArrayType():
            return all(fits(element, kind.elementType) for element in value)
        case types.MapType():
            return all(fits(key, kind.keyType) and fits(item, kind.valueType) for key, item in value.items())
    expected = {LONG: int, DOUBLE: float, TEXT: str, types.BooleanType(): bool}
    return type(value) is expected[kind]


@pytest.mark.parametrize("record", [FULL, delivery(), latencies(buckets={"3": 4})])
def test_each_member_has_its_spark_type(record: Record) -> None:
    for name, value in msgspec.to_builtins(record).items():
        assert fits(value, RECORD[name].dataType), name


def test_schema_has_exactly_the_declared_members() -> None:
    declared = {field.encode_name for kind in (Sample, Delivery, Latencies) for field in msgspec.structs.fields(kind)}
    assert set(RECORD.names) == declared | {KIND}
    assert set(MEMBERS) == {"sample", "delivery", "latencies"}


def test_types_of_the_parquet_are_unchanged() -> None:
    """Existing Parquet must stay readable, so these types must not change when the code that derives them does."""
    traffic = "struct<bytes_in:bigint,bytes_out:bigint,messages_in:bigint,messages_out:bigint,dropped:bigint>"
    by_hand = {
        "kind": "string", "v": "bigint", "run": "string", "peer": "string", "boot": "bigint", "number": "bigint",
        "at": "double", "uptime_s": "double", "address": "string", "listeners": "map<string,string>", "pid": "bigint",
        "dispatching": "string", "fanout": "bigint", "cpu_s": "double", "memory_bytes": "bigint", "clients": "bigint",
        "subscriptions": "bigint", "topics": "bigint", "mqtt": traffic, "overlay": traffic, "log": traffic,
        "links": "array<struct<peer:string,bytes_in:bigint,bytes_out:bigint,queued_bytes:bigint,rtt_s:double>>",
        "coordinated": "bigint", "copied": "bigint", "filters": "bigint", "publishing": "bigint",
        "waiting_bytes": "bigint", "unacknowledged": "bigint", "unrecorded": "bigint", "origin": "string",
        "origin_boot": "bigint", "sequence": "bigint", "topic": "string", "sender": "string", "sent_ns": "bigint",
        "received_ns": "bigint", "hops": "bigint", "bytes": "bigint", "sends": "bigint", "duplicate": "boolean",
        "interval_s": "double", "count": "bigint", "sum_s": "double", "min_s": "double", "max_s": "double",
        "buckets": "map<string,bigint>",
    }  # fmt: skip
    assert {field.name: field.dataType.simpleString() for field in RECORD} == by_hand


def test_stored_rows_have_additional_columns() -> None:
    assert set(STORED.names) == set(RECORD.names) | {"landed", "reason", "line", "file", "hour"}
    assert tuple(STORED.names[-3:]) == PARTITIONS
    element = LINE.elementType
    assert isinstance(element, types.StructType)
    assert element.names == [*RECORD.names, LANDED.name]


def test_optional_members_are_not_required() -> None:
    members = {member.encode_name: member for member in MEMBERS["sample"]}
    assert is_required(members["pid"])
    assert not is_required(members["unrecorded"])
    optional = inspect.type_info(float | None)
    assert spark_type(optional) == DOUBLE
    assert isinstance(without_none(optional), inspect.FloatType)
