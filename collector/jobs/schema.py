"""The schema of records in Spark: one row for a record of any kind, with the members of all kinds.

It is derived from `logger.records`, so that a change there changes it too. Knows nothing about the source of records.
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
"""The kind of a line that is not a record."""
END: Final = "end"
"""The kind of the end mark that is appended to each line."""
PARTITIONS: Final = (KIND, "run", "hour")
"""The levels of folders in the Parquet, the outermost first."""

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
"""The members of each kind of record, from `logger.records`."""


def without_none(member: inspect.Type) -> inspect.Type:
    """The type, without None if it is optional."""
    if isinstance(member, inspect.UnionType):
        (member,) = [alternative for alternative in member.types if not isinstance(alternative, inspect.NoneType)]
    return member


def is_required(member: inspect.Field) -> bool:
    """Whether a record must have this member, with a value other than null."""
    return member.required and not isinstance(member.type, inspect.UnionType)


def spark_type(member: inspect.Type) -> types.DataType:
    """The type of a member in Spark."""
    member = without_none(member)
    match member:
        case inspect.StructType(fields=fields):
            return types.StructType([types.StructField(field.encode_name, spark_type(field.type)) for field in fields])
        case inspect.ListType(item_type=item):
            return types.ArrayType(spark_type(item))
        case inspect.DictType(key_type=key, value_type=value):
            return types.MapType(spark_type(key), spark_type(value))
    return _SCALARS[type(member)]


def _all_members() -> Iterator[types.StructField]:
    """The members of all kinds, each name once."""
    fields: dict[str, types.DataType] = {}
    for members in MEMBERS.values():
        for member in members:
            kind = spark_type(member.type)
            # One column serves all kinds, so a name must have the same type in all of them.
            assert fields.setdefault(member.encode_name, kind) == kind, member
    return (types.StructField(name, kind) for name, kind in fields.items())


RECORD: Final = types.StructType([types.StructField(KIND, types.StringType()), *_all_members()])
"""A record of any kind; the members of other kinds are null."""
LANDED: Final = types.StructField("landed", types.DoubleType())
"""The time at which a record was ingested, in seconds since 1970."""
LINE: Final = types.ArrayType(types.StructType([*RECORD, LANDED]))
"""A line of the landing folder, and the end mark that is appended to it."""
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
"""A row of the Parquet. A row of the kind DEAD has only `landed`, `reason`, `line`, `file` and the partitions."""
