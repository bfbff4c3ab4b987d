"""`ringmq sub`: prints the messages of topics until a signal comes, or as many as are wanted."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import click

from ringmq.mqtt_front.client.connection import FAILURES
from ringmq.mqtt_front.client.events import Arrived, ClientEvent, Opened, Subscribed
from ringmq.mqtt_front.client.shell.client import Client
from ringmq.mqtt_front.codec.packets import RetainHandling, Subscription, Version
from ringmq.mqtt_front.codec.reasons import words_of
from ringmq.mqtt_front.matching.topics import check_filter, matches
from ringmq.peer.cli.clients.attending import OK, TIMED_OUT, Interrupted, Teller, attend, run_to_end
from ringmq.peer.cli.clients.connection_options import (
    QOS,
    SOME_SECONDS,
    VERSIONS,
    Line,
    check_name,
    connecting,
    connection_options,
)
from ringmq.peer.cli.clients.message_format import (
    Form,
    FormatError,
    Printed,
    as_json,
    for_terminal,
    formatted,
    plain,
)
from ringmq.peer.cli.clients.standard_output import STDOUT, StandardOutput
from ringmq.peer.errors import ConfigError, PeerError

DRAIN_S: Final = 1.0
"""Time in which what has arrived is still written after a signal."""
HANDLING: Final = {
    "always": RetainHandling.ALWAYS,
    "new": RetainHandling.IF_NEW,
    "never": RetainHandling.NEVER,
}
EXAMPLES: Final = """\
\b
Examples:
  ringmq sub -t 'hall/#' -v
  ringmq sub -h 192.168.1.10 -h 192.168.1.11 -t 'hall/+/door' -t '$share/logs/#' -q 1
  ringmq sub -t hall/7/temperature -C 1 -W 10
  ringmq sub -t '#' --json | jq .topic
  ringmq sub -h broker.example --cafile ca.pem -u alice --password-file FILE -t '#' -F '%I %t %x'

Exit status: 0 as many messages as wanted, or ended by Ctrl-C, SIGTERM or the reader of its output,
1 refused or lost, 2 wrong usage, 27 ended by -W.
"""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is subscribed to, and which messages are printed."""

    subscriptions: tuple[Subscription, ...]
    unsubscribed: tuple[str, ...]
    form: Form
    count: int | None
    timeout_s: float | None
    left_out: tuple[str, ...]
    """Filters whose messages are not printed."""
    fresh_only: bool
    retained_only: bool
    ends_subscribed: bool


@click.command(epilog=EXAMPLES)
@click.option("-t", "--topic", "filters", multiple=True, metavar="FILTER", help="Topic filter; may be repeated.")
@click.option(
    "-q", "--qos", type=QOS, default=0, show_default=True, metavar="0|1|2", help="Highest QoS of the messages."
)
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before each payload.")
@click.option("-N", "no_newline", is_flag=True, help="Print no end of line after a message.")
@click.option("--json", "as_lines", is_flag=True, help="Print each message as a line of JSON.")
@click.option(
    "-F", "--format", "form", metavar="FORMAT", help="Print by a format of mosquitto_sub, such as '%I %t %p'."
)
@click.option("-C", "--count", type=click.IntRange(1), metavar="N", help="End after N messages.")
@click.option(
    "-W", "--timeout", type=SOME_SECONDS, metavar="SECONDS",
    help="End after this time, from the first connection on.",
)  # fmt: skip
@click.option("-R", "--no-retained", "fresh_only", is_flag=True, help="Print no retained messages.")
@click.option(
    "--retained-only", is_flag=True, help="Print retained messages only, and end at the first that is not retained."
)
@click.option(
    "-T", "--filter-out", "left_out", multiple=True, metavar="FILTER", help="Print no messages of these topics."
)
@click.option("-U", "--unsubscribe", "unsubscribed", multiple=True, metavar="FILTER", help="Unsubscribe, for -c.")
@click.option("-E", "ends_subscribed", is_flag=True, help="End when subscribed, for -c: the server keeps the messages.")
@click.option("--no-local", is_flag=True, help="In MQTT 5, no messages of this client itself.")
@click.option("--retain-as-published", is_flag=True, help="In MQTT 5, keep the retain flag of publishers.")
@click.option(
    "--retain-handling", type=click.Choice([*HANDLING]), metavar="always|new|never",
    help="In MQTT 5, whether subscribing brings retained messages.  [default: always]",
)  # fmt: skip
@click.option(
    "--reconnect/--no-reconnect", default=True, show_default=True, help="Connect again when the connection is lost."
)
@connection_options
def sub(**line: Any) -> int:
    """Print the messages of topics, of all peers of a ring.

    Takes the options of mosquitto_sub. Filters may have wildcards, + for a level and # for all below; quote them.
    """
    teller = Teller(quiet=line["quiet"], debug=line["debug"])
    settings, topics = connecting(line, "sub", reconnects=line["reconnect"])
    wish = _wish(line, topics)

    async def subscribe() -> int:
        task = SubscribeTask(wish, teller)
        client = Client(settings, task.take, teller.say)
        task.client = client
        try:
            return await attend(client, task.work())
        except Interrupted:
            return OK

    return run_to_end(subscribe, teller, quiet=line["quiet"])


