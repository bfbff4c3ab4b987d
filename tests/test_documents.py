"""Checks the documents: commands exist and take their options, settings are valid, links and paths lead to files.

Commands that end by themselves are run in a small form, and so is the section "Try it" of the README. One list has the
programs that no test runs, with the reason.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from ringmq.peer.cli import main
from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.load import load
from tests.module_index import INDEX, index
from tests.mqtt_front.real_clients.missing import cannot
from tests.test_imports import DOORS, listed

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCUMENTS = [
    README,
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    # The index repeats docstrings, which name commands without their options.
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path != INDEX),
]
MAX_ARCHITECTURE_WORDS = 1200
"""A newcomer reads it in five minutes; everything beyond an overview belongs into docs/internals/."""
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EVERY_SETTING = ROOT / "docs" / "ringmq.toml"

PROGRAMS = ("ringmq", "make", "mosquitto_sub", "mosquitto_pub")
"""Programs whose commands are all checked."""
NOT_RUN = {
    "apt-get": "needs root, and changes the machine",
    "curl": "asks a peer that runs",
    "docker": "needs its daemon, and images from elsewhere; tests/deploy checks the commands inside",
    "git": "asks the network",
    "install": "needs root, and changes the machine",
    "journalctl": "needs systemd",
    "kill": "needs the pid of a peer; tests/peer/test_process.py sends the signals",
    "ln": "needs root, and changes the machine",
    "npm": "asks the network; tests/mqtt_front/test_real_clients.py has mqtt.js",
    "openssl": "makes certificates, as tests do with trustme",
    "pip": "changes what is installed",
    "pkill": "kills a peer; tests/peer/test_process.py sends the signals",
    "python": "measures the machine",
    "python3": "makes an environment for pip",
    "sudo": "needs root, and changes the machine; the ringmq command after it is checked",
    "systemctl": "needs systemd",
    "useradd": "needs root, and changes the machine",
}
"""Other programs in commands, and the reason why no test runs them. Any further program is a fault."""
NO_COMMANDS = {"ringmq version …": "a text of $SYS"}
"""Code that only begins like a command."""
PLACEHOLDERS = {"N": "1", "SECONDS": "1", "HOST:PORT": "127.0.0.1:1883", "USER": "alice", "NAME": "alice"}
"""Values for words that a reader replaces. Words for files and folders, such as DIR, can stay."""
SMALL = {
    "ringmq passwd passwords alice": "--batch",
    "ringmq passwd passwords sensor-7 --batch": "",
    "ringmq passwd passwords alice --delete": "",
    "ringmq simulate hops --nodes 100000": "--nodes 300 --lookups 100",
    "ringmq simulate hops --nodes 10000 --joined": "--nodes 40 --lookups 100",
    "ringmq simulate join": "--nodes 20 --storms 0",
    "ringmq simulate fail": "--nodes 40 --lookups 50",
    "ringmq simulate split": "--nodes 20 --apart 10",
    "ringmq simulate churn": "--nodes 20 --hours 0.01 --lan-hours 0.01 --median 60",
    "ringmq simulate spread": "--nodes 40 --topics 1",
}
"""Commands of the documents that end by themselves, and options that make them small. Run in this order."""
PEERS_OF_THE_WALK = 8
"""The README has 12; its commands use the first and the eighth."""


class Command(NamedTuple):
    where: str
    words: list[str]
    in_a_sentence: bool = False

    @property
    def text(self) -> str:
        return shlex.join(self.words)


class Block(NamedTuple):
    line: int
    language: str | None
    """None: indented."""
    lines: list[str]


# Reading the documents


def blocks_of(text: str) -> Iterator[Block]:
    """Blocks of code, fenced and indented."""
    block: Block | None = None
    blank = True
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.startswith("```")
        if block is not None and block.language is not None:
            if fence:
                yield block
                block = None
            else:
                block.lines.append(line)
        elif fence:
            block = Block(number + 1, line[3:].strip(), [])
        elif line.startswith("    ") and (block is not None or blank):
            block = block or Block(number, None, [])
            block.lines.append(line[4:])
        elif block is not None:
            yield block
            block = None
        blank = not line.strip()
    if block is not None:
        yield block


def typed_in(block: Block) -> Iterator[tuple[int, str]]:
    """Whole commands, without comments beside them and without redirections."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(block.lines, block.line):
        begun = begun if parts else number
        parts.append(line.strip().removesuffix("\\").strip())
        if line.rstrip().endswith("\\"):
            continue
        whole = re.sub(r"\s{2,}.*|\s#\s.*", "", " ".join(parts))
        parts.clear()
        for typed in re.split(r"\s(?:\||&&)\s", whole):
            text = without_redirection(typed).removeprefix("$ ").strip()
            if text:
                yield begun, text


