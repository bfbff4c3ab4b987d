"""The image, as far as it can be held without a container engine: what goes into it is there and can be installed, and
its commands are such as `ringmq` takes.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.model import PeerConfig
from tests.deploy.command_lines import parameters, peer_config
from tests.mqtt_front.real_clients.missing import cannot

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))
UNREACHED = ("Could not find a version", "No matching distribution", "Temporary failure in name resolution")
"""What pip says where it reaches no index."""


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile, without comments."""
    lines = [line for line in DOCKERFILE.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def sources() -> list[str]:
    """What is copied from the project."""
    lines = [shlex.split(rest) for rest in of("COPY")]
    return [name for line in lines if not line[0].startswith("--from") for name in line[:-1]]


def entry_point() -> list[str]:
    [line] = of("ENTRYPOINT")
    words: list[str] = json.loads(line)
    return words


def config_of(*options: str) -> PeerConfig:
    return peer_config([*entry_point(), *options])


def test_copied_sources_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert set(sources()) == kept
    assert [name for name in sources() if not (ROOT / name).exists()] == []


def test_all_that_is_installed_is_copied() -> None:
    rooms = {link.name for link in (ROOT / "src" / "ringmq").iterdir() if link.is_symlink()}
    assert {"src", "overlay"} <= {"src", *rooms} <= set(sources())


def test_container_requires_advertise() -> None:
    with pytest.raises(ConfigError, match="advertise: missing"):
        config_of()
    config = config_of("--advertise", "192.168.1.10", "--mqtt", "0.0.0.0:1883")
    assert config.data == Path("/data")
    assert [str(config.data)] == of("VOLUME")
    ports = {f"{config.overlay[1]}/tcp", f"{config.overlay[1]}/udp", "1883/tcp"}
    assert set(of("EXPOSE")[0].split()) == ports


def test_the_health_check_asks_the_peer_of_the_container() -> None:
    [line] = of("HEALTHCHECK")
    asked = json.loads(line.partition("CMD ")[2])
    assert Path(str(parameters(asked)["data"])) == config_of("--advertise", "one").data


def test_peers_of_the_compose_file_join_the_first() -> None:
    services = COMPOSE["services"]
    configs = {name: config_of(*service["command"]) for name, service in services.items()}
    assert {name: config.advertise for name, config in configs.items()} == {name: name for name in configs}
    founder, *others = configs.values()
    assert founder.join == ()
    assert {config.join for config in others} == {((founder.advertise, founder.overlay[1]),)}
    outside = [port for service in services.values() for port in service["ports"]]
    assert len(set(outside)) == len(services)
    for port in outside:
        assert port.endswith(f":{founder.listeners['mqtt'][1]}")
    used = [volume.partition(":") for service in services.values() for volume in service["volumes"]]
    assert {name for name, _, _ in used} == set(COMPOSE["volumes"])
    assert {where for _, _, where in used} == set(of("VOLUME"))
    assert (ROOT / "deploy" / services["one"]["build"]["context"] / services["one"]["build"]["dockerfile"]).exists()


@pytest.mark.timeout(300)
def test_sources_can_be_installed_as_in_the_image(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    """In a new environment, from nothing but what is copied. It fetches from the package index."""
    source, home = tmp_path / "source", tmp_path / "ringmq"
    source.mkdir()
    for name in sources():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True)
        else:
            shutil.copy(ROOT / name, source / name)
    command = of("RUN")[0].replace("/ringmq", str(home)).replace("python ", f"{sys.executable} ", 1)
    done = subprocess.run(command, shell=True, cwd=source, capture_output=True, text=True, timeout=280, check=False)
    if any(text in done.stderr for text in UNREACHED):
        cannot("pip reaches no package index")
    assert done.returncode == 0, done.stderr

    ringmq = home / "bin" / entry_point()[0]
    options = ["--overlay", "127.0.0.1:0", "--data", str(tmp_path / "data"), "--mqtt", "127.0.0.1:0"]
    said = tmp_path / "said"
    with said.open("wb") as out:
        peer = subprocess.Popen([ringmq, "peer", *options], cwd=tmp_path, stdout=out, stderr=out)
    try:
        eventually(lambda: b"\nactive: " in b"\n" + said.read_bytes(), 30)
        address = re.findall(r"^active: .*overlay (\S+)$", said.read_text(), re.MULTILINE)[0]
        asked = [ringmq, "status", "--peer", address]
        told = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
        assert "state       active" in told.stdout
    finally:
        peer.terminate()
        assert peer.wait(10) == 0
