"""Holds the mirror: `<folder>/<file>.py` is tested by `tests/<folder>/test_<file>.py`, and the other way round."""

from __future__ import annotations

import ast
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("logger", "overlay", "dispatching", "mqtt_front", "peer", "collector", "experiments")

EXCEPTIONS = {
    "mqtt_front/iteration.py": "protocols; peer/iteration.py, which has them, is tested",
    "overlay/iteration.py": "a protocol; peer/iteration.py, which has it, is tested",
    "tests/mqtt_front/test_broker_and_others.py": "broker.py again, where test_broker.py would grow too long",
    "tests/mqtt_front/test_conformance.py": "checks tables of the documentation, mirrors no module",
    "tests/mqtt_front/test_durability.py": "kills whole peers, mirrors no module",
    "tests/mqtt_front/server/test_server_keeping.py": "server.py again, where test_server.py would grow too long",
    "tests/mqtt_front/test_fuzzing.py": "feeds garbage to the whole core of the front, mirrors no module",
    "tests/mqtt_front/test_leaving.py": "looks at what is left of a client that has gone, mirrors no module",
    "tests/peer/engines/coordinated/test_durability.py": "kills whole rings, mirrors no module",
    "tests/peer/test_trees.py": "kills peers of whole rings, mirrors no module",
    "tests/mqtt_front/test_real_clients.py": "puts clients of others against the whole front, mirrors no module",
}
"""Files without their counterpart, each with the reason."""


def has_code(source: str) -> bool:
    """Whether there is something to test: a function. Constants and plain records are tested by their users."""
    return any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(ast.parse(source)))


def test_of(file: str) -> str:
    path = PurePosixPath(file)
    return str("tests" / path.with_name(f"test_{path.name}"))


test_of.__test__ = False  # type: ignore[attr-defined]  # a function about tests


def unmirrored(code: dict[str, str], tests: set[str], exceptions: set[str]) -> list[str]:
    """Modules with code but without tests, and tests without a module."""
    wanted = {test_of(file): file for file in code}
    faults = [
        f"{file}: {test} is missing" for test, file in wanted.items() if has_code(code[file]) and test not in tests
    ]
    faults += [f"{test}: what it mirrors is missing" for test in tests if test not in wanted]
    return sorted(fault for fault in faults if fault.split(":")[0] not in exceptions)


def _files(folder: str, pattern: str) -> list[Path]:
    return [file for file in (ROOT / folder).rglob(pattern) if file.name != "__init__.py"]


def _code() -> dict[str, str]:
    files = [file for room in ROOMS for file in _files(room, "*.py")]
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def _tests() -> set[str]:
    return {file.relative_to(ROOT).as_posix() for room in ROOMS for file in _files(f"tests/{room}", "test_*.py")}


def test_the_tests_mirror_the_code() -> None:
    assert unmirrored(_code(), _tests(), set(EXCEPTIONS)) == []


def test_the_exceptions_are_needed() -> None:
    faults = {fault.split(":")[0] for fault in unmirrored(_code(), _tests(), set())}
    assert set(EXCEPTIONS) <= faults


def test_a_missing_test_is_seen() -> None:
    code = {"overlay/a.py": "def f(): ...", "overlay/b.py": "B = 1", "overlay/c/d.py": "class D:\n    def f(self): ..."}
    assert unmirrored(code, {"tests/overlay/test_a.py"}, set()) == [
        "overlay/c/d.py: tests/overlay/c/test_d.py is missing"
    ]
    assert unmirrored(code, {"tests/overlay/test_a.py"}, {"overlay/c/d.py"}) == []


def test_a_test_of_nothing_is_seen() -> None:
    found = unmirrored({"overlay/b.py": "B = 1"}, {"tests/overlay/test_a.py", "tests/overlay/test_b.py"}, set())
    assert found == ["tests/overlay/test_a.py: what it mirrors is missing"]
