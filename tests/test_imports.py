"""Holds which folder may import which, what a core must not import, and that no imports form a cycle."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

PACKAGE = "ringmq"
"""The import name. All names below omit it: `overlay.core.ids` is imported as `ringmq.overlay.core.ids`."""

DOORS: dict[str, set[str]] = {
    "logger": set(),
    "overlay": {"logger"},
    "dispatching": {"overlay.core.ids"},
    "mqtt_front": {"logger"},
    "peer": {"logger", "overlay", "dispatching", "mqtt_front"},
    "collector": {"logger"},
    "experiments": {"logger", "overlay", "dispatching", "mqtt_front", "peer", "collector"},
}
"""Imports allowed to each top-level folder: whole folders, or one module of a folder."""

CORE_FOLDERS = {
    "overlay.core",
    "overlay.core.liveness",
    "dispatching",
    "mqtt_front",
    "mqtt_front.access",
    "mqtt_front.client",
    "mqtt_front.codec",
    "mqtt_front.connection",
    "mqtt_front.matching",
    "mqtt_front.sessions",
    "peer.administration",
    "peer.engines",
    "peer.engines.partitioned",
    "peer.engines.partitioned.coordinating",
    "peer.engines.partitioned.enrolling",
    "peer.engines.partitioned.publishing",
    "peer.engines.partitioned.subscribing",
    "peer.engines.scribe",
    "peer.messaging",
    "peer.replication",
    "peer.streams",
}
"""Folders whose modules are cores. Modules beside them with I/O, a clock or chance belong into a folder `shell`."""

SHELL_FOLDERS = {
    "overlay",
    "overlay.bootstrap",
    "overlay.links",
    "mqtt_front.amqtt",
    "mqtt_front.server",
    "peer",
    "peer.cli",
    "peer.cli.clients",
    "peer.cli.ring",
    "peer.identity",
    "peer.resources",
    "peer.settings",
    "peer.telemetry",
    "peer.web",
}
"""Folders whose modules are shells, besides each folder `shell`."""

FOLDERS_WITH_A_CORE = ("overlay", "dispatching", "mqtt_front", "peer")

PURE_IN_SHELLS = {
    "mqtt_front.server.http_request": "the head of an HTTP request, which is tested without a socket",
    "mqtt_front.server.tls": "checks the settings of TLS before any socket is there",
    "mqtt_front.server.websocket_frames": "the frames of RFC 6455, which are tested without a socket",
    "mqtt_front.server.websocket_upgrade": "the handshake of RFC 6455, which is tested without a socket",
    "overlay.config": "the numbers that a ring is made with, and addresses as text: cores show them in their status",
    "overlay.errors": "the errors that cores raise as well",
    "overlay.links.emulated_latency": "the delay of a pair is a function of two ids",
    "overlay.links.frames": "the frames of a link, which are tested without a socket",
    "overlay.links.handshake": "the decisions about a HELLO, which are tested without a socket",
    "overlay.links.proofs": "the reading of certificates, which is tested without a socket",
    "peer.errors": "the root of the errors that cores raise as well",
}
"""Modules in shell folders that obey the rules for cores, so that cores may import them, with the reason."""

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
"""Time is an argument, chance has a seed, and shells do the I/O."""


NOT_OURS = "<top>"
"""Prefix of a folder that is imported without PACKAGE: other projects may use such a name for their packages."""


def listed(faults: list[str]) -> str:
    """All faults, a line each: pytest alone shows the first."""
    return "\n".join(["", *faults])


def folder_of(module: str) -> str:
    return module.rpartition(".")[0]


def is_shell(module: str) -> bool:
    """Whether cores must not import the module."""
    if module in PURE_IN_SHELLS or not module.startswith(FOLDERS_WITH_A_CORE):
        return False
    return folder_of(module) in SHELL_FOLDERS or "shell" in module.split(".")[1:-1]


class Import(NamedTuple):
    target: str
    """The module, dotted; for `from a import b` both `a` and `a.b`, as `b` may be either. Ours go without PACKAGE."""
    line: int
    at_start: bool
    """Whether the import happens when the module is imported, rather than in a function or for types only."""


def imports_of(source: str) -> Iterator[Import]:
    for found in _walk(ast.parse(source), at_start=True):
        if found.target.startswith(f"{PACKAGE}."):
            yield found._replace(target=found.target.removeprefix(f"{PACKAGE}."))
        elif found.target.split(".")[0] in DOORS:
            yield found._replace(target=f"{NOT_OURS}.{found.target}")
        else:
            yield found


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


def forbidden_imports(module: str, source: str) -> list[str]:
    """Imports of another folder that DOORS does not allow, and imports that are relative or lack PACKAGE."""
    own = module.split(".", maxsplit=1)[0]
    faults = []
    for found in imports_of(source):
        folder = found.target.split(".")[0]
        if found.target.startswith("."):
            faults.append(f"{module}:{found.line}: relative import")
        elif folder == NOT_OURS:
            faults.append(f"{module}:{found.line}: {found.target} without {PACKAGE}")
        elif folder in DOORS and folder != own and not _allowed(DOORS[own], found.target, source, found.line):
            faults.append(f"{module}:{found.line}: {own} must not import {found.target}")
    return faults


def _allowed(allowed: set[str], target: str, source: str, line: int) -> bool:
    if any(target == name or target.startswith(name + ".") for name in allowed):
        return True
    # `from overlay import ids` yields `overlay` and `overlay.ids`: the first is only the parent of the second.
    names = [found.target for found in imports_of(source) if found.line == line and found.target != target]
    below = [name for name in names if name.startswith(target + ".")]
    return bool(below) and all(_allowed(allowed, name, source, line) for name in below)


def unfit_for_a_core(module: str, source: str) -> list[str]:
    faults = []
    for found in imports_of(source):
        top = found.target.split(".")[0]
        if top in CORE_MUST_NOT_KNOW:
            faults.append(f"{module}:{found.line}: a core must not know {top}")
        if found.target in MODULES and is_shell(found.target):
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
    for folder in DOORS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            modules[name] = file.read_text(encoding="utf-8")
    return modules


MODULES = _read_modules()
FOLDERS = {folder_of(name) for name in MODULES} - {""}
PACKAGES = {name for name in MODULES if name in FOLDERS} | set(DOORS)
CORES = {name for name in set(MODULES) - PACKAGES if folder_of(name) in CORE_FOLDERS} | set(PURE_IN_SHELLS)
IN_SHELL = {name for name in MODULES if folder_of(name).endswith(".shell")}


def test_folders_import_only_what_they_may() -> None:
    faults = [fault for module, source in MODULES.items() for fault in forbidden_imports(module, source)]
    assert faults == [], listed(faults)


def test_cores_import_no_io_clock_chance_or_shell() -> None:
    assert set(MODULES) >= CORES, "a module is gone: remove it from PURE_IN_SHELLS"
    faults = [fault for module in sorted(CORES) for fault in unfit_for_a_core(module, MODULES[module])]
    assert faults == [], listed(faults)


def test_modules_in_shell_folders_need_to_be_there() -> None:
    """A module that could be a core belongs into the folder above."""
    faults = [module for module in sorted(IN_SHELL) if not unfit_for_a_core(module, MODULES[module])]
    assert faults == [], listed(faults)


def test_each_folder_is_a_core_or_a_shell() -> None:
    inside = {name for name in FOLDERS if name.split(".")[0] in FOLDERS_WITH_A_CORE}
    assert {name for name in inside if not name.endswith(".shell")} == CORE_FOLDERS | SHELL_FOLDERS
    assert not CORE_FOLDERS & SHELL_FOLDERS
    assert {name.removesuffix(".shell") for name in inside if name.endswith(".shell")} <= CORE_FOLDERS
    assert {folder_of(name) for name in PURE_IN_SHELLS} <= SHELL_FOLDERS


def test_no_imports_form_a_cycle() -> None:
    assert cycle(MODULES) == []


def test_every_folder_in_the_table_exists() -> None:
    assert set(DOORS) <= set(MODULES)
    assert set().union(*DOORS.values()) <= set(MODULES)


def test_forbidden_modules_exist() -> None:
    assert CORE_MUST_NOT_KNOW - {"structlog", "uvloop"} <= sys.stdlib_module_names


def test_a_forbidden_import_is_found() -> None:
    bad = [
        ("logger.x", "import ringmq.overlay.core.ids"),
        ("overlay.x", "from ringmq.peer.errors import PeerError"),
        ("overlay.x", "def f():\n    import ringmq.peer.errors"),
        ("overlay.core.x", "from .ids import Id"),
        ("overlay.core.x", "from . import ids"),
        ("overlay.core.x", "from overlay.core.ids import Id"),
        ("overlay.core.x", "import logger"),
        ("dispatching.x", "import ringmq.overlay"),
        ("dispatching.x", "from ringmq import overlay"),
        ("dispatching.x", "from ringmq.overlay.core import ids, ring"),
        ("dispatching.x", "from ringmq.overlay.core.ring import Ring"),
        ("mqtt_front.x", "if TYPE_CHECKING:\n    from ringmq.overlay.core.ids import Id"),
        ("peer.x", "import ringmq.experiments.cli.local_ring"),
        ("collector.x", "from ringmq.peer import errors"),
    ]
    assert [(module, source) for module, source in bad if not forbidden_imports(module, source)] == []


def test_an_allowed_import_passes() -> None:
    two_lines = "import os\nfrom ringmq.overlay.core.ids import Id\nfrom ringmq.logger.log_setup import set_up"
    good = [
        ("overlay.x", two_lines),
        ("dispatching.x", "from ringmq.overlay.core.ids import Id"),
        ("dispatching.x", "from ringmq.overlay.core import ids"),
        ("dispatching.x", "import ringmq.overlay.core.ids"),
        ("experiments.x", "import ringmq.peer.settings.load, ringmq.collector"),
        ("experiments.x", "from ringmq import peer"),
    ]
    assert [fault for module, source in good for fault in forbidden_imports(module, source)] == []


def test_a_core_that_imports_too_much_is_found() -> None:
    bad = [
        "import asyncio",
        "import time as clock",
        "from os.path import join",
        "def f():\n    import random",
        "from socket import AF_INET",
        "import structlog",
        "from ringmq.overlay.node import Node",
        "from ringmq.overlay import node",
        "from ringmq.overlay.links import table",
        "import ringmq.mqtt_front.sessions.shell.sqlite_journal",
        "from ringmq.peer.messaging.shell.adapter import RingPorts",
    ]
    assert [source for source in bad if not unfit_for_a_core("overlay.core.ids", source)] == []


def test_a_core_may_import_cores() -> None:
    source = "import heapq\nimport msgspec\nfrom ringmq.overlay.core.ids import Id\nfrom ringmq.overlay import errors"
    assert unfit_for_a_core("overlay.core.ring", source) == []


def test_a_cycle_is_found() -> None:
    there = {"a": "import b", "b": "from c import x", "c": "import a"}
    assert set(cycle(there)) == {"a", "b", "c"}
    assert set(cycle({"p": "", "p.a": "from p import b", "p.b": "import p.a"})) == {"p.a", "p.b"}
    assert cycle(there | {"c": "def f():\n    import a"}) == []
    assert cycle(there | {"c": "if TYPE_CHECKING:\n    import a"}) == []
