"""Holds the rules of style that an ordinary test can check, so that no review has to (as TigerBeetle's tidy does).

Checks folders and their tests, names, sizes, and that the code uses each definition. Each test reads all files and
reports all faults.
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tests.test_imports import DOORS, listed

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ringmq"
CODE = tuple(DOORS)
FOLDERS = (*CODE, "src", "tests", ".ci", "docs", "deploy")
TEXTS = {".py", ".md", ".toml", ".sh", ".txt", ".yml", ".yaml", ""}

MAX_MODULES = 16
"""A folder with more has a second idea inside, and a newcomer reads its list of names for nothing."""
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
"""Past these there is a second idea inside. Most files stay under 300, most functions under 40."""
MAX_PAUSE_S = 0.02
"""Between two looks at a condition. A test that waits in larger steps waits in vain most of the time."""

VAGUE = frozenset({"one", "point", "it", "thing"})
"""Names that a variable must not have, since they do not say what it holds."""

TESTS_WITHOUT_PACKAGE = {
    "tests/deploy": "tests the files in deploy/, which hold no Python",
    "tests/mqtt_front/real_clients": "runs clients of others against the whole front",
}
"""Folders of tests for something other than one package, with the reason."""

USED_FROM_OUTSIDE = {
    "connection_lost": "asyncio calls it (Protocol)",
    "do_handshake": "asyncio calls it (SSLObject)",
    "eof_received": "asyncio calls it (Protocol)",
    "connection_made": "asyncio calls it (Protocol)",
    "data_received": "asyncio calls it (Protocol)",
    "datagram_received": "asyncio calls it (DatagramProtocol)",
    "error_received": "asyncio calls it (DatagramProtocol)",
    "pause_writing": "asyncio calls it (Protocol)",
    "resume_writing": "asyncio calls it (Protocol)",
    "wrap_bio": "asyncio calls it (SSLContext)",
    "_timer_handle_cancelled": "asyncio calls it (AbstractEventLoop)",
    "get_debug": "asyncio calls it (AbstractEventLoop)",
    "convert": "click calls it (ParamType)",
    "get_command": "click calls it (Group)",
    "list_commands": "click calls it (Group)",
    "emit": "logging calls it (Handler)",
    "add_subscription": "amqtt calls it (Broker)",
    "_authenticate": "amqtt calls it (Broker)",
    "_broadcast_message": "amqtt calls it (Broker)",
    "_del_all_subscriptions": "amqtt calls it (Broker)",
    "_handle_message_delivery": "amqtt calls it (Broker)",
    "_handle_subscription": "amqtt calls it (Broker)",
    "_publish_retained_messages_for_subscription": "amqtt calls it (Broker)",
    "_publish_session_retained_messages": "amqtt calls it (Broker)",
    "_run_broadcast": "amqtt calls it (Broker)",
    "_retry_deliveries": "amqtt calls it (ProtocolHandler)",
    "handle_pubrel": "amqtt calls it (ProtocolHandler)",
    "_create_protocol": "kademlia calls it (Server)",
    "bootstrap_node": "kademlia calls it (Server)",
    "refresh_table": "kademlia calls it (Server)",
    "_timeout": "rpcudp calls it (RPCProtocol)",
    "call_find_node": "kademlia calls it (KademliaProtocol)",
    "call_ping": "kademlia calls it (KademliaProtocol)",
    "welcome_if_new": "kademlia calls it (KademliaProtocol)",
    "get_bucket_for": "kademlia calls it (RoutingTable)",
    "iter_older_than": "kademlia calls it (IStorage)",
}
"""Definitions that no code of the project names, since a library calls them, with the reason."""

# Written in pieces, or this file would be the first to break its own rules.
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
MACHINES = {
    "a path of one machine": re.compile(r"(?<![\w.$)}~])/(?:home|root|Users|opt|mnt|srv|wo" + r"rk)\b"),
    "a package registry": re.compile(r"\bpy" + r"pi\.org|files\.python" + r"hosted"),
}


# Reading the repository


def _texts() -> dict[str, str]:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*")]
    files += ROOT.glob("*")
    named = {file.relative_to(ROOT) for file in files if file.is_file() and file.suffix in TEXTS}
    texts = sorted(file for file in named if "__pycache__" not in file.parts)
    return {file.as_posix(): (ROOT / file).read_text(encoding="utf-8") for file in texts}


ALL = _texts()
MODULES = {file: text for file, text in ALL.items() if file.endswith(".py")}


@cache
def in_code() -> dict[str, ast.Module]:
    """The syntax trees of the code. Only the processes that run tests of this module make them."""
    return {file: ast.parse(text) for file, text in MODULES.items() if file.split("/")[0] in CODE}


def faults_of(faults: Mapping[str, list[str]]) -> list[str]:
    """All faults of all files, each with its file."""
    return [f"{file}:{fault}" for file, found in faults.items() for fault in found]


# Folders


def packages() -> list[str]:
    return sorted({str(PurePosixPath(file).parent) for file in in_code()} | set(CODE))


def crowded(modules: Mapping[str, int]) -> list[str]:
    """Folders with too many modules."""
    return [
        f"{folder}: {count} modules, over {MAX_MODULES}" for folder, count in modules.items() if count > MAX_MODULES
    ]


def test_no_folder_has_too_many_modules() -> None:
    counts = dict.fromkeys(packages(), 0)
    for file in in_code():
        counts[str(PurePosixPath(file).parent)] += not file.endswith("/__init__.py")
    assert counts["overlay"] > 0
    faults = crowded(counts)
    assert faults == [], listed(faults)
    assert crowded({"a": 16, "b": 17}) == ["b: 17 modules, over 16"]


def misdescribed(package: str, docstring: str | None) -> list[str]:
    """A package docstring that does not state the job of the package and its limits."""
    good = docstring is not None and docstring.startswith("Owns ") and "; " in docstring and docstring.endswith(".")
    return [] if good else [f"{package}: the docstring must read: Owns ...; must not know ..., got {docstring!r}"]


def test_each_package_states_its_job_and_what_it_must_not_know() -> None:
    faults = []
    for package in packages():
        init = in_code().get(f"{package}/__init__.py")
        faults += misdescribed(package, None if init is None else ast.get_docstring(init))
    assert faults == [], listed(faults)
    assert misdescribed("a", None)
    assert misdescribed("a", "Owns everything.")
    assert misdescribed("a", "Owns the ring; must not know MQTT.") == []


def test_the_import_package_consists_of_links_to_the_top_level_folders() -> None:
    links = {link.name: str(link.readlink()) for link in PACKAGE.iterdir() if link.is_symlink()}
    assert links == {folder: f"../../{folder}" for folder in CODE}


def test_the_import_package_imports_none_of_its_folders() -> None:
    """Every import of a module runs it before, a core's as well."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in imports] == ["from __future__ import annotations"]


