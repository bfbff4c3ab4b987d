"""Which lines are records of our schema, and why the others are none. Pure: expressions of Spark, without any data.

Says the same as `logger.records.decode`, as far as Spark sees it: made from the same types. Besides, it bounds what
would break the jobs behind it.

Each line passes `is_sound`, which is kept short, since Java runs long methods slowly. What does not pass is asked for
its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import Final, NamedTuple

from msgspec import inspect
from pyspark.sql import Column
from pyspark.sql import functions as f

from ringmq.collector.jobs.schema import END, KIND, LINE, MEMBERS, bare, is_required
from ringmq.logger.records import MAX_LINE_BYTES, SCHEMA

LAST_SECOND: Final = 253402300799
"""Of the year 9999. What was recorded later has no hour that could be written."""
MAX_SECONDS: Final = 1e18
"""Of any time, forward or back. So the sums of all that may ever come are numbers, and their squares too."""
NO_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""What Spark calls the folder of no value at all. A run of this name would come back without one."""
STRICT: Final = {"allowNonNumericNumbers": "false", "allowSingleQuotes": "false"}
"""Options for Spark's reader, which takes more for JSON than JSON is."""
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_NO_TEXT: Final = rf"(?m)^(?:{_NUMBER}|true|false|[\[{{].*)$"
"""What a value may look like that is no text in JSON."""


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
    """One thing that may be wrong with a record."""

    there: Column
    text: str


def parsed(line: Column) -> Column:
    """The record in a line; null if there is none, or more than one. Whether its values are right, others say.

    Needs a session that takes no record in parts (`spark.sql.json.enablePartialResults` off).
    """
    found = f.from_json(_marked(line), LINE, STRICT)
    whole = (f.size(found) == 2) & (f.get(found, f.lit(1)).getField(KIND) == END)
    return f.get(found, f.when(whole, 0))


def _marked(line: Column) -> Column:
    """With a mark behind it, where the line is to end: Spark does not look at what follows the first value."""
    return f.concat(f.lit("["), line, f.lit(f',{{"{KIND}":"{END}"}}]'))


def is_sound(line: Column, record: Column) -> Column:
    """Whether a line is a record of ours. `record` is what `parsed` found in it."""
    kind = record.getField(KIND)
    sound = f.when(f.octet_length(line) > MAX_LINE_BYTES, False)
    for name, members in MEMBERS.items():
        sound = sound.when(kind == name, _all_right(members, record))
    looks_bare = f.concat_ws("\n", *[record.getField(name) for name in _TEXTS]).rlike(_NO_TEXT)
    has_maps = reduce(or_, [record.getField(name).isNotNull() for name in _MAPS_TO_TEXT])
    bare_text = f.when(looks_bare | has_maps, _has_bare_text(line)).otherwise(False)
    return f.coalesce(sound.otherwise(False) & ~bare_text & f.is_valid_utf8(line), f.lit(False))


def why_not(line: Column, record: Column) -> Column:
    """Why a line that is not sound is none, in a few words."""
    document = f.try_parse_json(_marked(line))
    mark = f.try_variant_get(document, "$[1].kind", "string")
    shape = f.schema_of_variant(f.try_variant_get(document, "$[0]", "variant"))
    version = f.try_variant_get(document, "$[0].v", "string")
    kind = f.try_variant_get(document, "$[0].kind", "string")
    reason = (
        f.when(f.octet_length(line) > MAX_LINE_BYTES, "longer than a record can be")
        .when(~f.is_valid_utf8(line), "not UTF-8")
        .when(f.btrim(line, f.lit(" \t\r")) == "", "an empty line")
        .when(document.isNull(), "not JSON")
        .when(f.try_variant_get(document, "$[2]", "variant").isNotNull(), "more than one record")
        .when(mark.isNull() | (mark != END), "not JSON")
        .when(~f.coalesce(shape.startswith("OBJECT"), f.lit(False)), "not a JSON object")
        .when(version != str(SCHEMA), f.concat(f.lit("of version "), f.left(version, f.lit(20))))
        .when(kind.isNull(), "of no kind")
        .when(~kind.isin(*MEMBERS), f.concat(f.lit("of the unknown kind "), f.left(kind, f.lit(20))))
        .when(record.isNull(), "a member of a wrong type, or a number too large")
        .when(_has_bare_text(line), "a member that is no text")
    )
    for name, members in MEMBERS.items():
        for fault in _faults_of(members, record):
            reason = reason.when((kind == name) & fault.there, fault.text)
    return reason.otherwise("not a record")


