"""The schema: records survive encoding, anything else is refused, and the document lists every member."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from ringmq.logger.records import (
    MAX_LINE_BYTES,
    MAX_REASON_CHARS,
    SCHEMA,
    Bucket,
    Common,
    Count,
    Delivery,
    Hex,
    Latencies,
    LinkTraffic,
    Moment,
    Name,
    Record,
    Run,
    Sample,
    Seconds,
    Topic,
    Traffic,
    decode,
    encode,
)

KINDS: tuple[type[Record], ...] = (Sample, Delivery, Latencies)
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "records.md"


def of_type(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """All values of a type of the schema."""
    match kind:
        case inspect.IntType(ge=least, le=most):
            return st.integers(least, most)
        case inspect.FloatType(ge=least, lt=most):
            return st.floats(least, most, exclude_max=most is not None, allow_nan=False, allow_infinity=False)
        case inspect.StrType(pattern=str(pattern)):
            return st.from_regex(pattern)
        case inspect.StrType(max_length=most):
            return st.text(max_size=min(most or 20, 20))
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.ListType(item_type=item):
            return st.lists(of_type(item), max_size=3)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(of_type(key), of_type(value), max_size=3)
        case inspect.UnionType(types=types):
            return st.one_of([of_type(alternative) for alternative in types])
        case inspect.StructType(cls=cls, fields=members):
            return st.builds(cls, **{member.name: of_type(member.type) for member in members})
    raise AssertionError(f"no strategy for {kind}, which is new in the schema")


records = of_type(inspect.type_info(Record))
lines = records.map(encode)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.sampled_from(["kind", "v"]), inner),
    max_leaves=10,
)


def refused(line: bytes) -> str:
    """The reason for which `decode` refuses the line."""
    with pytest.raises(ValueError, match=r".") as error:
        decode(line)
    reason = str(error.value)
    assert len(reason) <= MAX_REASON_CHARS
    assert reason.isprintable()
    return reason


def agree(taken: object, given: object) -> bool:
    """Whether common members are equal. Either side may have more: members with a default, or without a meaning."""
    if isinstance(taken, dict) and isinstance(given, dict):
        return all(agree(taken[name], given[name]) for name in taken.keys() & given.keys())
    if isinstance(taken, list) and isinstance(given, list):
        return len(taken) == len(given) and all(map(agree, taken, given))
    return taken == given and isinstance(taken, bool) == isinstance(given, bool)


@settings(deadline=None)
@given(records)
def test_record_survives_encode_and_decode(record: Record) -> None:
    line = encode(record)
    assert b"\n" not in line
    assert decode(line) == record
    assert type(decode(line)) is type(record)


@settings(deadline=None)
@given(lines, st.data())
def test_incomplete_record_is_refused(line: bytes, data: st.DataObject) -> None:
    refused(line[: data.draw(st.integers(0, len(line) - 1))])


@settings(deadline=None)
@given(st.binary())
def test_garbage_is_refused(line: bytes) -> None:
    refused(line)


@settings(deadline=None)
@given(json_values)
def test_other_json_is_refused(value: object) -> None:
    refused(json.dumps(value).encode())


@settings(deadline=None)
@given(lines, st.data())
def test_record_without_a_required_member_is_refused(line: bytes, data: st.DataObject) -> None:
    members = json.loads(line)
    kind = next(kind for kind in KINDS if kind.__struct_config__.tag == members["kind"])
    needed = [field.name for field in msgspec.structs.fields(kind) if field.required] + ["kind"]
    missing = data.draw(st.sampled_from(needed))
    del members[missing]
    assert missing in refused(json.dumps(members).encode())


@settings(deadline=None)
@given(lines, st.data(), json_values | st.sampled_from([-1, 1 << 63, 0.5, True, None, "", "a\n", "A" * 32, {"a": -1}]))
def test_changed_member_is_refused_or_kept_unchanged(line: bytes, data: st.DataObject, value: object) -> None:
    members = json.loads(line)
    members[data.draw(st.sampled_from(sorted(members)))] = value
    changed = json.dumps(members).encode()
    try:
        record = decode(changed)
    except ValueError:
        refused(changed)
    else:
        assert agree(json.loads(encode(record)), members)


@settings(deadline=None)
@given(lines, st.integers().filter(lambda version: version != SCHEMA))
def test_other_version_is_refused(line: bytes, version: int) -> None:
    assert "$.v" in refused(json.dumps(json.loads(line) | {"v": version}).encode())


@settings(deadline=None)
@given(lines, st.sampled_from(["run", "peer"]), st.sampled_from(["\n", "/", " ", "\0", "Ä"]), st.booleans())
def test_run_and_peer_with_special_characters_are_refused(line: bytes, name: str, char: str, at_end: bool) -> None:
    members = json.loads(line)
    members[name] = members[name][1:] + char if at_end else char + members[name][1:]
    assert f"$.{name}" in refused(json.dumps(members).encode())


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"kind":' * 50_000, b'{"a":' + b"[" * 100_000, b"\xff\xfe"])
def test_deeply_nested_and_malformed_lines_are_refused(line: bytes) -> None:
    refused(line)


def test_reason_contains_only_printable_characters() -> None:
    assert refused(b'{"kind":"a\\n\\u001b[31mb"}') == "Invalid value 'a??[31mb' - at `$.kind`"


def test_line_beyond_the_maximum_length_is_refused() -> None:
    record = Delivery(
        run="r",
        peer="0" * 32,
        boot=0,
        number=0,
        at=0,
        origin="0" * 32,
        origin_boot=0,
        sequence=0,
        topic="t",
        dispatching="direct",
        sender="0" * 32,
        sent_ns=0,
        received_ns=0,
        hops=0,
        bytes=0,
        clients=0,
        sends=0,
    )
    line = encode(record)
    spaces = b" " * (MAX_LINE_BYTES - len(line))
    assert decode(line + spaces) == record
    assert (
        refused(line + spaces + b" ") == f"a record must have at most {MAX_LINE_BYTES} bytes, got {MAX_LINE_BYTES + 1}"
    )


def test_longest_topic_fits_into_a_line() -> None:
    members = {"topic": "\x01" * 65_535, "dispatching": "\x01" * 256}
    assert len(json.dumps(members)) < MAX_LINE_BYTES // 2


WORDS: list[tuple[object, str]] = [
    (Count, "count"),
    (Seconds, "seconds"),
    (Moment, "seconds"),
    (Seconds | None, "seconds or null"),
    (float, "seconds, or less than 0"),
    (Name, "text"),
    (Topic, "topic"),
    (Run, "run"),
    (Hex, "id"),
    (bool, "true or false"),
    (Traffic, "[traffic](#traffic)"),
    (list[LinkTraffic], "list of [links](#links)"),
    (dict[Name, Name], "text by text"),
    (dict[Bucket, Count], "count by bucket"),
]
"""The words of the document for each type."""


def documented(heading: str) -> list[tuple[str, str]]:
    """Member and type in each row of the table under this heading."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section is not None, f"no section {heading}"
    return re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section[1], re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "struct", "inherited"),
    [
        ("All records", Common, ()),
        ("Samples", Sample, Common.__struct_fields__),
        ("Deliveries", Delivery, Common.__struct_fields__),
        ("Latencies", Latencies, Common.__struct_fields__),
        ("Traffic", Traffic, ()),
        ("Links", LinkTraffic, ()),
    ],
)
def test_document_lists_every_member(heading: str, struct: type[msgspec.Struct], inherited: tuple[str, ...]) -> None:
    own = [field for field in msgspec.structs.fields(struct) if field.name not in inherited]
    expected = [(field.name, _word(field.type)) for field in own]
    if struct is Common:
        expected = [("kind", "text"), *expected]
    assert documented(heading) == expected


def _word(kind: object) -> str:
    if kind == msgspec.structs.fields(Common)[0].type:
        return str(SCHEMA)
    return next(word for known, word in WORDS if known == kind)