def has_code(tree: ast.AST) -> bool:
    """Whether there is something to test: a function. Constants and plain records are tested by their users."""
    return any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in ast.walk(tree))


def unmirrored(packages_with_code: set[str], packages: set[str], test_folders: Mapping[str, int]) -> list[str]:
    """Packages with code but without tests, and folders of tests without their package."""
    faults = [
        f"{package}: tests/{package} holds no tests"
        for package in packages_with_code
        if not test_folders.get(f"tests/{package}")
    ]
    faults += [
        f"{folder}: no package of that name" for folder in test_folders if folder[len("tests/") :] not in packages
    ]
    return sorted(faults)


def test_each_package_has_a_test_folder_and_each_test_folder_a_package() -> None:
    with_code = {str(PurePosixPath(file).parent) for file, tree in in_code().items() if has_code(tree)}
    folders: defaultdict[str, int] = defaultdict(int)
    for file in MODULES:
        path = PurePosixPath(file)
        if path.parts[0] == "tests" and len(path.parts) > 2:
            folders[str(path.parent)] += path.name.startswith("test_")
    faults = unmirrored(with_code, set(packages()), folders)
    unexpected = [fault for fault in faults if fault.split(":")[0] not in TESTS_WITHOUT_PACKAGE]
    assert unexpected == [], listed(unexpected)
    assert set(TESTS_WITHOUT_PACKAGE) <= {fault.split(":")[0] for fault in faults}


