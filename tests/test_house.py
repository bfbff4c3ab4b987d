"""Holds the order of the folders: their size, their docstrings, and the links that make them the package `ringmq`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.test_imports import DOORS

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ringmq"

MAX_MODULES = 16
"""A folder with more has a second idea inside, and a newcomer reads its list of names for nothing."""


def folders() -> list[Path]:
    modules = [file for room in DOORS for file in (ROOT / room).rglob("*.py")]
    return sorted({file.parent.relative_to(ROOT) for file in modules} | {Path(room) for room in DOORS})


def crowded(modules: dict[str, int]) -> list[str]:
    """The folders with too many modules."""
    return [
        f"{folder}: {count} modules, over {MAX_MODULES}" for folder, count in modules.items() if count > MAX_MODULES
    ]


def test_no_folder_is_crowded() -> None:
    counts = {}
    for folder in folders():
        counts[str(folder)] = sum(file.name != "__init__.py" for file in (ROOT / folder).glob("*.py"))
    assert counts["overlay"] > 0
    assert crowded(counts) == []


def test_a_crowded_folder_is_seen() -> None:
    assert crowded({"a": 16, "b": 17}) == ["b: 17 modules, over 16"]


@pytest.mark.parametrize("folder", folders(), ids=str)
def test_each_folder_says_what_it_owns_and_must_not_know(folder: Path) -> None:
    init = ROOT / folder / "__init__.py"
    assert init.exists()
    said = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    assert said.startswith("Owns ")
    assert "; " in said
    assert said.endswith(".")


def test_the_package_is_made_of_links_to_the_top() -> None:
    links = {link.name: str(link.readlink()) for link in PACKAGE.iterdir() if link.is_symlink()}
    assert links == {room: f"../../{room}" for room in DOORS}


def test_the_package_itself_imports_nothing_of_its_rooms() -> None:
    """Every import of a module runs it before, a core's as well."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in imports] == [
        "from __future__ import annotations",
        "from importlib.metadata import PackageNotFoundError, version",
    ]
