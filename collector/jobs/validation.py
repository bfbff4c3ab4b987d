"""Validates lines against the schema of records, and gives the reason for each refused line.

Pure: it builds Spark expressions, and sees no data. The result agrees with `logger.records.decode` as far as Spark
allows, since both are derived from the same types. In addition, values that would break the later jobs are refused.

Every line is checked by `is_sound`, which is kept short because Java runs long methods slowly. Only for refused lines,
`refusal_reason` finds the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import Final, NamedTuple

from msgspec import inspect
from pyspark.sql import Column
from pyspark.sql import functions as f

from ringmq.collector.jobs.schema import END, KIND, LINE, MEMBERS, is_required, without_none
from ringmq.logger.records import MAX_LINE_BYTES, SCHEMA

LAST_SECOND: Final = 253402300799
"""The last second of the year 9999. Spark cannot format the hour of a later time, which names a folder."""
MAX_SECONDS: Final = 1e18
"""The largest absolute value of any time. With this limit, sums of times and of their squares stay finite."""
NO_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for the folder of null. A run of this name would be read back as null."""
STRICT: Final = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
"""Options that restrict Spark's reader to standard JSON."""
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NO_TEXT: Final = rf"(?m)^(?:{_NUMBER}|true|false|[\[{{].*)$"
"""The possible forms of a JSON value that is not a text."""


def _names_of_text(members: Iterable[inspect.Field]) -> Iterator[str]:
    for member in members:
        match member.type:
            case inspect.StrType():
                yield member.encode_name
            case inspect.ListType(item_type=inspect.StructType(fields=fields)):
                yield from _names_of_text(fields)


_TEXTS: Final = sorted({name for members in MEMBERS.values() for name in _names_of_text(members)})
_MAPS_TO_TEXT: Final = sorted(
    member.encode_name
    for members in MEMBERS.values()
    for member in members
    if isinstance(member.type, inspect.DictType) and isinstance(member.type.value_type, inspect.StrType)
)


class Fault(NamedTuple):
    """A possible fault of a record."""

    condition: Column
    """Whether the record has it."""
    text: str


def parsed(line: Column) -> Column:
    """The record in a line; null if the line does not contain exactly one. `is_sound` checks its values.

    Needs a session that reads no partial records (`spark.sql.json.enablePartialResults` off).
    """
    elements = f.from_json(_marked(line), LINE, STRICT)
    complete = (f.size(elements) == 2) & (f.get(elements, f.lit(1)).getField(KIND) == END)
    return f.get(elements, f.when(complete, 0))


def _marked(line: Column) -> Column:
    """The line as the first element of an array whose second element is the end mark."""
    # Spark ignores everything after the first value of a text. If the line has such a rest, the mark is not the second
    # element of the array.
    return f.concat(f.lit("["), line, f.lit(f',{{"{KIND}":"{END}"}}]'))


def is_sound(line: Column, record: Column) -> Column:
    """Whether a line is a valid record. `record` is the result of `parsed` for the line."""
    kind = record.getField(KIND)
    sound = f.when(f.octet_length(line) > MAX_LINE_BYTES, False)
    for name, members in MEMBERS.items():
        sound = sound.when(kind == name, _has_no_fault(members, record))
    # The search for unquoted texts reads the line again, so it is done only where a text looks like another value.
    suspicious = f.concat_ws("\n", *[record.getField(name) for name in _TEXTS]).rlike(_NO_TEXT)
    has_maps = reduce(or_, [record.getField(name).isNotNull() for name in _MAPS_TO_TEXT])
    unquoted = f.when(suspicious | has_maps, _has_unquoted_text(line)).otherwise(False)
    return f.coalesce(sound.otherwise(False) & ~unquoted & f.is_valid_utf8(line), f.lit(False))


def refusal_reason(line: Column, record: Column) -> Column:
    """The reason, in a few words, for which a line is not sound."""
    document = f.try_parse_json(_marked(line))
    mark = f.try_variant_get(document, "$[1].kind", "string")
    shape = f.schema_of_variant(f.try_variant_get(document, "$[0]", "variant"))
    version = f.try_variant_get(document, "$[0].v", "string")
    kind = f.try_variant_get(document, "$[0].kind", "string")
    reason = (
        f.when(f.octet_length(line) > MAX_LINE_BYTES, "line too long")
        .when(~f.is_valid_utf8(line), "not UTF-8")
        .when(f.btrim(line, f.lit(" \t\r")) == "", "an empty line")
        .when(document.isNull(), "not JSON")
        .when(f.try_variant_get(document, "$[2]", "variant").isNotNull(), "more than one record")
        .when(mark.isNull() | (mark != END), "not JSON")
        .when(~f.coalesce(shape.startswith("OBJECT"), f.lit(False)), "not a JSON object")
        .when(version != str(SCHEMA), f.concat(f.lit("unsupported version "), f.left(version, f.lit(20))))
        .when(kind.isNull(), "kind is missing")
        .when(~kind.isin(*MEMBERS), f.concat(f.lit("unknown kind "), f.left(kind, f.lit(20))))
        .when(record.isNull(), "a member of a wrong type, or a number too large")
        .when(_has_unquoted_text(line), "a member that must be a text is none")
    )
    for name, members in MEMBERS.items():
        for fault in _faults_of(members, record):
            reason = reason.when((kind == name) & fault.condition, fault.text)
    return reason.otherwise("not a record")