def test_a_package_without_tests_and_tests_without_a_package_are_found() -> None:
    assert has_code(ast.parse("class D:\n    def f(self): ..."))
    assert not has_code(ast.parse("B = 1"))
    assert unmirrored({"overlay"}, {"overlay"}, {"tests/overlay": 1}) == []
    assert unmirrored({"overlay"}, {"overlay"}, {"tests/overlay": 0}) == ["overlay: tests/overlay holds no tests"]
    assert unmirrored(set(), {"overlay"}, {"tests/old": 1}) == ["tests/old: no package of that name"]


# Texts and shapes


def machines_named(text: str) -> list[str]:
    """Mentions of the machine on which this was written (they help nobody elsewhere), and marks of unfinished work."""
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        faults += [f"{number}: {fault}" for fault, pattern in MACHINES.items() if pattern.search(line)]
        if UNFINISHED.search(line):
            faults.append(f"{number}: unfinished")
    return faults


def test_no_file_names_a_machine_or_is_unfinished() -> None:
    expected = {"overlay/core/ids.py", "tests/test_house.py", "pyproject.toml", "Makefile", ".ci/run"}
    assert expected <= set(ALL)
    faults = faults_of({file: machines_named(text) for file, text in ALL.items()})
    assert faults == [], listed(faults)


def test_names_of_machines_and_unfinished_work_are_found() -> None:
    bad = (
        "# TO" + "DO: later",
        "raise X  # FIX" + "ME",
        "cd /ho" + "me/jo/ringmq",
        'Path("/wo' + 'rk/seeds")',
        "see /wo" + "rk.",
        "index-url = https://py" + "pi.org/simple",
    )
    for text in bad:
        assert [fault[:3] for fault in machines_named(f"fine\n{text}\nfine")] == ["2: "], text
    for text in ("/proc/self/stat", "https://example.org/homework/a", "it works / homes", "shared_digits()"):
        assert machines_named(text) == [], text


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


def test_modules_open_with_a_docstring_and_stay_short() -> None:
    faults = faults_of({file: shape_of(text) for file, text in MODULES.items()})
    assert faults == [], listed(faults)


def test_missing_docstrings_and_long_functions_are_found() -> None:
    assert shape_of('"""Owns nothing."""\n\n\ndef f() -> None: ...\n') == []
    assert shape_of("X = 1\n") == ["1: no docstring opens the module"]
    assert shape_of('"""Long."""\n' + "\n" * MAX_FILE_LINES) == ["1: 601 lines, over 600"]
    body = "    pass\n" * MAX_FUNCTION_LINES
    assert shape_of(f'"""Long."""\nclass C:\n  async def f():\n{body}') == ["3: f has 71 lines, over 70"]


# Sleeps


def sleeps_in(source: str) -> list[str]:
    """Calls of a sleep, by whatever name it was imported. Allowed are sleep(0), which lets others run, and short pauses
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
    """How long the call sleeps; infinity, if the source does not state it."""
    argument = call.args[0] if call.args else None
    if isinstance(argument, ast.Constant) and isinstance(argument.value, (int, float)):
        return argument.value
    return math.inf


def test_no_test_sleeps() -> None:
    tests = {file: text for file, text in MODULES.items() if file.startswith("tests/")}
    faults = faults_of({file: sleeps_in(text) for file, text in tests.items()})
    assert faults == [], listed(faults)


def test_sleeps_are_found() -> None:
    bad = (
        "import time\ntime.sleep(1)",
        "await asyncio.sleep(.01)",
        "from time import sleep as nap\nnap(1)",
        "sleep(seconds)",
        "while not done():\n    time.sleep(0.1)",
        "while not done():\n    time.sleep(pause_s)",
        "for _ in range(9):\n    time.sleep(0.01)",
    )
    for source in bad:
        assert len(sleeps_in(source)) == 1, source
    good = ("await asyncio.sleep(0)", "asleep(1)", "x = time.sleep", "while not done():\n    time.sleep(0.01)")
    for source in good:
        assert sleeps_in(source) == [], source


# Names


def classes_twice(trees: Mapping[str, ast.AST]) -> list[str]:
    """Class names with more than one definition: a reader cannot know which of them a sentence means."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{file}:{node.lineno}")
    return [f"{name}: {', '.join(places)}" for name, places in found.items() if len(places) > 1]