def without_redirection(command: str) -> str:
    return re.split(r"\s[<>]", command)[0]


def commands_of(name: str, text: str) -> Iterator[Command]:
    """All commands of a document. A fence without a language may contain other text."""
    for block in blocks_of(text):
        if block.language in (None, "", "sh", "bash", "shell", "console"):
            for number, typed in typed_in(block):
                known = re.match(r"[\w./-]+(?=\s|$)", typed)
                if block.language != "" or (known and program_of(known[0]) in (*PROGRAMS, *NOT_RUN)):
                    yield Command(f"{name}:{number}", shlex.split(typed))
    for number, line in enumerate(text.splitlines(), 1):
        for code in re.findall(r"`((?:\.venv/bin/)?(?:ringmq|make|mosquitto_\w+) [^`]+)`", line):
            if code not in NO_COMMANDS:
                yield Command(f"{name}:{number}", shlex.split(without_redirection(code)), in_a_sentence=True)


def program_of(word: str) -> str:
    """Name of a program without its folder."""
    return word.rpartition("/")[2]


def looked_at(found: Command) -> Command:
    """The command without `sudo` and without the folder of its program."""
    words = found.words
    inner = next((index for index, word in enumerate(words) if program_of(word) in PROGRAMS), 0)
    words = words[inner:] if words[0] == "sudo" else words
    return found._replace(words=[program_of(words[0]), *(PLACEHOLDERS.get(word, word) for word in words[1:])])


TEXTS = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in DOCUMENTS}
COMMANDS = [looked_at(found) for name, text in TEXTS.items() for found in commands_of(name, text)]
BLOCKS = [
    pytest.param(block.language, "\n".join(block.lines) + "\n", id=f"{name}:{block.line}")
    for name, text in TEXTS.items()
    for block in blocks_of(text)
]


def of(*programs: str) -> list[Any]:
    return [pytest.param(found, id=f"{found.where} {found.text}") for found in COMMANDS if found.words[0] in programs]


# Commands


def test_commands_in_documents_are_found() -> None:
    found = {command.text for command in COMMANDS}
    some = ("make ring", "ringmq status --topic hall/7/door", "ringmq simulate hops --nodes 10000 --joined")
    assert {*some, *SMALL, "ringmq config check ringmq.toml"} <= found
    assert len(of("ringmq")) > 40
    assert {command.words[0] for command in COMMANDS} >= set(PROGRAMS)


def test_each_program_is_checked_or_listed_with_a_reason() -> None:
    unknown = [command for command in COMMANDS if command.words[0] not in (*PROGRAMS, *NOT_RUN)]
    assert unknown == [], "a test must check them, or NOT_RUN must give the reason why none does"


def context_of(words: list[str]) -> click.Context:
    """Parses these words as the command line does, without running anything. Raises UsageError."""
    found: click.Command = main.ringmq
    name, rest = "ringmq", words
    while isinstance(found, click.Group) and rest:
        name, *rest = rest
        below = found.get_command(click.Context(found), name)
        if below is None:
            raise click.UsageError(f"no command {name}")
        assert not (below.help or "").startswith("Not available"), below.help
        found = below
    assert not isinstance(found, click.Group) or not rest
    return click.Context(found) if isinstance(found, click.Group) else found.make_context(name, list(rest))


@pytest.mark.parametrize("found", of("ringmq"))
def test_ringmq_accepts_the_command(found: Command) -> None:
    try:
        context = context_of(found.words[1:])
    except (click.MissingParameter, click.BadOptionUsage):
        if found.in_a_sentence:  # which may name a command without its arguments, and an option without its value
            return
        raise
    if found.words[1:2] == ["peer"]:
        line = {name: value for name, value in context.params.items() if value is not None and value != ()}
        file = line.pop("config", None)
        load(file and EVERY_SETTING, line)


@pytest.mark.parametrize("words", ["bogus", "config bogus", "simulate join --bogus", "ring --peers x", "passwd file"])
def test_an_unknown_command_is_found(words: str) -> None:
    with pytest.raises(click.UsageError):
        context_of(words.split())


def test_settings_that_a_peer_refuses_are_found() -> None:
    with pytest.raises(ConfigError):
        test_ringmq_accepts_the_command(Command("", ["ringmq", "peer", "--timing", "fast"]))


def test_an_unknown_target_of_make_is_found() -> None:
    for word in ("rings", "PEER=50"):
        with pytest.raises(AssertionError, match=word):
            test_make_has_the_target(Command("", ["make", word]))


