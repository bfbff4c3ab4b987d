"""Runs a client of `ringmq pub` or `ringmq sub` until its work is done or a signal comes; gives advice on errors."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

import click

from ringmq.mqtt_front.client.shell.client import Client
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import NoConnectionError, Trouble
from ringmq.peer.errors import PeerError

OK: Final = 0
FAILED: Final = 1
TIMED_OUT: Final = 27
"""Exit statuses. mosquitto_sub ends with the same one when its time is over."""
OF_SIGNAL: Final = 128
"""Added to the number of a signal that ended a command before its work was done, as shells do."""
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

ADVICE: Final = {
    Trouble.NOBODY_LISTENS: "is a peer running there?",
    Trouble.SILENT: "is it the right host and port? WebSocket needs ws:// or wss://",
    Trouble.UNTRUSTED: "name its CA with --cafile",
    Trouble.OTHER_NAME: "connect by a name in the certificate; --insecure skips this check",
    Trouble.NO_TLS: "is it a port without TLS?",
    Trouble.CERTIFICATE_REFUSED: "give a certificate with --cert and --key",
    Trouble.NO_WEBSOCKET: "is it the port and path of a WebSocket listener?",
    Trouble.NO_MQTT: "is it the port of an MQTT listener? TLS needs --cafile or --tls, WebSocket ws:// or wss://, an"
    " old server -V 3.1.1",
}
REASONS: Final = {
    Reason.BAD_USER_NAME_OR_PASSWORD: "check -u, and -P or --password-file",
    Reason.NOT_AUTHORIZED: "name a user with -u, and give its password with -P or --password-file",
    Reason.UNSUPPORTED_PROTOCOL_VERSION: "try another version: -V 3.1.1",
}
LOOPBACK: Final = ("127.", "localhost:", "[::1]:")


def advised(error: NoConnectionError) -> str:
    """The error, and what the user may do."""
    advice = ADVICE.get(error.trouble, "")
    if error.reason is not None:
        advice = REASONS.get(error.reason, "")
    if error.trouble is Trouble.NOBODY_LISTENS and str(error).startswith(LOOPBACK):
        advice += " try: ringmq ring"
    return f"{error}: {advice}" if advice else str(error)


class Teller:
    """Lines on standard error, as far as the user wants them."""

    def __init__(self, *, quiet: bool, debug: bool) -> None:
        self._quiet = quiet
        self._debug = debug

    def say(self, text: str) -> None:
        if not self._quiet:
            # Whoever reads it may be gone: messages go on.
            with contextlib.suppress(OSError, ValueError):
                click.echo(f"ringmq: {text}", err=True)

    def detail(self, text: str) -> None:
        if self._debug:
            self.say(text)


class Interrupted(Exception):  # noqa: N818  # it is no error
    """A signal came before the work was done."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


async def attend(client: Client, work: Coroutine[Any, Any, int]) -> int:
    """Run both until the work is done: returns its exit status.

    Raises Interrupted, and NoConnectionError when the client gives up. The client has left then in any case.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()
    for number in SIGNALS:
        loop.add_signal_handler(number, _stop(stopped, number))
    running, working = asyncio.create_task(client.run()), asyncio.create_task(work)
    ends: list[asyncio.Future[Any]] = [stopped, running, working]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            raise Interrupted(stopped.result())
        if working.done():
            return working.result()
        running.result()
        return FAILED
    finally:
        working.cancel()
        await client.leave()
        running.cancel()
        await asyncio.gather(running, working, return_exceptions=True)


def _stop(stopped: asyncio.Future[signal.Signals], number: signal.Signals) -> Callable[[], None]:
    def stop() -> None:
        if not stopped.done():
            stopped.set_result(number)

    return stop


def run_to_end(main: Callable[[], Coroutine[Any, Any, int]], teller: Teller, *, quiet: bool) -> int:
    """Run the command; returns its exit status. Raises PeerError unless `quiet`."""
    try:
        return asyncio.run(main())
    except Interrupted as interrupted:
        return OF_SIGNAL + interrupted.number
    except NoConnectionError as error:
        if quiet:
            return FAILED
        raise PeerError(advised(error)) from None
    except PeerError:
        if quiet:
            return FAILED
        raise
