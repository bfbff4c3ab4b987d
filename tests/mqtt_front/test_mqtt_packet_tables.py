"""The tables of mqtt-packet, the codec of mqtt.js, against the codec here: npm brings them with mqtt.js."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Connect, Packet, Publish, Version
from ringmq.mqtt_front.errors import PacketError
from tests.mqtt_front.real_clients import mqttjs

LARGEST = 1 << 20
FEWEST = 130
"""Rows in version 9.0 of mqtt-packet."""
BRIDGE = "The bit of a bridge in the protocol level is refused, after which Mosquitto connects without it."
TOO_SHORT = "A CONNACK of 5.0 has a reason of 5.0 and a length of properties (§3.2.2); the old ones are taken there."
MAXIMUM_QOS = "Maximum QoS is 0 or 1 (5.0 §3.2.2.3.4)."
DIFFERENCES = {
    "connect MQTT bridge 131": BRIDGE,
    "connect MQTT bridge 132": BRIDGE,
    "Version 4 CONACK in Version 5 mode": TOO_SHORT,
    "Version 5 CONNACK test 1": TOO_SHORT,
    "Version 5 CONNACK test 2": TOO_SHORT,
    "connack MQTT 5 with properties": MAXIMUM_QOS,
    "connack MQTT 5 with properties and doubled user properties": MAXIMUM_QOS,
    "Cannot parse username": "In 3.1 a CONNECT may end before the fields that its flags announce.",
}
"""Rows for which the codec here decides differently, and why. docs/conformance/README.md refers to them."""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    folder = mqttjs.modules_with_mqttjs() / "mqtt-packet"
    script = Path(mqttjs.__file__).with_name("mqtt_packet_tables.cjs")
    told = subprocess.run(["node", str(script), str(folder)], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
    return [json.loads(line) for line in told.stdout.splitlines()]


def read(version: Version, data: bytes) -> list[Packet]:
    """Raises PacketError."""
    reader = PacketReader(LARGEST)
    reader.shortest_lengths = version is Version.V5
    return [decode(version, first, bytes(body)) for first, body in reader.feed(data)]


def fault(row: dict[str, Any]) -> str:
    """What differs from the row; empty if nothing does."""
    version, data = Version(row["version"]), bytes.fromhex(row["hex"])
    try:
        packets = read(version, data)
    except PacketError as error:
        return "" if row["kind"] == "error" else str(error)
    if row["kind"] == "error":
        return "no error"
    if len(packets) != 1:
        return f"{len(packets)} packets"
    if read(version, encode(version, packets[0])) != packets:
        return "another packet when it is written and read"
    return difference(row["packet"], packets[0])


def difference(wanted: dict[str, Any], packet: Packet) -> str:
    got: dict[str, Any] = {"cmd": type(packet).__name__.lower()}
    if packet_id := getattr(packet, "packet_id", 0):
        got["messageId"] = packet_id
    if isinstance(packet, Connect):
        got["clientId"] = packet.client_id
    if isinstance(packet, Publish):
        got |= {"topic": packet.topic, "payload": bytes(packet.payload).hex(), "qos": packet.qos}
        got |= {"retain": packet.retain, "dup": packet.dup}
    compared = {name: value for name, value in wanted.items() if name in got}
    return "" if compared == {name: got[name] for name in compared} else f"{got} for {compared}"


def test_the_codec_decides_as_the_tables_but_for_known_differences(rows: list[dict[str, Any]]) -> None:
    assert len(rows) >= FEWEST
    faults = {row["name"]: found for row in rows if (found := fault(row))}
    assert set(faults) == set(DIFFERENCES), faults


def test_each_kind_of_packet_is_in_the_tables(rows: list[dict[str, Any]]) -> None:
    kinds = {row["packet"]["cmd"] for row in rows if row["kind"] == "packet"}
    assert len(kinds) == 15
    assert sum(row["kind"] == "error" for row in rows) >= FEWEST // 3
