"""For the tests of the ingest: records as peers send them, real publishers, and readers of landed files."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from paho.mqtt.client import Client, MQTTMessageInfo
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from ringmq.logger.records import LOG_TOPICS, Delivery, encode

HOST = "127.0.0.1"
PEER, OTHER = "a" * 32, "b" * 32
BOOT = 1_800_000_000_000
TOPIC = f"{LOG_TOPICS}/{PEER}"

Name = tuple[str, int, int]


def delivery(number: int, peer: str = PEER, boot: int = BOOT) -> Delivery:
    return Delivery(
        run="trial",
        peer=peer,
        boot=boot,
        number=number,
        at=1_800_000_000.5,
        origin=OTHER,
        origin_boot=BOOT,
        sequence=number,
        topic="hall/7/döor",
        dispatching="direct",
        sender=OTHER,
        sent_ns=1_800_000_000_400_000_000,
        received_ns=1_800_000_000_500_000_000,
        hops=1,
        bytes=32,
        clients=3,
        sends=0,
    )


def lines(numbers: Sequence[int], peer: str = PEER, boot: int = BOOT) -> bytes:
    """The payload of one message."""
    return b"\n".join([encode(delivery(number, peer, boot)) for number in numbers])


def landed(data: Path) -> list[dict[str, Any]]:
    """All lines in the landing folder, file by file; each must be complete."""
    return _lines(data / "landing")


def dead(data: Path) -> list[dict[str, Any]]:
    return _lines(data / "dead")


def _lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    for file in sorted(folder.iterdir()):
        text = file.read_bytes()
        assert text.endswith(b"\n"), file
        found += [json.loads(line) for line in text[:-1].split(b"\n")]
    return found


def names(records: Sequence[dict[str, Any]]) -> list[Name]:
    return [(record["peer"], record["boot"], record["number"]) for record in records]


class Publisher:
    """Publishes batches like a peer, as a client: with QoS 1, in order, and without waiting for acknowledgements."""

    def __init__(self, port: int, peer: str = PEER) -> None:
        self.topic = f"{LOG_TOPICS}/{peer}"
        self.peer = peer
        self.sent = 0
        self._acknowledged: list[int] = []
        self._in_flight: deque[tuple[MQTTMessageInfo, Sequence[int]]] = deque()
        self._client = Client(CallbackAPIVersion.VERSION2, f"publisher {peer}", protocol=MQTTProtocolVersion.MQTTv5)
        self._client.connect(HOST, port)
        self._client.loop_start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    @property
    def acknowledged(self) -> list[int]:
        """The numbers of records that the peer has acknowledged."""
        self._update()
        return self._acknowledged

    @property
    def in_flight(self) -> int:
        """Batches that the peer has not acknowledged."""
        self._update()
        return len(self._in_flight)

    def send(self, records: int) -> None:
        """Publish one batch of the next records."""
        numbers = range(self.sent, self.sent + records)
        self.sent += records
        self._publish(lines(numbers, self.peer), numbers)

    def send_raw(self, payload: bytes) -> None:
        self._publish(payload, [])

    def _update(self) -> None:
        while self._in_flight and self._in_flight[0][0].is_published():
            self._acknowledged += self._in_flight.popleft()[1]

    def _publish(self, payload: bytes, numbers: Sequence[int]) -> None:
        self._in_flight.append((self._client.publish(self.topic, payload, qos=1), numbers))
