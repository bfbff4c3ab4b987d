"""A bridge of Mosquitto, with its default settings, joins its clients with those of a ring of real peers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import mosquitto_command, why_not
from tests.conftest import wait_until
from tests.mqtt_front.real_clients.missing import cannot
from tests.peer.rings import Client, Ring

WITHIN_S = 60.0
"""A bridge that was refused tries again after some 20 s at worst."""
BRIDGE = """
listener {port} 127.0.0.1
allow_anonymous true
log_type all
log_dest stderr
connection edge
address {address}
restart_timeout 1
{settings}
"""
# A bridge of 3.1.1 is told its own messages again, so each direction has topics of its own.
TOPICS_3 = "topic # out 1 up/ up/\ntopic # in 1 down/ down/"
TOPICS_5 = "bridge_protocol_version mqttv50\ntopic # both 1"

Bridge = Callable[[str, str], "Mosquitto"]


class Mosquitto:
    """A Mosquitto with a bridge to a peer."""

    def __init__(self, folder: Path, address: str, settings: str) -> None:
        lacking = why_not("mosquitto")
        if lacking is not None:
            cannot(f"{lacking}; on Debian: apt-get install mosquitto")
        port = choose_ports(0, 1)[0]
        self.address = f"127.0.0.1:{port}"
        config = BRIDGE.format(port=port, address=address, settings=settings)
        command = mosquitto_command(folder / "mosquitto.conf", config)
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.popen = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def says(self, text: str) -> None:
        wait_until(lambda: text in self.log, WITHIN_S, f"{text!r} in the log of Mosquitto")

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait(WITHIN_S)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    started: list[Mosquitto] = []

    def start_one(address: str, settings: str) -> Mosquitto:
        folder = tmp_path / f"mosquitto-{len(started)}"
        folder.mkdir()
        started.append(Mosquitto(folder, address, settings))
        return started[-1]

    yield start_one
    for one in started:
        one.end()


@pytest.mark.parametrize("settings", [pytest.param(TOPICS_3, id="3.1.1"), pytest.param(TOPICS_5, id="5.0")])
def test_a_bridge_with_its_default_settings(
    start: Callable[..., object],
    ringmq: Callable[..., object],
    eventually: Callable[..., object],
    bridge: Bridge,
    settings: str,
) -> None:
    """It is let in although its protocol level has a bit of its own at first, and although it tells its state below
    `$SYS`, as a retained message and as a will.
    """
    ring = Ring(start, ringmq, eventually, 2)
    watcher = Client(ring.mqtt[0], "watcher", "$SYS/broker/connection/#", "watched", qos=0)
    mosquitto = bridge(ring.mqtt[0], settings)
    mosquitto.says("Received SUBACK from local.")
    mosquitto.says("Received PUBACK from local.")  # Of its state.
    inside = Client(mosquitto.address, "inside", "down/#")
    outside = Client(ring.mqtt[1], "outside", "up/#")
    inside.publish("up/door", b"open", 1)
    outside.publish("down/lamp", b"on", 1)
    wait_until(lambda: outside.read() == [("up/door", b"open")], WITHIN_S, mosquitto.log)
    wait_until(lambda: inside.read() == [("down/lamp", b"on")], WITHIN_S, mosquitto.log)
    connections = mosquitto.log.count("sending CONNECT")
    mosquitto.end()
    # Its will would come before what is published after its end was noticed.
    wait_until(lambda: clients_of(ring, 0) == 1, WITHIN_S, "the end of the bridge")
    Client(ring.mqtt[0], "publisher").publish("watched", b"the end")
    wait_until(watcher.read, WITHIN_S)
    assert watcher.came == [("watched", b"the end")]
    # One that is refused at first tries again at once; one that never gets in tries again and again.
    assert connections <= 2


def clients_of(ring: Ring, place: int) -> int:
    """The clients that are connected to a peer."""
    return int(ring.statuses()[place]["front"]["clients"])
