"""`ringmq pub`: publishes messages, and ends when the server has them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from ringmq.mqtt_front.client.connection import FAILURES
from ringmq.mqtt_front.client.events import Acknowledged, ClientEvent, Opened, Ponged
from ringmq.mqtt_front.client.session_state import Publication
from ringmq.mqtt_front.client.shell.client import Client
from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Properties, Version
from ringmq.mqtt_front.codec.reasons import Reason, words_of
from ringmq.mqtt_front.errors import CallError, EncodeError, NoConnectionError, Trouble
from ringmq.peer.cli.clients.attending import FAILED, OK, TIMED_OUT, Teller, attend, run_to_end
from ringmq.peer.cli.clients.connection_options import (
    FILE,
    QOS,
    SOME_SECONDS,
    VERSIONS,
    Line,
    Seconds,
    checked_topic,
    connecting,
    connection_options,
)
from ringmq.peer.cli.clients.standard_input import MAX_PAYLOAD_BYTES, StandardInput
from ringmq.peer.errors import ConfigError, PeerError

SOURCES: Final = {"message": "-m", "file": "-f", "whole": "-s", "lines": "-l", "null": "-n"}
"""Options that name the payload: exactly one is needed."""
OF_V5: Final = {
    "user_properties": "--user-property",
    "content_type": "--content-type",
    "response_topic": "--response-topic",
    "correlation_data": "--correlation-data",
    "message_expiry": "--message-expiry",
}
MAX_REFUSALS: Final = 10
"""Different reasons that are told; each size of a message that is too large is one."""
MAX_EXPIRY_S: Final = 0xFFFF_FFFF
EXAMPLES: Final = """\
\b
Examples:
  ringmq pub -t hall/7/door -m open
  ringmq pub -h 192.168.1.10 -h 192.168.1.11 -t hall/7/door -m open -q 1 -r
  vmstat 1 | ringmq pub -t machine/7/load -l
  ringmq pub -h wss://broker.example/mqtt -u alice --password-file FILE -t a -f photo.jpg