def _all_right(members: Iterable[inspect.Field], record: Column) -> Column:
    """Whether no member has a fault; null or false if one has."""
    whole: list[Column] = []
    right: list[Column] = []
    for member in members:
        value = record.getField(member.encode_name)
        kind = bare(member.type)
        if isinstance(kind, inspect.IntType) and kind.ge == 0:
            whole.append(value if is_required(member) else f.coalesce(value, f.lit(0)))
        elif isinstance(kind, inspect.StructType) and is_required(member):
            right += [value.isNotNull(), _all_right(kind.fields, value)]
        else:
            right += [~fault.there for fault in _faults_of([member], record)]
    if whole:
        # One comparison for all of them: a sign or a null stays.
        right.append(reduce(lambda one, other: one.bitwiseOR(other), whole) >= 0)
    return reduce(and_, right)


def _faults_of(members: Iterable[inspect.Field], record: Column) -> Iterator[Fault]:
    for member in members:
        name = member.encode_name
        value = record.getField(name)
        if is_required(member):
            yield Fault(value.isNull(), f"{name} is missing")
        for fault in _faults_in(bare(member.type), value, name):
            yield Fault(value.isNotNull() & fault.there, fault.text)
        if name == "at":
            yield Fault(value.isNotNull() & (value > LAST_SECOND), f"{name} is beyond the year 9999")
        elif name == "run":
            yield Fault(value == NO_FOLDER, f"{name} is {NO_FOLDER}, which stands for none")


def _faults_in(kind: inspect.Type, value: Column, name: str) -> Iterator[Fault]:
    """What may be wrong with a value that is there."""
    match kind:
        case inspect.IntType(ge=least) if least is not None:
            yield Fault(value < least, f"{name} is below {least}")
        case inspect.FloatType(ge=least):
            if least is not None:
                yield Fault(value < least, f"{name} is below {least}")
            yield Fault(f.abs(value) > MAX_SECONDS, f"{name} is too large")
        case inspect.LiteralType(values=values):
            yield Fault(~value.isin(*values), f"{name} is none of {', '.join(map(str, values))}")
        case inspect.StrType(max_length=most, pattern=pattern):
            if most is not None:
                yield Fault(f.char_length(value) > most, f"{name} is longer than {most}")
            if pattern is not None:
                # Where Python has \Z, Java has \z.
                yield Fault(~value.rlike(pattern.replace(r"\Z", r"\z")), f"{name} is not as it must be")
        case inspect.StructType(fields=fields):
            for fault in _faults_of(fields, value):
                yield Fault(fault.there, f"{name}: {fault.text}")
        case inspect.ListType(item_type=item):
            yield Fault(f.exists(value, _is_wrong(item)), f"{name}: one is wrong")
        case inspect.DictType(key_type=key, value_type=each):
            yield Fault(f.exists(f.map_keys(value), _is_wrong(key)), f"{name}: a name is wrong")
            yield Fault(f.exists(f.map_values(value), _is_wrong(each)), f"{name}: one is wrong")


def _is_wrong(kind: inspect.Type) -> Callable[[Column], Column]:
    """Of a member of a list or a map, which must be there."""

    def wrong(value: Column) -> Column:
        return f.coalesce(
            reduce(or_, [value.isNull(), *(fault.there for fault in _faults_in(kind, value, ""))]), f.lit(False)
        )

    return wrong


def _has_bare_text(line: Column) -> Column:
    """Whether a value that is to be text stands there as something else, which Spark's reader takes for text.

    Within a text of JSON quotes are escaped: a name between bare ones, before a colon, is the name of a member.
    """
    found = line.rlike(rf'"(?:{"|".join(_TEXTS)})"\s*:\s*[^"\s]')
    for name in _MAPS_TO_TEXT:
        values = f.map_values(f.from_json(line, f"{name} map<string, variant>", STRICT).getField(name))
        found |= f.coalesce(f.exists(values, lambda value: f.schema_of_variant(value) != "STRING"), f.lit(False))
    return found