@pytest.mark.parametrize("found", of("make"))
def test_make_has_the_target(found: Command) -> None:
    for word in found.words[1:]:
        variable, equals, _ = word.partition("=")
        wanted = rf"^{variable} \?=" if equals else rf"^{word}:"
        assert re.search(wanted, MAKEFILE, re.MULTILINE), word


@pytest.mark.parametrize("found", of("mosquitto_sub", "mosquitto_pub"))
def test_mosquitto_has_the_options(found: Command) -> None:
    program = found.words[0]
    if shutil.which(program) is None:
        cannot(f"{program} is not installed; on Debian: apt-get install mosquitto-clients")
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10, check=False).stdout
    options = [word for word in found.words if re.match(r"--?[a-zA-Z]", word)]
    assert options
    assert [option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", help_text)] == []


@pytest.mark.parametrize(("language", "text"), [block for block in BLOCKS if block.values[0] == "toml"])
def test_settings_in_documents_are_valid(tmp_path: Path, language: str, text: str) -> None:
    file = tmp_path / "peer.toml"
    file.write_text(text, encoding="utf-8")
    load(file, {} if re.search(r"^mqtt", text, re.MULTILINE) else {"mqtt": "127.0.0.1:0"})


@pytest.mark.parametrize(("language", "text"), [block for block in BLOCKS if block.values[0] == "python"])
def test_python_in_documents_parses(language: str, text: str) -> None:
    ast.parse(text)


# Commands that end by themselves


def test_commands_that_end_by_themselves_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for text, small in SMALL.items():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"secret\n")))
        with pytest.raises(SystemExit) as ended:
            main.main([*shlex.split(text)[1:], *shlex.split(small)])
        shown = capsys.readouterr()
        assert ended.value.code == 0, f"{text}: {shown.err}"
        assert shown.out, text


def test_the_example_of_settings_passes_its_check(ringmq: Callable[..., Any], tmp_path: Path) -> None:
    example = ringmq("config", "example")
    assert example.popen.returncode == 0
    (tmp_path / "ringmq.toml").write_text(example.out, encoding="utf-8")
    checked = ringmq("config", "check", str(tmp_path / "ringmq.toml"))
    assert (checked.popen.returncode, checked.err) == (0, "")


# Links, paths and the overview


def broken_links(name: str, text: str) -> list[str]:
    """Links to files that are not there. Web addresses and anchors are not checked."""
    here = (ROOT / name).parent
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return [f"{name}: {target}" for target in targets if "://" not in target and not (here / target).exists()]


def missing_paths(name: str, text: str) -> list[str]:
    """Paths of the code in backticks that lead nowhere."""
    paths = re.findall(rf"`((?:{'|'.join((*DOORS, 'tests', 'docs'))})/[\w./-]*)`", text)
    return [f"{name}: {path}" for path in paths if not (ROOT / path).exists()]


def test_links_between_documents_lead_to_files() -> None:
    faults = [fault for name, text in TEXTS.items() for fault in broken_links(name, text)]
    assert faults == [], listed(faults)
    assert broken_links("docs/ring.md", "[a](../README.md), [b](ring.md#x), [c](http://a/b)") == []
    assert broken_links("docs/ring.md", "see [a](README.md)") == ["docs/ring.md: README.md"]


def test_paths_of_the_code_in_documents_exist() -> None:
    faults = [fault for name, text in TEXTS.items() for fault in missing_paths(name, text)]
    assert faults == [], listed(faults)
    assert missing_paths("a", "`overlay/core/ids.py`, `peer/`, `tests/peer`") == []
    assert missing_paths("a", "`overlay/core/idz.py`") == ["a: overlay/core/idz.py"]


def test_the_architecture_is_short_and_lists_all_packages() -> None:
    text = TEXTS["ARCHITECTURE.md"]
    assert len(text.split()) <= MAX_ARCHITECTURE_WORDS
    table = text.partition("\n## Packages\n")[2].partition("\n\n**")[0]
    assert re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE) == list(DOORS)


def test_the_index_has_all_modules_as_they_are() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(), "run: make index"
    # A module without a summary would be an empty line of the index.
    assert re.findall(r"^- `[^`]+`: *$", index(), re.MULTILINE) == []


# The section "Try it"

TRY_IT = TEXTS["README.md"].partition("## Try it\n")[2].partition("\n## ")[0]
FIRST_MQTT_PORT = 1883