Exit status: 0 the server has all messages, 1 refused or lost, 2 wrong usage,
27 not within the time of -W, 130 and 143 ended by a signal before.
"""


@dataclass(frozen=True, slots=True)
class Order:
    """What is published."""

    topic: str
    qos: int
    retain: bool
    properties: Properties
    repeat: int = 1
    repeat_delay_s: float = 0.0


@click.command(epilog=EXAMPLES)
@click.option("-t", "--topic", metavar="TOPIC", help="Topic of the messages.")
@click.option("-m", "--message", metavar="TEXT", help="Publish TEXT.")
@click.option("-f", "--file", type=FILE, metavar="FILE", help="Publish the contents of FILE.")
@click.option("-s", "--stdin-file", "whole", is_flag=True, help="Publish all of standard input as one message.")
@click.option("-l", "--stdin-line", "lines", is_flag=True, help="Publish each line of standard input, but empty ones.")
@click.option(
    "-n", "--null-message", "null", is_flag=True, help="Publish an empty message: with -r it clears the topic."
)
@click.option("-q", "--qos", type=QOS, default=0, show_default=True, metavar="0|1|2", help="QoS of the messages.")
@click.option("-r", "--retain", is_flag=True, help="Retain the message: later subscribers get it, too.")
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="N", help="Publish the message N times.")
@click.option(
    "--repeat-delay", type=Seconds(0), default=0.0, metavar="SECONDS",
    help="Wait so long after a message is acknowledged, before the next.",
)  # fmt: skip
@click.option(
    "--user-property", "user_properties", nargs=2, multiple=True, metavar="NAME VALUE",
    help="In MQTT 5, a property of the messages; may be repeated.",
)  # fmt: skip
@click.option("--content-type", metavar="TEXT", help="In MQTT 5, the type of the payload, such as application/json.")
@click.option("--response-topic", metavar="TOPIC", help="In MQTT 5, the topic for a reply.")
@click.option("--correlation-data", metavar="TEXT", help="In MQTT 5, what the reply shall carry.")
@click.option(
    "--message-expiry", type=click.IntRange(0, MAX_EXPIRY_S), metavar="SECONDS",
    help="In MQTT 5, how long the message may wait for its receivers.",
)  # fmt: skip
@click.option("-W", "--timeout", type=SOME_SECONDS, metavar="SECONDS", help="Give up after this time.")
@click.option(
    "--reconnect/--no-reconnect", default=None,
    help="Connect again when the connection is lost, and publish what was not acknowledged.  [default: with -l]",
)  # fmt: skip
@connection_options
def pub(**line: Any) -> int:
    """Publish messages to a topic, and end when the server has them.

    Takes the options of mosquitto_pub. Any peer of a ring is one broker with the others.
    """
    teller = Teller(quiet=line["quiet"], debug=line["debug"])
    source = _source(line)
    reconnects = line["lines"] if line["reconnect"] is None else line["reconnect"]
    settings, topics = connecting(line, "pub", reconnects=reconnects)
    order = _order(line, topics)
    payload = _payload(line)

    async def publish() -> int:
        task = PublishTask(order, teller)
        client = Client(settings, task.take, teller.say)
        payloads = task.repeated(client, payload) if payload is not None else StandardInput().lines()
        try:
            return await attend(client, task.work(client, payloads, line["timeout"]))
        except NoConnectionError as error:
            if error.trouble is Trouble.LOST and settings.connect.version is not Version.V5:
                raise NoConnectionError(error.trouble, f"{error}: with -V 5 a server says why") from None
            raise

    teller.detail(f"publishing to {order.topic} ({SOURCES[source]}), QoS {order.qos}")
    return run_to_end(publish, teller, quiet=line["quiet"])


def _source(line: Line) -> str:
    given = [name for name in SOURCES if line[name] is not None and line[name] is not False]
    if len(given) != 1:
        got = " and ".join(SOURCES[name] for name in given) or "none"
        raise ConfigError(f"pub needs exactly one of {', '.join(SOURCES.values())}, got {got}")
    if given[0] == "lines" and line["repeat"] != 1:
        raise ConfigError("--repeat is for one message, and -l reads many")
    return given[0]


def _order(line: Line, topics: tuple[str, ...]) -> Order:
    named = [topic for topic in (line["topic"], *dict.fromkeys(topics)) if topic is not None]
    if len(named) != 1:
        raise ConfigError(f"pub needs one topic: -t TOPIC, got {'none' if not named else ' and '.join(named)}")
    given = [option for name, option in OF_V5.items() if line[name] not in (None, ())]
    if given and VERSIONS[line["version"]] is not Version.V5:
        raise ConfigError(f"{given[0]} needs MQTT 5 (-V 5)")
    correlation = line["correlation_data"]
    properties = Properties(
        user_properties=tuple(line["user_properties"]),
        content_type=line["content_type"],
        response_topic=line["response_topic"] and checked_topic(line["response_topic"], "--response-topic"),
        correlation_data=None if correlation is None else os.fsencode(correlation),
        message_expiry_s=line["message_expiry"],
    )
    return Order(
        checked_topic(named[0], "-t"),
        line["qos"],
        line["retain"],
        properties if given else NO_PROPERTIES,
        line["repeat"],
        line["repeat_delay"],
    )


def _payload(line: Line) -> bytes | None:
    """The payload of the one message; None if lines are read. Raises PeerError."""
    if line["message"] is not None:
        return os.fsencode(line["message"])
    if line["null"]:
        return b""
    if line["file"] is not None:
        return _read(line["file"])
    return StandardInput().whole() if line["whole"] else None


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            payload = source.read(MAX_PAYLOAD_BYTES + 1)
    except OSError as error:
        raise PeerError(f"cannot read {file}: {error.strerror}") from None
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise PeerError(f"{file}: a message has at most {MAX_PAYLOAD_BYTES:,} bytes, and this file has more")
    return payload


class PublishTask:
    """Give its `take` to a client as the receiver of events, and attend to its `work`."""

    def __init__(self, order: Order, teller: Teller) -> None:
        self._order = order
        self._teller = teller
        self._again: list[Publication] = []
        """Publications that were under way to a session that is no more."""
        self._opened = asyncio.Event()
        self._ponged = asyncio.Event()
        self._published = 0
        self._refused = 0
        self._refusals: set[str] = set()

    def take(self, event: ClientEvent) -> None:
        if isinstance(event, Opened):
            # The server has acknowledged what it has, even if a message with QoS 2 is not complete.
            self._again += [publication for publication in event.discarded if publication.key is None]
            self._opened.set()
            self._ponged.set()  # another ping is needed
        elif isinstance(event, Ponged):
            self._ponged.set()
        elif isinstance(event, Acknowledged):
            event.publication.key = event.reason
            self._acknowledged(event.reason)

    def _acknowledged(self, reason: Reason) -> None:
        if reason < FAILURES:
            self._teller.detail(f"acknowledged: {words_of(reason)}")
            return
        self._refuse(f"the server refused a message: {words_of(reason)}")

    def _refuse(self, text: str) -> None:
        self._refused += 1
        if text not in self._refusals and len(self._refusals) < MAX_REFUSALS:
            self._refusals.add(text)
            self._teller.say(f"{self._order.topic}: {text}")

    async def repeated(self, client: Client, payload: bytes) -> AsyncIterator[bytes]:
        """The payload as often as it is wanted."""
        for number in range(self._order.repeat):
            if number and self._order.repeat_delay_s:
                await client.settled()
                await asyncio.sleep(self._order.repeat_delay_s)
            yield payload

    async def work(self, client: Client, payloads: AsyncIterator[bytes], timeout_s: float | None) -> int:
        """Publish everything; returns the exit status when the server has it. Raises PeerError for the input."""
        try:
            async with asyncio.timeout(timeout_s):
                async for payload in payloads:
                    await self._publish(client, payload)
                await self._finish(client)
        except TimeoutError:
            waiting = f"{client.state.pending} messages are not acknowledged" if client.state.pending else "not done"
            self._teller.say(f"timed out after {timeout_s:g} s: {waiting}")
            return TIMED_OUT
        if self._refused and self._published > 1:
            self._teller.say(f"{self._refused} of {self._published} messages were refused")
        return FAILED if self._refused else OK

    async def _publish(self, client: Client, payload: bytes) -> None:
        await client.ready()
        order = self._order
        self._published += 1
        try:
            client.publish(order.topic, payload, order.qos, order.retain, order.properties)
        except (CallError, EncodeError) as error:  # the next line may be shorter
            self._refuse(str(error))

    async def _finish(self, client: Client) -> None:
        """Return when the server has everything. It has read messages with QoS 0 when it answers a later ping."""
        while True:
            await client.settled()
            if self._again:
                await self._publish_again(client)
                continue
            before = client.connections
            self._ponged.clear()
            client.ping()
            await self._ponged.wait()
            if client.connections == before and not self._again:
                return

    async def _publish_again(self, client: Client) -> None:
        again, self._again = self._again, []
        self._teller.say(f"publishing {len(again)} messages again: some may arrive twice")
        self._published -= len(again)
        for publication in again:
            await self._publish(client, bytes(publication.payload))
