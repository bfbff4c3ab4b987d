"""The commands with a server of others: Mosquitto, in each version of MQTT, with every QoS."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import mosquitto_command, why_not
from tests.conftest import wait_until
from tests.mqtt_front.real_clients.missing import cannot
from tests.peer.cli.clients.commands import WITHIN_S, Commands

CONFIG = """
listener {port} 127.0.0.1
allow_anonymous true
max_packet_size 100000
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """That of a Mosquitto."""
    lacking = why_not("mosquitto")
    if lacking is not None:
        cannot(f"{lacking}; on Debian: apt-get install mosquitto")
    folder: Path = tmp_path_factory.mktemp("mosquitto")
    (chosen,) = choose_ports(0, 1)
    command = mosquitto_command(folder / "mosquitto.conf", CONFIG.format(port=chosen))
    with (folder / "log").open("wb") as log:
        popen = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    def listens() -> bool:
        assert popen.poll() is None, (folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", chosen)) == 0

    try:
        wait_until(listens, WITHIN_S, "Mosquitto listens")
        yield str(chosen)
    finally:
        popen.kill()
        popen.wait(WITHIN_S)


@pytest.mark.parametrize("version", ["5", "3.1.1", "3.1"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_messages_pass(commands: Commands, port: str, version: str, qos: str) -> None:
    reach = ("-p", port, "-V", version, "-q", qos, "-t", "a/b")
    listening = commands.subscribed(*reach, "-C", "3", "-F", "%q %p")
    assert commands.run("pub", *reach, "-l", typed=b"1\n2\n3\n").status == 0
    assert listening.ends().out.decode() == "".join(f"{qos} {number}\n" for number in (1, 2, 3))


def test_a_retained_message_and_a_kept_session(commands: Commands, port: str) -> None:
    reach = ("-p", port, "-q", "1")
    assert commands.run("pub", *reach, "-t", "r/a", "-m", "kept", "-r").status == 0
    assert commands.run("sub", *reach, "-t", "r/#", "--retained-only", "-v", "-C", "1").out == b"r/a kept\n"
    session = (*reach, "-t", "s", "-c", "-i", "keeper", "-x", "60")
    assert commands.run("sub", *session, "-E").status == 0
    assert commands.run("pub", *reach, "-t", "s", "-m", "later").status == 0
    assert commands.run("sub", *session, "-C", "1").out == b"later\n"


@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_a_message_that_it_does_not_take_is_refused(
    commands: Commands, port: str, version: str, tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(200_000))
    done = commands.run("pub", "-p", port, "-V", version, "-t", "a", "-f", str(file))
    assert done.status == 1
    assert done.err.count("\n") == 1