class Walk:
    """The section "Try it" with the ports of a ring that runs."""

    def __init__(self, first_mqtt_port: int, first_overlay_port: int) -> None:
        self._first_mqtt_port = first_mqtt_port
        self._peer = ["--peer", f"127.0.0.1:{first_overlay_port}"]
        self._typed = [looked_at(found) for found in commands_of("Try it", TRY_IT)]

    def with_ports(self, text: str) -> str:
        """The text with the ports of this ring instead of the README's."""

        def other(found: re.Match[str]) -> str:
            index = int(found[0]) - FIRST_MQTT_PORT
            assert index < PEERS_OF_THE_WALK
            return str(self._first_mqtt_port + index)

        return re.sub(r"\b18[89]\d\b", other, text)

    def client(self, name: str) -> list[str]:
        """The words of `ringmq pub` or `ringmq sub`, for a process."""
        (typed,) = [found for found in self._typed if found.words[:2] == ["ringmq", name]]
        return [sys.executable, "-P", "-m", "ringmq", *map(self.with_ports, typed.words[1:])]

    def statuses(self) -> Iterator[list[str]]:
        for typed in self._typed:
            if typed.words[:2] == ["ringmq", "status"]:
                yield [*typed.words[1:], *self._peer]


def run_python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_states_the_size_of_the_ring() -> None:
    peers = int(re.search(r"^PEERS \?= (\d+)$", MAKEFILE, re.MULTILINE)[1])  # type: ignore[index]
    assert "\t$(BIN)/ringmq ring --peers $(PEERS)\n" in MAKEFILE
    last = FIRST_MQTT_PORT + peers - 1
    assert f"`ready: {peers} peers, mqtt 127.0.0.1:{FIRST_MQTT_PORT}-{last}`" in TRY_IT


def test_the_section_try_it_works_as_written(
    start: Callable[..., Any], ringmq: Callable[..., Any], eventually: Callable[..., Any], tmp_path: Path
) -> None:
    (free,) = re.findall(r"`\.venv/bin/ringmq (ring --mqtt-port 0 --overlay-port 0)`", TRY_IT)
    ring = start(*free.split(), "--peers", str(PEERS_OF_THE_WALK))
    ready = re.fullmatch(r"ready: (\d+) peers, mqtt 127\.0\.0\.1:(\d+)-(\d+)", ring.says("ready: ", 60))
    assert ready is not None
    overlay = re.fullmatch(r"overlay: 127\.0\.0\.1:(\d+)-\d+", ring.says("overlay: "))
    assert overlay is not None
    walk = Walk(int(ready[2]), int(overlay[1]))

    (block,) = [block for block in blocks_of(TRY_IT) if block.language == "python"]
    assert len(list(filter(None, block.lines))) <= 5
    program = walk.with_ports("\n".join(block.lines))
    assert run_python(program) == "hall/7/window shut\n"

    for words in walk.statuses():
        status = ringmq(*words)
        assert (status.popen.returncode, status.err) == (0, "")
        assert "coordinator" in status.out if "--topic" in words else "state       active" in status.out

    talk(walk, tmp_path, eventually)
    assert ring.end(signal.SIGINT) == 0


def talk(walk: Walk, folder: Path, eventually: Callable[..., Any]) -> None:
    """Two terminals: the second command is repeated until the first has subscribed."""
    said = folder / "said"

    def published() -> bool:
        subprocess.run(walk.client("pub"), timeout=20, check=True)
        return "hall/7/door open\n" in said.read_text()

    with said.open("wb") as output:
        listening = subprocess.Popen(walk.client("sub"), stdout=output)
    try:
        eventually(published, 20, "a message published at a peer reaches another peer")
    finally:
        listening.kill()
        listening.wait(10)


# The reading itself


def test_commands_are_read_from_blocks_and_sentences() -> None:
    text = """\
Say `ringmq status` or `ringmq/log`, and `make ring`.

    ringmq peer --mqtt 127.0.0.1:1883 \\
        --data DIR
    .venv/bin/ringmq passwd FILE alice --batch < secret.txt

- a list
    with a line that is no code

```
ringmq collect stream --data DIR --once     what it does
ringmq: a line of output
ready: 3 peers
```
```sh
$ sudo -u ringmq ringmq config check FILE && echo done
mosquitto_sub -t 'hall/#' | grep door  # only doors
```
```toml
make = "no command"
```
"""
    assert [(found.where, found.text) for found in commands_of("d", text)] == [
        ("d:3", "ringmq peer --mqtt 127.0.0.1:1883 --data DIR"),
        ("d:5", ".venv/bin/ringmq passwd FILE alice --batch"),
        ("d:11", "ringmq collect stream --data DIR --once"),
        ("d:16", "sudo -u ringmq ringmq config check FILE"),
        ("d:16", "echo done"),
        ("d:17", "mosquitto_sub -t 'hall/#'"),
        ("d:17", "grep door"),
        ("d:1", "ringmq status"),
        ("d:1", "make ring"),
    ]
    inner = looked_at(Command("", shlex.split("sudo -u jo /usr/bin/ringmq simulate join --nodes N")))
    assert inner.text == "ringmq simulate join --nodes 1"
