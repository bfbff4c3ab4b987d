"""Holds the doors between the rooms: which folder may import which, and what a core must not know."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

DOORS: dict[str, set[str]] = {
    "logger": set(),
    "overlay": {"logger"},
    "dispatching": {"ringmq.overlay.core.ids"},
    "mqtt_front": {"logger"},
    "peer": {"logger", "overlay", "dispatching", "mqtt_front"},
    "collector": {"logger"},
    "experiments": {"logger", "overlay", "dispatching", "mqtt_front", "peer", "collector"},
}
"""What each room may import: a folder, or one module of it."""

SHELLS = {
    "ringmq.overlay.timer",
    "ringmq.overlay.links.dialer",
    "ringmq.overlay.bootstrap.discovery",
    "ringmq.overlay.iteration",
    "ringmq.overlay.bootstrap.kademlia",
    "ringmq.overlay.links.link",
    "ringmq.overlay.links.table",
    "ringmq.overlay.node",
    "ringmq.overlay.links.incidents",
    "ringmq.overlay.queries",
    "ringmq.overlay.bootstrap.seeds",
    "ringmq.overlay.status",
    "ringmq.mqtt_front.amqtt.broker",
    "ringmq.mqtt_front.amqtt.server",
    "ringmq.mqtt_front.amqtt.connection",
    "ringmq.mqtt_front.amqtt.sender",
    "ringmq.mqtt_front.amqtt.sessions",
    "ringmq.mqtt_front.server.client_socket",
    "ringmq.mqtt_front.server.server",
    "ringmq.mqtt_front.server.listeners",
    "ringmq.mqtt_front.sessions.shell.recovery",
    "ringmq.mqtt_front.sessions.shell.sqlite_journal",
    "ringmq.mqtt_front.access.shell.password_pool",
    "ringmq.mqtt_front.server.websocket",
    "ringmq.peer.messaging.shell.local_clients",
    "ringmq.peer.messaging.shell.adapter",
    "ringmq.peer.engines.scribe.shell.adapter",
    "ringmq.peer.engines.coordinated.shell.retained_store",
}
"""The modules of the rooms with a core that do I/O, or know the clock or chance. All others there only think."""

ROOMS_WITH_A_CORE = (
    "overlay.",
    "dispatching.",
    "mqtt_front.",
    "ringmq.peer.engines.coordinated.",
    "ringmq.peer.engines.scribe.",
)

CORE_MUST_NOT_KNOW = {
    "asyncio",
    "logging",
    "os",
    "random",
    "secrets",
    "selectors",
    "signal",
    "socket",
    "sqlite3",
    "structlog",
    "subprocess",
    "threading",
    "time",
    "uvloop",
}
"""Time is an argument, chance has a seed, and I/O is the shell's."""


class Import(NamedTuple):
    target: str
    """The module, dotted; for `from a import b` both `a` and `a.b`, as `b` may be either."""
    line: int
    at_start: bool
    """Whether the import happens when the module is imported, rather than in a function or for types only."""


def imports_of(source: str) -> Iterator[Import]:
    yield from _walk(ast.parse(source), at_start=True)


def _walk(node: ast.AST, *, at_start: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, at_start) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            package = "." * child.level + (child.module or "")
            yield Import(package, child.lineno, at_start)
            yield from (Import(f"{package}.{alias.name}", child.lineno, at_start) for alias in child.names)
        else:
            deferred = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or (
                isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
            )
            yield from _walk(child, at_start=at_start and not deferred)


def wrong_doors(module: str, source: str) -> list[str]:
    """The imports of another room that DOORS does not allow, and relative ones."""
    room = module.split(".", maxsplit=1)[0]
    faults = []
    for found in imports_of(source):
        folder = found.target.split(".")[0]
        if found.target.startswith("."):
            faults.append(f"{module}:{found.line}: relative import")
        elif folder in DOORS and folder != room and not _opens(DOORS[room], found.target, source, found.line):
            faults.append(f"{module}:{found.line}: {room} must not import {found.target}")
    return faults


def _opens(doors: set[str], target: str, source: str, line: int) -> bool:
    if any(target == door or target.startswith(door + ".") for door in doors):
        return True
    # `from ringmq.overlay.core import ids` yields `overlay` as well as `overlay.core.ids`: the first is only the way to
    # the second.
    names = [found.target for found in imports_of(source) if found.line == line and found.target != target]
    below = [name for name in names if name.startswith(target + ".")]
    return bool(below) and all(_opens(doors, name, source, line) for name in below)


