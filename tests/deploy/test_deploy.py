"""The commands in docs/deploy.md are valid, and the log lines and states in it exist in the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from tests.deploy.command_lines import parameters, peer_config
from tests.deploy.test_image import entry_point

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
TROUBLES = TEXT[TEXT.index("## Troubleshooting") :]
TYPED = re.compile(r"--|ringmq |ringmq:|journalctl |docker |ss |ulimit |[A-Z]|\d|timing = |ringmq\.|[a-z]+\.json")
"""Beginnings of code spans that are not output of a peer."""


def commands(program: str) -> list[list[str]]:
    """The indented lines that begin with `program`, with continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", TEXT).splitlines()
    return [shlex.split(line) for line in lines if line.startswith(f"    {program} ")]


def said() -> list[str]:
    """Every text in the table of symptoms that a peer or its status shows."""
    spans = [span for span in re.findall(r"`([^`]+)`", TROUBLES) if not TYPED.match(span)]
    return [piece.strip() for span in spans for piece in span.split("…") if piece.strip(" :")]


def test_commands_of_the_document_are_valid() -> None:
    lines = commands("ringmq")
    assert {line[1] for line in lines} == {"invite", "peer", "peers", "status"}
    for line in lines:
        parameters(line)


def test_peers_of_the_examples_join_the_first() -> None:
    runs = [
        line[line.index("ringmq:/data") + 2 :] for line in commands("docker") if line[1] == "run" and "-d" in line[2]
    ]
    by_docker = [peer_config([*entry_point(), *options]) for options in runs]
    by_hand = [peer_config(line) for line in commands("ringmq") if line[1] == "peer"]
    for configs in (by_hand, by_docker):
        assert len(configs) == 3
        founder, *others = configs
        assert founder.join == ()
        assert founder.proves
        at = (founder.advertise or founder.overlay[0], founder.overlay[1])
        assert [config.seeds for config in others] == [(at,)] * 2
        tokens = {config.token for config in others}
        assert None not in tokens
        assert len(tokens) == 2


def test_compose_file_of_one_machine_is_valid() -> None:
    [block] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    config = peer_config([*entry_point(), *yaml.safe_load(block)["services"]["ringmq"]["command"]])
    assert config.advertise is not None


def test_password_command_writes_where_the_container_reads() -> None:
    [line] = [line for line in commands("docker") if "passwd" in line]
    asked = parameters(["ringmq", *line[line.index("passwd") :]])
    assert asked["file"] == Path("/data/passwords")


def test_symptoms_in_the_document_are_texts_of_the_code() -> None:
    folders = ("logger", "overlay", "peer", "mqtt_front")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    # The lock of a folder names its user in the error: for a data folder of a peer that is "peer".
    code = "\n".join(file.read_text(encoding="utf-8") for file in files).replace("{user}", "peer")
    assert len(said()) > 15
    assert [piece for piece in said() if piece not in code] == []


def test_linked_files_exist() -> None:
    named = re.findall(r"\]\(([^)]+)\)", TEXT)
    assert [name for name in named if not (ROOT / "docs" / name).exists()] == []