def _has_no_fault(members: Iterable[inspect.Field], record: Column) -> Column:
    """True if no member has a fault, else false or null."""
    counts: list[Column] = []
    conditions: list[Column] = []
    for member in members:
        value = record.getField(member.encode_name)
        kind = without_none(member.type)
        if isinstance(kind, inspect.IntType) and kind.ge == 0:
            counts.append(value if is_required(member) else f.coalesce(value, f.lit(0)))
        elif isinstance(kind, inspect.StructType) and is_required(member):
            conditions += [value.isNotNull(), _has_no_fault(kind.fields, value)]
        else:
            conditions += [~fault.condition for fault in _faults_of([member], record)]
    if counts:
        # One comparison for all counts keeps the expression short: their bitwise OR is negative if any count is
        # negative, and null if any is null.
        conditions.append(reduce(lambda left, right: left.bitwiseOR(right), counts) >= 0)
    return reduce(and_, conditions)


def _faults_of(members: Iterable[inspect.Field], record: Column) -> Iterator[Fault]:
    for member in members:
        name = member.encode_name
        value = record.getField(name)
        if is_required(member):
            yield Fault(value.isNull(), f"{name} is missing")
        for fault in _faults_in(without_none(member.type), value, name):
            yield Fault(value.isNotNull() & fault.condition, fault.text)
        if name == "at":
            yield Fault(value.isNotNull() & (value > LAST_SECOND), f"{name} is after the year 9999")
        elif name == "run":
            yield Fault(value == NO_FOLDER, f"{name} is {NO_FOLDER}, Spark's name for null")


def _faults_in(kind: inspect.Type, value: Column, name: str) -> Iterator[Fault]:
    """The possible faults of a value that is not null."""
    match kind:
        case inspect.IntType(ge=least) if least is not None:
            yield Fault(value < least, f"{name} is below {least}")
        case inspect.FloatType(ge=least):
            if least is not None:
                yield Fault(value < least, f"{name} is below {least}")
            yield Fault(f.abs(value) > MAX_SECONDS, f"{name} is too large")
        case inspect.LiteralType(values=values):
            yield Fault(~value.isin(*values), f"{name} is not one of {', '.join(map(str, values))}")
        case inspect.StrType(max_length=most, pattern=pattern):
            if most is not None:
                yield Fault(f.char_length(value) > most, f"{name} is longer than {most} characters")
            if pattern is not None:
                # Java's \Z also matches before a line feed at the end; its \z is Python's \Z.
                yield Fault(~value.rlike(pattern.replace(r"\Z", r"\z")), f"{name} has a wrong form")
        case inspect.StructType(fields=fields):
            for fault in _faults_of(fields, value):
                yield Fault(fault.condition, f"{name}: {fault.text}")
        case inspect.ListType(item_type=item):
            yield Fault(f.exists(value, _is_wrong(item)), f"{name}: a wrong item")
        case inspect.DictType(key_type=key, value_type=each):
            yield Fault(f.exists(f.map_keys(value), _is_wrong(key)), f"{name}: a wrong name")
            yield Fault(f.exists(f.map_values(value), _is_wrong(each)), f"{name}: a wrong value")


def _is_wrong(kind: inspect.Type) -> Callable[[Column], Column]:
    """The condition that a member of a list or map is null or has a fault."""

    def wrong(value: Column) -> Column:
        return f.coalesce(
            reduce(or_, [value.isNull(), *(fault.condition for fault in _faults_in(kind, value, ""))]), f.lit(False)
        )

    return wrong


def _has_unquoted_text(line: Column) -> Column:
    """Whether a member that must be a text is another JSON value, which Spark's reader would convert to text."""
    # Quotes within a JSON text are escaped, so a name between unescaped quotes and before a colon is a member's name.
    found = line.rlike(rf'"(?:{"|".join(_TEXTS)})"\s*:\s*[^"\s]')
    for name in _MAPS_TO_TEXT:
        values = f.map_values(f.from_json(line, f"{name} map<string, variant>", STRICT).getField(name))
        found |= f.coalesce(f.exists(values, lambda value: f.schema_of_variant(value) != "STRING"), f.lit(False))
    return found
