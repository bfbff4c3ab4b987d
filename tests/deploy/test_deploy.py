"""What docs/deploy.md tells people to type is understood, and what it tells them to look for is said somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from tests.deploy.command_lines import parameters, peer_config
from tests.deploy.test_image import entry_point

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
TROUBLES = TEXT[TEXT.index("## When something is wrong") :]
TYPED = re.compile(r"--|ringmq |ringmq:|journalctl |docker |ss |ulimit |[A-Z]|\d|timing = |ringmq\.|[a-z]+\.json")
"""How spans of code begin that are not what a peer says."""


def commands(program: str) -> list[list[str]]:
    """The indented lines that begin with it; those that end with a backslash go on."""
    lines = re.sub(r"\\\n\s*", "", TEXT).splitlines()
    return [shlex.split(line) for line in lines if line.startswith(f"    {program} ")]


def said() -> list[str]:
    """Every piece of text that a peer or its status is said to show, in the table of troubles."""
    spans = [span for span in re.findall(r"`([^`]+)`", TROUBLES) if not TYPED.match(span)]
    return [piece.strip() for span in spans for piece in span.split("…") if piece.strip(" :")]


def test_commands_are_understood() -> None:
    lines = commands("ringmq")
    assert {line[1] for line in lines} == {"peer", "status"}
    for line in lines:
        parameters(line)


def test_peers_of_the_examples_find_each_other() -> None:
    runs = [
        line[line.index("ringmq:/data") + 2 :] for line in commands("docker") if line[1] == "run" and "-d" in line[2]
    ]
    by_docker = [peer_config([*entry_point(), *options]) for options in runs]
    by_hand = [peer_config(line) for line in commands("ringmq") if line[1] == "peer"]
    for configs in (by_hand, by_docker):
        assert len(configs) == 3
        founder, *others = [((one.advertise or one.overlay[0], one.overlay[1]), one.join) for one in configs]
        assert founder[1] == ()
        assert [join for _, join in others] == [(founder[0],)] * 2
        assert len({address for address, _ in (founder, *others)}) == 3


def test_the_file_of_one_machine_is_right() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    config = peer_config([*entry_point(), *yaml.safe_load(block)["services"]["ringmq"]["command"]])
    assert config.advertise is not None


def test_a_password_file_can_be_made_in_a_container() -> None:
    [line] = [line for line in commands("docker") if "passwd" in line]
    asked = parameters(["ringmq", *line[line.index("passwd") :]])
    assert asked["file"] == Path("/data/passwords")


def test_what_to_look_for_is_there() -> None:
    files = [file for room in ("overlay", "peer", "mqtt_front") for file in (ROOT / room).rglob("*.py")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert len(said()) > 15
    assert [piece for piece in said() if piece not in code] == []


def test_files_that_are_named_exist() -> None:
    named = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert [name for name in named if not (ROOT / "docs" / name).exists()] == []