def test_class_names_are_unique_within_a_top_level_folder() -> None:
    faults = []
    for folder in CODE:
        faults += classes_twice({file: tree for file, tree in in_code().items() if file.startswith(f"{folder}/")})
    assert faults == [], listed(faults)
    twice = {"a.py": ast.parse("class A: ..."), "b.py": ast.parse("def f():\n    class A: ...\nclass B: ...")}
    assert classes_twice(twice) == ["A: a.py:1, b.py:2"]


def vague_names(tree: ast.AST) -> list[str]:
    return [
        f"{node.lineno}: a variable named {node.id}; name what it holds"
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE
    ]


def test_variables_say_what_they_hold() -> None:
    faults = faults_of({file: vague_names(tree) for file, tree in in_code().items()})
    assert faults == [], listed(faults)
    source = "for one in two:\n    point = one\nx = [it for it in two]\nif (thing := x): ..."
    assert len(vague_names(ast.parse(source))) == 4
    assert vague_names(ast.parse("for peer in one:\n    print(it, peer.point)")) == []


# Definitions that nothing uses


class Definition(NamedTuple):
    name: str
    file: str
    first: int
    last: int

    def holds(self, file: str, line: int) -> bool:
        return file == self.file and self.first <= line <= self.last


def definitions_in(file: str, tree: ast.Module) -> Iterator[Definition]:
    """Functions, classes, methods, and constants of the module. Not: special methods, commands of click."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            commands = (ast.unparse(decorator).split("(")[0] for decorator in node.decorator_list)
            if not any(name.endswith((".command", ".group")) for name in commands):
                yield Definition(node.name, file, node.lineno, node.end_lineno or node.lineno)
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name):
                yield Definition(target.id, file, node.lineno, node.end_lineno or node.lineno)


def uses_in(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names that the module reads, as a variable, an attribute or a string (for getattr), with their lines."""
    lists = {
        constant
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__slots__", "__all__")
        for constant in ast.walk(node.value)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, node.lineno
        elif isinstance(node, ast.Constant) and node not in lists:
            value = node.value
            if isinstance(value, str) and value.isidentifier():
                yield value, node.lineno


def dead_definitions(trees: Mapping[str, ast.Module], used_from_outside: Iterable[str]) -> list[str]:
    """Definitions whose name stands nowhere else than in themselves, or only in other dead definitions."""
    uses: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for file, tree in trees.items():
        for name, line in uses_in(tree):
            uses[name].append((file, line))
    kept = set(used_from_outside)
    alive = [
        definition
        for file, tree in trees.items()
        for definition in definitions_in(file, tree)
        if definition.name not in kept and not definition.name.startswith("__") and definition.name != "_"
    ]
    dead: list[Definition] = []
    while True:
        found = [
            definition
            for definition in alive
            if not any(
                not definition.holds(*use) and not any(other.holds(*use) for other in dead)
                for use in uses[definition.name]
            )
        ]
        if not found:
            return sorted(f"{definition.file}:{definition.first}: {definition.name}" for definition in dead)
        dead += found
        alive = [definition for definition in alive if definition not in found]


def entry_points() -> set[str]:
    project = tomllib.loads(ALL["pyproject.toml"])["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    return {target.rpartition(":")[2] for group in groups for target in group.values()}


def test_every_definition_is_used_by_the_code_itself() -> None:
    """A definition that only tests use is dead as well: the tests then hold something that nobody runs."""
    dead = dead_definitions(in_code(), {*USED_FROM_OUTSIDE, *entry_points()})
    assert dead == [], listed(dead)


def test_library_callbacks_on_the_list_are_defined() -> None:
    names = {definition.name for file, tree in in_code().items() for definition in definitions_in(file, tree)}
    assert set(USED_FROM_OUTSIDE) - names == set()


def test_dead_definitions_are_found() -> None:
    source = """
USED = 1
DEAD = 2
class A:
    def __init__(self): self.used()
    def used(self): return USED
    def again(self): return self.again()
    def by_name(self): return self.chain()
    def chain(self): return other()
def other(): ...
def main(): return getattr(A(), "named")
def named(): ...
@group.command()
def shown(): ...
"""
    dead = dead_definitions({"a.py": ast.parse(source)}, {"main"})
    assert [fault.rpartition(" ")[2] for fault in dead] == ["other", "DEAD", "again", "by_name", "chain"]
