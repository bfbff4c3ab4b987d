"""Spark's schema and that of the records: the same members, of the same types."""

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
    bare,
    is_required,
    spark_type,
)
from ringmq.logger.records import Delivery, Latencies, LinkTraffic, Record, Sample, Traffic
from tests.collector.making import PEERS, delivery, latencies, sample

LONG, DOUBLE, TEXT = types.LongType(), types.DoubleType(), types.StringType()
FULL = sample(mqtt=Traffic(), links=[LinkTraffic(peer=PEERS[1], bytes_in=1, bytes_out=1, queued_bytes=1, rtt_s=0.5)])


def fits(value: Any, kind: types.DataType) -> bool:
    match kind:
        case types.StructType():
            return set(value) == set(kind.names) and all(fits(value[one.name], one.dataType) for one in kind)
        case types.ArrayType():
            return all(fits(one, kind.elementType) for one in value)
        case types.MapType():
            return all(fits(key, kind.keyType) and fits(one, kind.valueType) for key, one in value.items())
    expected = {LONG: int, DOUBLE: float, TEXT: str, types.BooleanType(): bool}
    return type(value) is expected[kind]


@pytest.mark.parametrize("record", [FULL, delivery(), latencies(buckets={"3": 4})])
def test_each_member_has_its_type(record: Record) -> None:
    for name, value in msgspec.to_builtins(record).items():
        assert fits(value, RECORD[name].dataType), name


def test_no_member_is_left_out_or_added() -> None:
    declared = {field.encode_name for kind in (Sample, Delivery, Latencies) for field in msgspec.structs.fields(kind)}
    assert set(RECORD.names) == declared | {KIND}
    assert set(MEMBERS) == {"sample", "delivery", "latencies"}


def test_the_types_by_hand() -> None:
    """Those of the Parquet that is there must not change, whatever happens to the code that makes them."""
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


def test_what_is_stored_is_more() -> None:
    assert set(STORED.names) == set(RECORD.names) | {"landed", "reason", "line", "file", "hour"}
    assert tuple(STORED.names[-3:]) == PARTITIONS
    element = LINE.elementType
    assert isinstance(element, types.StructType)
    assert element.names == [*RECORD.names, LANDED.name]


def test_members_that_may_be_missing() -> None:
    members = {member.encode_name: member for member in MEMBERS["sample"]}
    assert is_required(members["pid"])
    assert not is_required(members["unrecorded"])
    optional = inspect.type_info(float | None)
    assert spark_type(optional) == DOUBLE
    assert isinstance(bare(optional), inspect.FloatType)