def unfit_for_a_core(module: str, source: str) -> list[str]:
    faults = []
    for found in imports_of(source):
        top = found.target.split(".")[0]
        if top in CORE_MUST_NOT_KNOW:
            faults.append(f"{module}:{found.line}: a core must not know {top}")
        if found.target in SHELLS:
            faults.append(f"{module}:{found.line}: a core must not import {found.target}, a shell")
    return faults


def cycle(modules: dict[str, str]) -> list[str]:
    """The modules of one cycle of imports at module level; empty if there is none."""
    graph = {
        name: {found.target for found in imports_of(source) if found.at_start and found.target in modules} - {name}
        for name, source in modules.items()
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def _read_modules() -> dict[str, str]:
    modules = {}
    for room in DOORS:
        for file in sorted((ROOT / room).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = file.read_text(encoding="utf-8")
    return modules


MODULES = _read_modules()
CORES = {name for name in MODULES if name.startswith(ROOMS_WITH_A_CORE)} - SHELLS


@pytest.mark.parametrize("module", MODULES)
def test_only_doors_are_used(module: str) -> None:
    assert wrong_doors(module, MODULES[module]) == []


@pytest.mark.parametrize("module", sorted(CORES))
def test_cores_only_think(module: str) -> None:
    assert module in MODULES, "it is gone: take it from the list"
    assert unfit_for_a_core(module, MODULES[module]) == []


@pytest.mark.parametrize("module", sorted(SHELLS))
def test_shells_are_none_without_need(module: str) -> None:
    assert module in MODULES, "it is gone: take it from the list"
    assert unfit_for_a_core(module, MODULES[module]), "it only thinks: take it from the list"


def test_no_cycles() -> None:
    assert cycle(MODULES) == []


def test_every_room_is_there() -> None:
    assert set(DOORS) <= set(MODULES)
    assert set().union(*DOORS.values()) <= set(MODULES)


@pytest.mark.parametrize("core_must_not_know", sorted(CORE_MUST_NOT_KNOW - {"structlog", "uvloop"}))
def test_forbidden_modules_exist(core_must_not_know: str) -> None:
    assert core_must_not_know in sys.stdlib_module_names


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("logger.x", "import ringmq.overlay.core.ids"),
        ("overlay.x", "from ringmq.peer.errors import PeerError"),
        ("overlay.x", "def f():\n    import ringmq.peer.errors"),
        ("overlay.x", "from .ids import Id"),
        ("overlay.x", "from . import ids"),
        ("dispatching.x", "import overlay"),
        ("dispatching.x", "from ringmq.overlay.core import ids, ring"),
        ("dispatching.x", "from ringmq.overlay.core.ring import Ring"),
        ("mqtt_front.x", "if TYPE_CHECKING:\n    from ringmq.overlay.core.ids import Id"),
        ("peer.x", "import ringmq.experiments.cli.local_ring"),
        ("collector.x", "from ringmq.peer import errors"),
    ],
)
def test_a_wrong_door_is_seen(module: str, source: str) -> None:
    assert wrong_doors(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "overlay.x",
            "import os\nfrom ringmq.overlay.core.ids import Id\nfrom ringmq.logger.log_setup import configure",
        ),
        ("dispatching.x", "from ringmq.overlay.core.ids import Id"),
        ("dispatching.x", "from ringmq.overlay.core import ids"),
        ("dispatching.x", "import ringmq.overlay.core.ids"),
        ("experiments.x", "import ringmq.peer.settings.load, collector"),
    ],
)
def test_a_door_lets_through(module: str, source: str) -> None:
    assert wrong_doors(module, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import time as clock",
        "from os.path import join",
        "def f():\n    import random",
        "from socket import AF_INET",
        "import structlog",
        "from ringmq.overlay.node import Node",
        "from ringmq.overlay import node",
    ],
)
def test_a_core_that_knows_too_much_is_seen(source: str) -> None:
    assert unfit_for_a_core("ringmq.overlay.core.ids", source)


def test_a_core_may_import_cores() -> None:
    assert (
        unfit_for_a_core(
            "ringmq.overlay.core.ring", "import heapq\nimport msgspec\nfrom ringmq.overlay.core.ids import Id"
        )
        == []
    )


def test_a_cycle_is_seen() -> None:
    there = {"a": "import b", "b": "from c import x", "c": "import a"}
    assert set(cycle(there)) == {"a", "b", "c"}
    assert set(cycle({"p": "", "p.a": "from p import b", "p.b": "import p.a"})) == {"p.a", "p.b"}
    assert cycle(there | {"c": "def f():\n    import a"}) == []
    assert cycle(there | {"c": "if TYPE_CHECKING:\n    import a"}) == []