def _wish(line: Line, topics: tuple[str, ...]) -> Wish:
    filters = tuple(dict.fromkeys((*line["filters"], *topics)))
    for option, names in (("-t", filters), ("-U", line["unsubscribed"]), ("-T", line["left_out"])):
        for name in names:
            check_name(name, option, "topic filter", check_filter)
    if not filters and not line["unsubscribed"]:
        raise ConfigError("sub needs a topic filter: -t FILTER, such as -t '#' for all topics")
    of_v5 = {"no_local": "--no-local", "retain_as_published": "--retain-as-published"}
    given = [option for name, option in (*of_v5.items(), ("retain_handling", "--retain-handling")) if line[name]]
    if given and VERSIONS[line["version"]] is not Version.V5:
        raise ConfigError(f"{given[0]} needs MQTT 5 (-V 5)")
    if line["fresh_only"] and line["retained_only"]:
        raise ConfigError("-R and --retained-only exclude each other")
    options = (line["qos"], line["no_local"], line["retain_as_published"])
    handling = HANDLING[line["retain_handling"] or "always"]
    return Wish(
        tuple(Subscription(name, *options, handling) for name in filters),
        line["unsubscribed"],
        _form(line),
        line["count"],
        line["timeout"],
        line["left_out"],
        line["fresh_only"],
        line["retained_only"],
        line["ends_subscribed"],
    )


def _form(line: Line) -> Form:
    end = b"" if line["no_newline"] else b"\n"
    given = [name for name, value in (("-v", line["verbose"]), ("--json", line["as_lines"])) if value]
    if line["form"] is not None:
        given = [name for name in given if name != "-v"]  # as in mosquitto_sub, -F overrides it
        given.append("-F")
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other")
    if line["form"] is not None:
        try:
            return formatted(line["form"], end)
        except FormatError as error:
            raise ConfigError(f"-F: {error}") from None
    form = as_json(end) if line["as_lines"] else plain(line["verbose"], end)
    return for_terminal(form) if os.isatty(STDOUT) else form


class SubscribeTask:
    """Set its `client`, give its `take` to that as the receiver of events, and attend to its `work`."""

    client: Client

    def __init__(self, wish: Wish, teller: Teller) -> None:
        self._wish = wish
        self._teller = teller
        self._output = StandardOutput(self._room)
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The exit status."""
        self._counted = 0
        self._granted = False

    async def work(self) -> int:
        """Print messages; returns the exit status when that is over. Raises PeerError."""
        closed = self._output.closed
        ends: list[asyncio.Future[Any]] = [self._done, closed]
        try:
            async with asyncio.timeout(None) as limit:
                await self._connected
                if self._wish.timeout_s is not None:
                    limit.reschedule(asyncio.get_running_loop().time() + self._wish.timeout_s)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                status = self._done.result() if self._done.done() else OK
                await self._output.drained()
        except TimeoutError:
            self._teller.say(f"timed out after {self._wish.timeout_s:g} s")
            status = TIMED_OUT
            await self._drain_soon()
        except asyncio.CancelledError:
            await self._drain_soon()
            raise
        fault = closed.result() if closed.done() else None
        if fault is not None:
            raise PeerError(f"cannot write standard output: {fault.strerror}")
        return status

    async def _drain_soon(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._output.drained()

    def take(self, event: ClientEvent) -> None:
        """Called by the client."""
        if isinstance(event, Arrived):
            self._arrived(event)
        elif isinstance(event, Opened):
            self._opened(event)
        elif isinstance(event, Subscribed):
            self._subscribed(event)

    def _opened(self, event: Opened) -> None:
        if not self._connected.done():
            self._connected.set_result(None)
        if self._output.is_full:
            self.client.read_nothing(True)
        self._teller.detail("connected, and the session was kept" if event.session_present else "connected")
        if event.session_present and self._granted:
            return
        if self._wish.subscriptions:
            self.client.subscribe(*self._wish.subscriptions)
        if self._wish.unsubscribed:
            self.client.unsubscribe(*self._wish.unsubscribed)
        if not self._wish.subscriptions:
            self._end(OK)

    def _subscribed(self, event: Subscribed) -> None:
        granted = 0
        for subscription, reason in zip(event.subscriptions, event.reasons, strict=True):
            if reason < FAILURES:
                granted += 1
                self._teller.detail(f"subscribed to {subscription.filter} with QoS {int(reason)}")
            else:
                self._teller.say(f"{subscription.filter}: the server refused this filter: {words_of(reason)}")
        if not granted:
            if not self._done.done():
                self._done.set_exception(PeerError("the server refused all filters"))
            return
        self._granted = True
        if self._wish.ends_subscribed:
            self._end(OK)

    def _arrived(self, message: Arrived) -> None:
        if self._done.done():
            return  # without an acknowledgement: the server keeps it if it keeps the session
        connections = self.client.connections
        if message.qos == 2:
            # Now, as the next connection must know that it is here, or it would be printed again.
            self.client.acknowledge(message, connections)
        acknowledge = partial(self.client.acknowledge, message, connections) if message.qos == 1 else None
        if self._wish.retained_only and not message.retain:
            self._end(OK)
            return
        if not self._prints(message):
            # In its place, as acknowledgements have the order of messages [MQTT-4.6.0-2].
            if acknowledge is not None:
                self._output.put(b"", acknowledge)
            return
        self._output.put(self._wish.form(Printed(message, time.time_ns())), acknowledge)
        if self._output.is_full:
            self.client.read_nothing(True)
        self._counted += 1
        if self._counted == self._wish.count:
            self._end(OK)

    def _prints(self, message: Arrived) -> bool:
        if self._wish.fresh_only and message.retain:
            return False
        return not any(matches(left_out, message.topic) for left_out in self._wish.left_out)

    def _room(self) -> None:
        self.client.read_nothing(False)

    def _end(self, status: int) -> None:
        if not self._done.done():
            self._done.set_result(status)
