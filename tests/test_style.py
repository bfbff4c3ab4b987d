"""Holds what can be held of the style by an ordinary test, so that no review has to (as TigerBeetle's tidy does)."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "logger", "overlay", "dispatching", "mqtt_front", "peer", "collector", "experiments", "src", "tests",
    ".ci", "docs", "deploy",
)  # fmt: skip
TEXTS = {".py", ".md", ".toml", ".sh", ".txt", ".yml", ".yaml", ""}

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
"""Past these there is a second idea inside. Most files stay under 300, most functions under 40."""
MAX_PAUSE_S = 0.02
"""Between two looks at a condition. A test that waits in larger steps waits in vain most of the time."""

# Written in pieces, or this file would be the first to break its own rules.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
PLACES = {
    "a path of one machine": re.compile(r"(?<![\w.$)}~])/(?:home|root|Users|opt|mnt|srv|wo" + r"rk)\b"),
    "a package registry": re.compile(r"\bpy" + r"pi\.org|files\.python" + r"hosted"),
}


def places_named(text: str) -> list[str]:
    """Mentions of where this was written: they help nobody elsewhere."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        faults += [f"{number}: {what}" for what, pattern in PLACES.items() if pattern.search(line)]
        if UNFINISHED.search(line):
            faults.append(f"{number}: unfinished")
    return faults


def shape_of(source: str) -> list[str]:
    """A module that does not say what it owns, a file or a function that is too long."""
    tree = ast.parse(source)
    faults = [] if ast.get_docstring(tree) else ["1: no docstring opens the module"]
    lines = len(source.splitlines())
    if lines > MAX_FILE_LINES:
        faults.append(f"1: {lines} lines, over {MAX_FILE_LINES}")
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                faults.append(f"{node.lineno}: {node.name} has {length} lines, over {MAX_FUNCTION_LINES}")
    return faults


def sleeps_in(source: str) -> list[str]:
    """Calls of a sleep, by whatever name it was imported, but for sleep(0), which lets others run, and short pauses
    in a `while` loop, between two looks at a condition.
    """
    tree = ast.parse(source)
    names = {"sleep"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.name == "sleep" and alias.asname}
    pauses = {call for node in ast.walk(tree) if isinstance(node, ast.While) for call in _calls(node, names)}
    return [
        f"{call.lineno}: a sleep; wait for a condition with a deadline"
        for call in _calls(tree, names)
        if _seconds(call) > (MAX_PAUSE_S if call in pauses else 0)
    ]


def _calls(tree: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            if name in names:
                yield node


def _seconds(call: ast.Call) -> float:
    """How long the call sleeps; for ever, if that does not stand there."""
    argument = call.args[0] if call.args else None
    if isinstance(argument, ast.Constant) and isinstance(argument.value, (int, float)):
        return argument.value
    return math.inf


def _texts() -> list[str]:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")]
    files += ROOT.glob("*")
    named = {file.relative_to(ROOT) for file in files if file.is_file() and file.suffix in TEXTS}
    return sorted(file.as_posix() for file in named if "__pycache__" not in file.parts)


ALL = _texts()
MODULES = [file for file in ALL if file.endswith(".py")]
TESTS = [file for file in MODULES if file.startswith("tests/")]


def _read(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("file", ALL)
def test_no_place_is_named_and_nothing_is_unfinished(file: str) -> None:
    assert places_named(_read(file)) == []


@pytest.mark.parametrize("file", MODULES)
def test_modules_have_their_shape(file: str) -> None:
    assert shape_of(_read(file)) == []


@pytest.mark.parametrize("file", TESTS)
def test_no_test_sleeps(file: str) -> None:
    assert sleeps_in(_read(file)) == []


def test_the_files_are_found() -> None:
    assert {"overlay/core/ids.py", "tests/test_style.py", "pyproject.toml", "Makefile", ".ci/run"} <= set(ALL)


@pytest.mark.parametrize(
    "text",
    [
        "# TO" + "DO: later",
        "raise X  # FIX" + "ME",
        "cd /ho" + "me/jo/ringmq",
        'Path("/wo' + 'rk/seeds")',
        "see /wo" + "rk.",
        "index-url = https://py" + "pi.org/simple",
    ],
)
def test_a_bad_line_is_seen(text: str) -> None:
    assert places_named(f"fine\n{text}\nfine")[0].startswith("2: ")


@pytest.mark.parametrize(
    "text", ["/proc/self/stat", "https://example.org/homework/a", "it works / homes", "shared_digits()"]
)
def test_a_good_line_passes(text: str) -> None:
    assert places_named(text) == []


def test_bad_shapes_are_seen() -> None:
    assert shape_of('"""Owns nothing."""\n\n\ndef f() -> None: ...\n') == []
    assert shape_of("X = 1\n") == ["1: no docstring opens the module"]
    assert shape_of('"""Long."""\n' + "\n" * MAX_FILE_LINES) == ["1: 601 lines, over 600"]
    body = "    pass\n" * MAX_FUNCTION_LINES
    assert shape_of(f'"""Long."""\nclass C:\n  async def f():\n{body}') == ["3: f has 71 lines, over 70"]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "await asyncio.sleep(.01)",
        "from time import sleep as nap\nnap(1)",
        "sleep(seconds)",
        "while not done():\n    time.sleep(0.1)",
        "while not done():\n    time.sleep(pause_s)",
        "for _ in range(9):\n    time.sleep(0.01)",
    ],
)
def test_a_sleep_is_seen(source: str) -> None:
    assert len(sleeps_in(source)) == 1


@pytest.mark.parametrize(
    "source",
    ["await asyncio.sleep(0)", "asleep(1)", "x = time.sleep", "while not done():\n    time.sleep(0.01)"],
)
def test_no_sleep_passes(source: str) -> None:
    assert sleeps_in(source) == []
