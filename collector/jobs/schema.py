"""The schema of records as Spark knows it: one row for a record of any kind, with all members of all kinds.

Made from `logger.records`, so that whoever changes that changes this. Knows nothing of where records come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import inspect
from pyspark.sql import types

from ringmq.logger.records import Delivery, Latencies, Sample

KIND: Final = "kind"
SAMPLE: Final = "sample"
DELIVERY: Final = "delivery"
LATENCIES: Final = "latencies"
DEAD: Final = "dead"
"""The kind of a line that is no record."""
END: Final = "end"
"""The kind of the mark behind each line."""
PARTITIONS: Final = (KIND, "run", "hour")
"""The folders of the Parquet, from the outermost on."""

_SCALARS: Final[Mapping[type[inspect.Type], types.DataType]] = {
    inspect.IntType: types.LongType(),
    inspect.FloatType: types.DoubleType(),
    inspect.StrType: types.StringType(),
    inspect.BoolType: types.BooleanType(),
    inspect.LiteralType: types.LongType(),
}


def _members_of(record: type) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(record)
    assert isinstance(info, inspect.StructType), record
    return info.fields


MEMBERS: Final[Mapping[str, tuple[inspect.Field, ...]]] = {
    SAMPLE: _members_of(Sample),
    DELIVERY: _members_of(Delivery),
    LATENCIES: _members_of(Latencies),
}
"""Of each kind of record, as `logger.records` has them."""


def bare(member: inspect.Type) -> inspect.Type:
    """The type without the None that it may be instead."""
    if isinstance(member, inspect.UnionType):
        (member,) = [one for one in member.types if not isinstance(one, inspect.NoneType)]
    return member


def is_required(member: inspect.Field) -> bool:
    """Whether a record without it is none."""
    return member.required and not isinstance(member.type, inspect.UnionType)


def spark_type(member: inspect.Type) -> types.DataType:
    """What a member becomes in Spark."""
    member = bare(member)
    match member:
        case inspect.StructType(fields=fields):
            return types.StructType([types.StructField(one.encode_name, spark_type(one.type)) for one in fields])
        case inspect.ListType(item_type=item):
            return types.ArrayType(spark_type(item))
        case inspect.DictType(key_type=key, value_type=value):
            return types.MapType(spark_type(key), spark_type(value))
    return _SCALARS[type(member)]


def _all_members() -> Iterator[types.StructField]:
    """A name that several kinds have stands for the same type in all."""
    found: dict[str, types.DataType] = {}
    for members in MEMBERS.values():
        for member in members:
            became = spark_type(member.type)
            assert found.setdefault(member.encode_name, became) == became, member
    return (types.StructField(name, became) for name, became in found.items())


RECORD: Final = types.StructType([types.StructField(KIND, types.StringType()), *_all_members()])
"""A record of any kind; the members of other kinds are null."""
LANDED: Final = types.StructField("landed", types.DoubleType())
"""When a record was ingested, in seconds since 1970."""
LINE: Final = types.ArrayType(types.StructType([*RECORD, LANDED]))
"""A line of the landing folder, and the mark that is put behind it."""
STORED: Final = types.StructType(
    [
        *(field for field in RECORD if field.name not in PARTITIONS),
        LANDED,
        types.StructField("reason", types.StringType()),
        types.StructField("line", types.StringType()),
        types.StructField("file", types.StringType()),
        *(types.StructField(name, types.StringType()) for name in PARTITIONS),
    ]
)
"""A row of the Parquet. Of the kind DEAD, only `landed`, `reason`, `line` and `file` are there."""
