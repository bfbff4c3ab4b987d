"""Holds the conformance tables: each statement that binds a server has a test that exists, or a reason why not.

Whether a test really shows its statement is for the reader of both.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TABLES = ROOT / "docs" / "conformance"
STATEMENTS = {"3.1.1": 141, "5.0": 251}
"""How many appendix B has of each version."""
NOT_USED = {"5.0": {"MQTT-2.2.1-1"}, "3.1.1": set[str]()}
"""Numbers the specification leaves out."""

ID = re.compile(r"MQTT-(\d+\.\d+\.\d+)-([1-9]\d*)")
KEYS = {"id", "paraphrase", "binds", "tests", "not_applicable"}

Statement = dict[str, object]


def table(version: str) -> list[Statement]:
    document = tomllib.loads((TABLES / f"mqtt-{version}.toml").read_text(encoding="utf-8"))
    assert document["version"] == version
    statements: list[Statement] = document["statement"]
    return statements


def misshapen(statements: list[Statement]) -> list[str]:
    """What is wrong with single entries, but for gaps."""
    faults = []
    for entry in statements:
        name = str(entry.get("id"))
        if not ID.fullmatch(name):
            faults.append(f"{name}: not an id")
        if unknown := set(entry) - KEYS:
            faults.append(f"{name}: unknown {sorted(unknown)}")
        if not _text(entry.get("paraphrase")):
            faults.append(f"{name}: no paraphrase")
        if entry.get("binds") not in ("server", "client", "both"):
            faults.append(f"{name}: binds whom?")
        tests = entry.get("tests", [])
        if not isinstance(tests, list) or not all(_text(test) for test in tests) or len(set(tests)) < len(tests):
            faults.append(f"{name}: tests are a list of different node ids")
        if "not_applicable" in entry and (tests or not _text(entry["not_applicable"])):
            faults.append(f"{name}: a reason stands alone and is not empty")
        if entry.get("binds") == "client" and (tests or "not_applicable" in entry):
            faults.append(f"{name}: nothing to show for a client")
    return faults


def _text(value: object) -> bool:
    return isinstance(value, str) and value.strip() != ""


def unnumbered(statements: list[Statement], not_used: set[str]) -> list[str]:
    """Ids listed twice, and holes in the numbers of a section."""
    names = [str(entry["id"]) for entry in statements]
    faults = [f"{name}: listed twice" for name in sorted({name for name in names if names.count(name) > 1})]
    last: dict[str, int] = {}
    for match in filter(None, map(ID.fullmatch, names)):
        last[match[1]] = max(last.get(match[1], 0), int(match[2]))
    wanted = [f"MQTT-{section}-{number}" for section, end in last.items() for number in range(1, end + 1)]
    return faults + [f"{name}: missing" for name in wanted if name not in names and name not in not_used]


def gaps(statements: list[Statement]) -> list[str]:
    """What binds a server and has neither a test nor a reason."""
    return [
        f"{entry['id']} {entry['paraphrase']}"
        for entry in statements
        if entry["binds"] != "client" and not entry.get("tests") and not _text(entry.get("not_applicable"))
    ]


def named_in(source: str) -> set[str]:
    """The node ids of a test file, without its name: functions, and functions of classes."""
    found = set()
    for node in ast.parse(source).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {
            f"{prefix}{function.name}"
            for function in inside
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and function.name.startswith("test_")
        }
    return found


@functools.cache
def _tests_of(file: str) -> frozenset[str]:
    path = ROOT / file
    return frozenset(named_in(path.read_text(encoding="utf-8"))) if path.is_file() else frozenset()


def unfound(statements: list[Statement]) -> list[str]:
    """Named tests that do not exist. What stands in brackets, one case of a test, is taken on trust."""
    faults = []
    for entry in statements:
        tests = entry.get("tests", [])
        assert isinstance(tests, list)
        for test in tests:
            file, _, name = str(test).partition("[")[0].partition("::")
            if name not in _tests_of(file):
                faults.append(f"{entry['id']}: {test} does not exist")
    return faults


@pytest.mark.parametrize("version", STATEMENTS)
def test_the_table_is_well_formed(version: str) -> None:
    assert misshapen(table(version)) == []


@pytest.mark.parametrize("version", STATEMENTS)
def test_the_table_is_complete(version: str) -> None:
    statements = table(version)
    assert unnumbered(statements, NOT_USED[version]) == []
    assert len(statements) == STATEMENTS[version]


@pytest.mark.parametrize("version", STATEMENTS)
def test_every_named_test_exists(version: str) -> None:
    if missing := unfound(table(version)):
        pytest.fail("\n".join([f"{len(missing)} tests named for MQTT {version}:", *missing]), pytrace=False)


@pytest.mark.parametrize("version", STATEMENTS)
def test_every_statement_that_binds_a_server_is_shown(version: str) -> None:
    if missing := gaps(table(version)):
        head = f"{len(missing)} statements of MQTT {version} have neither a test nor a reason:"
        pytest.fail("\n".join([head, *missing]), pytrace=False)


def _entry(**fields: object) -> Statement:
    return {"id": "MQTT-3.1.0-1", "paraphrase": "CONNECT comes first", "binds": "both", "tests": ["a::b"]} | fields


@pytest.mark.parametrize(
    "fields",
    [
        {"id": "[MQTT-3.1.0-1]"},
        {"id": "MQTT-3.1-1"},
        {"id": "MQTT-3.1.0-0"},
        {"paraphrase": " "},
        {"binds": "broker"},
        {"test": ["a::b"]},
        {"tests": "a::b"},
        {"tests": [""]},
        {"tests": ["a::b", "a::b"]},
        {"not_applicable": "it has a test, though"},
        {"tests": [], "not_applicable": ""},
        {"binds": "client"},
    ],
)
def test_a_bad_entry_is_seen(fields: Statement) -> None:
    assert misshapen([_entry()]) == []
    assert len(misshapen([_entry(**fields)])) == 1


def test_holes_and_doubles_are_seen() -> None:
    first, second, third = (_entry(id=f"MQTT-3.1.0-{number}") for number in (1, 2, 3))
    assert unnumbered([first, second, third], set()) == []
    assert unnumbered([first, third, third], set()) == ["MQTT-3.1.0-3: listed twice", "MQTT-3.1.0-2: missing"]
    assert unnumbered([second, third], {"MQTT-3.1.0-1"}) == []


def test_a_gap_is_seen() -> None:
    shown = [_entry(), _entry(tests=[], not_applicable="cannot arise"), _entry(binds="client", tests=[])]
    assert gaps(shown) == []
    assert (
        gaps([*shown, _entry(tests=[]), _entry(tests=[], binds="server", not_applicable="")])
        == ["MQTT-3.1.0-1 CONNECT comes first"] * 2
    )


def test_a_test_that_does_not_exist_is_seen() -> None:
    here = Path(__file__).relative_to(ROOT).as_posix()
    good, bad = f"{here}::test_a_gap_is_seen", f"{here}::test_no_such"
    assert unfound([_entry(tests=[good, f"{good}[one case]"])]) == []
    assert unfound([_entry(tests=[good, bad])]) == [f"MQTT-3.1.0-1: {bad} does not exist"]
    assert len(unfound([_entry(tests=["tests/no_such_file.py::test_x", here])])) == 2


def test_only_tests_are_found() -> None:
    source = "def test_a(): ...\nasync def test_b(): ...\ndef c(): ...\nclass TestD:\n    def test_e(self): ...\n"
    assert named_in(source) == {"test_a", "test_b", "TestD::test_e"}
