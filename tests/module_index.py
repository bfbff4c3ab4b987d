"""The index of all modules in docs/modules.md, made from their docstrings: `python tests/module_index.py` writes it.

Like this it cannot be out of date, and a reader who looks for a thing finds the module that owns it by a search.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
INDEX: Final = ROOT / "docs" / "modules.md"
FOLDERS: Final = ("overlay", "dispatching", "mqtt_front", "peer", "logger", "collector", "experiments")
HEAD: Final = """\
# All modules

The summary of each module, by package. `make index` writes this file from the docstrings.
[ARCHITECTURE.md](../ARCHITECTURE.md) explains how the packages fit.
"""


def index() -> str:
    """The text of docs/modules.md."""
    lines = [HEAD]
    for top in FOLDERS:
        for folder in sorted([ROOT / top, *(each for each in (ROOT / top).rglob("*") if each.is_dir())]):
            lines += _package(folder)
    return "\n".join(lines)


def _package(folder: Path) -> Iterator[str]:
    package = folder / "__init__.py"
    if not package.exists():
        return
    yield f"## {folder.relative_to(ROOT).as_posix()}/\n"
    if first := _summary(package):
        yield f"{first}\n"
    modules = [path for path in sorted(folder.glob("*.py")) if path != package]
    for path in modules:
        yield f"- `{path.name}`: {_summary(path)}"
    if modules:
        yield ""


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


if __name__ == "__main__":
    INDEX.write_text(index(), encoding="utf-8")
