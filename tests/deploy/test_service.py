"""The unit for systemd fits the peer that it runs, and its own sample of settings."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.config import FrontConfig
from ringmq.peer.process import OWN_FILES, STOP_S
from ringmq.peer.telemetry.recording import STOP_S as RECORDING_STOP_S
from tests.deploy.command_lines import peer_config
from tests.mqtt_front.real_clients.missing import cannot

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = DEPLOY / "ringmq.service"
SETTINGS = DEPLOY / "ringmq.toml"


def section(name: str) -> dict[str, str]:
    parser = ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return dict(parser[name])


SERVICE = section("Service")


def command() -> list[str]:
    return shlex.split(SERVICE["ExecStart"])


def test_service_command_and_sample_are_valid() -> None:
    config = peer_config(command(), SETTINGS)
    assert config.data == Path("/var/lib") / SERVICE["StateDirectory"]
    assert config.proves
    assert config.join == ()
    assert list(config.listeners) == ["mqtt"]


def test_commented_lines_of_the_sample_are_valid(tmp_path: Path) -> None:
    text = SETTINGS.read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    assert lines != text.splitlines()
    full = tmp_path / "full.toml"
    full.write_text("\n".join(lines), encoding="utf-8")
    config = peer_config(command(), full)
    assert config.acl == Path("/etc/ringmq/acl")
    assert config.token is not None


def test_systemd_waits_longer_than_a_stop_takes() -> None:
    assert float(SERVICE["TimeoutStopSec"]) > 2 * (STOP_S + RECORDING_STOP_S)


def test_service_allows_all_open_files() -> None:
    assert int(SERVICE["LimitNOFILE"]) >= OWN_FILES + FrontConfig().max_connections


def test_wrong_settings_exit_with_the_status_without_restart(ringmq: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text('timing = "slow"\n', encoding="utf-8")
    line = [str(file) if word.endswith(".toml") else word for word in command()]
    line[line.index("--data") + 1] = str(tmp_path / "data")
    process = ringmq(*line[1:])
    assert process.popen.returncode == int(SERVICE["RestartPreventExitStatus"])
    assert process.err.startswith(f"ringmq: {file}: timing must be ")


def test_reload_sends_sighup(start: Callable[..., Any], eventually: Callable[..., Any]) -> None:
    name = shlex.split(SERVICE["ExecReload"])[1].removeprefix("-")
    process = start("peer", "--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--no-discovery")
    eventually(lambda: "serving MQTT" in process.err)
    process.send(signal.Signals[f"SIG{name}"])
    eventually(lambda: "passwords and rights reloaded" in process.err)
    assert process.end() == 0


def test_systemd_verifies_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    assert verify(tmp_path, UNIT.read_text(encoding="utf-8")) == ""
    assert "Unknown key" in verify(tmp_path, UNIT.read_text(encoding="utf-8") + "[Service]\nProtectAll=yes\n")


def verify(folder: Path, unit: str) -> str:
    """What systemd has to say, with programs in it that are here."""
    ringmq = Path(sys.executable).with_name("ringmq")
    if not ringmq.exists():
        cannot(f"{ringmq} is not installed")
    file = folder / UNIT.name
    file.write_text(unit.replace(command()[0], str(ringmq)), encoding="utf-8")
    asked = ["systemd-analyze", "verify", "--man=no", str(file)]
    return subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False).stderr
