"""The settings of a peer: what is read from where, and that each wrong one gives one clear line."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from peer.config import SETTINGS, PeerConfig, load, parse_delay
from peer.errors import ConfigError

ALL = """
overlay = "0.0.0.0:5000"
advertise = "edge-1"
join = ["edge-2:4883", "[::1]:4883", "edge-2:4883"]
data = "var/ringmq"
ring = "hall 7"
timing = "wan"
delay = "1-10ms"
delay_seed = 7
discovery = false
mqtt = "127.0.0.1:1883"
passwords = "etc/passwords"
acl = "etc/acl"
anonymous = false
log_level = "debug"
log_json = true
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "peer.toml"
    file.write_text(text)
    return file


def test_nothing_said_gives_the_defaults() -> None:
    assert load(None, {}) == PeerConfig()


def test_every_setting_can_stand_in_the_file(tmp_path: Path) -> None:
    config = load(write(tmp_path, ALL), {})
    assert config == PeerConfig(
        overlay=("0.0.0.0", 5000),
        advertise="edge-1",
        join=(("edge-2", 4883), ("::1", 4883)),
        data=Path("var/ringmq"),
        ring="hall 7",
        timing="wan",
        delay=(0.001, 0.010),
        delay_seed=7,
        discovery=False,
        mqtt=("127.0.0.1", 1883),
        passwords=Path("etc/passwords"),
        acl=Path("etc/acl"),
        anonymous=False,
        log_level="debug",
        log_json=True,
    )
    default = PeerConfig()
    same = [
        field.name
        for field in dataclasses.fields(config)
        if getattr(config, field.name) == getattr(default, field.name)
    ]
    assert same == [], "each one must differ, or the test shows nothing"


def test_the_command_line_wins(tmp_path: Path) -> None:
    config = load(write(tmp_path, ALL), {"ring": "hall 8", "join": ("edge-3:1",), "discovery": True})
    assert (config.ring, config.join, config.discovery) == ("hall 8", (("edge-3", 1),), True)
    assert config.timing == "wan"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overlay", "localhost"),
        ("overlay", 4883),
        ("advertise", "0.0.0.0"),
        ("advertise", "edge 1"),
        ("advertise", "edge-1:4883"),
        ("join", "edge-2:4883"),
        ("join", ["edge-2:0"]),
        ("join", [f"edge:{port}" for port in range(1, 66)]),
        ("data", ""),
        ("data", 1),
        ("ring", ""),
        ("ring", "tab\t"),
        ("ring", "x" * 1000),
        ("timing", "fast"),
        ("timing", 1),
        ("delay", "10-1ms"),
        ("delay", "1-10"),
        ("delay", "20s"),
        ("delay", 5),
        ("delay_seed", -1),
        ("delay_seed", True),
        ("delay_seed", "7"),
        ("discovery", "yes"),
        ("log_level", "loud"),
        ("log_json", 1),
    ],
)
def test_a_wrong_value_is_named_with_what_would_be_right(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {name: value})
    line = str(caught.value)
    assert line.startswith(f"--{name.replace('_', '-')}: ")
    assert line.endswith(f"is not {SETTINGS[name].wanted}")
    assert "\n" not in line


def test_the_wrong_one_of_a_list_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--join: 'edge-3' is not a list of"):
        load(None, {"join": ("edge-2:4883", "edge-3")})


def test_a_wrong_value_in_the_file_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'timing = "fast"')
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value) == f"{file}: timing: 'fast' is not one of local, lan, wan"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("delay-seed", "did you mean delay_seed?"),
        ("log_lvel", "did you mean log_level?"),
        ("websocket", "there are overlay, "),
    ],
)
def test_an_unknown_key_is_an_error(tmp_path: Path, key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, f"{key} = 1"), {})
    assert f"unknown setting {key}: {hint}" in str(caught.value)


@pytest.mark.parametrize("text", ["overlay = ", 'a = "b', "[peer"])
def test_what_is_not_toml_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="is not TOML"):
        load(write(tmp_path, text), {})


def test_a_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(binary, {})
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="directory"):
        load(tmp_path, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_listening_everywhere_wants_a_name(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertise: missing"):
        load(None, {"overlay": f"{host}:4883"})
    assert load(None, {"overlay": f"{host}:4883", "advertise": "edge-1"}).advertise == "edge-1"


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1-10ms", (0.001, 0.010)),
        ("5ms", (0.005, 0.005)),
        ("0ms", (0.0, 0.0)),
        ("0.5-1.5s", (0.5, 1.5)),
        ("50-100us", (0.00005, 0.0001)),
    ],
)
def test_delays(text: str, span: tuple[float, float]) -> None:
    assert parse_delay(text) == pytest.approx(span)
