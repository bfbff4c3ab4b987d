"""The site of a peer: the live page, probes, metrics, and the commands about the whole ring as JSON.

Owns the paths and what each takes. Knows neither sockets nor how a ring is asked: a desk does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import msgspec

from ringmq.peer.administration.requests import Request, RequestError, Subject, encode_request, fault_of
from ringmq.peer.administration.rights import Asker, refusal
from ringmq.peer.web.exchanges import READING, HttpCall, RefusedError, Response, check_method
from ringmq.peer.web.feed import Feed
from ringmq.peer.web.guard import Guard
from ringmq.peer.web.health import Health
from ringmq.peer.web.http_server import Exchange
from ringmq.peer.web.metrics_site import Page, metrics_response
from ringmq.peer.web.openapi import description
from ringmq.peer.web.page_files import PageFiles

ROOT: Final = "/api/v1/"
EVENTS: Final = f"{ROOT}events"
"""The stream of events that the page reads."""
TOPIC: Final = f"{ROOT}topic"
"""The coordinators and subscribers of one topic."""
MAX_BODY_BYTES: Final = 8192
JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"
SAFE: Final = ("Cache-Control: no-store", "X-Content-Type-Options: nosniff")
"""Headers of each answer."""
LISTS: Final = (
    Subject.PEERS,
    Subject.CLIENTS,
    Subject.SESSIONS,
    Subject.TOPICS,
    Subject.FILTERS,
    Subject.RETAINED,
)
"""Paths below ROOT that are read."""
CHANGING: Final = (Subject.KICK, Subject.CLEAR)
"""Paths below ROOT that are posted to."""
FIELDS: Final = ("client", "user", "peer", "topic", "filter", "limit")
"""Fields of a query."""


class Asks(Protocol):
    """Asks the ring: the desk of this peer."""

    def ask(self, request: Request, asker: Asker, done: Callable[[bytes], None]) -> None: ...


Traced = Callable[[Mapping[str, object] | None, str], None]
"""Takes the coordinators of a topic, or None and the reason why there is no answer."""


class Parts(NamedTuple):
    """What the site is made of."""

    desk: Asks
    guard: Guard
    health: Callable[[], Health]
    metrics: Page
    log: Callable[[str, str], None]
    """Takes the host and the reason of each refusal."""
    trace: Callable[[str, Traced], None]
    """Finds the coordinators and subscribers of a topic."""
    feed: Feed
    websocket_port: Callable[[], int | None]
    """The port of the listener for MQTT over WebSocket, if there is one."""


class AdministrationSite:
    """One per peer."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pages: dict[str, Callable[[HttpCall, bytes, Exchange], None]] = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
            f"{ROOT}openapi.json": self._openapi,
            EVENTS: self._events,
            TOPIC: self._topic,
            **{ROOT + subject: partial(self._list, subject) for subject in LISTS},
            **{ROOT + subject: partial(self._change, subject) for subject in CHANGING},
        }
        self._files = PageFiles()
        self._posted = {ROOT + subject for subject in CHANGING}

    def body_bytes(self, call: HttpCall) -> int:
        if call.path in self._files:
            check_method(call, *READING)
            return 0
        if call.path not in self._pages:
            raise RefusedError(HTTPStatus.NOT_FOUND, "not found")
        if call.path not in self._posted:
            check_method(call, *(READING if call.path != EVENTS else ("GET",)))
            return 0
        check_method(call, "POST")
        # A form of another site's page can post, but not this type.
        if call.header("content-type").partition(";")[0].strip().lower() != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body must be {JSON}")
        # Before the body is read: strangers may not even send one.
        self._parts.guard.asker(call)
        return call.body_bytes(MAX_BODY_BYTES)

    def answer(self, call: HttpCall, body: bytes, exchange: Exchange) -> None:
        if call.path in self._files:
            exchange.respond(self._files.response(call, self._parts.websocket_port()))
            return
        self._pages[call.path](call, body, exchange)

    def refused(self, host: str, why: str) -> None:
        self._parts.log(host, why)

    # Probes and metrics

    def _healthz(self, _: HttpCall, __: bytes, exchange: Exchange) -> None:
        fault = self._parts.health().fault
        exchange.respond(_probe(not fault, fault or "ok"))

    def _readyz(self, _: HttpCall, __: bytes, exchange: Exchange) -> None:
        health = self._parts.health()
        ready = health.ready and not health.fault
        exchange.respond(_probe(ready, health.fault or ("ready" if health.ready else "not in its ring yet")))

    def _metrics(self, call: HttpCall, _: bytes, exchange: Exchange) -> None:
        self._parts.guard.asker(call)
        exchange.respond(metrics_response(self._parts.metrics))

    # The interface

    def _openapi(self, call: HttpCall, _: bytes, exchange: Exchange) -> None:
        self._parts.guard.asker(call)
        exchange.respond(Response(HTTPStatus.OK, JSON, msgspec.json.encode(description()), SAFE))

    def _events(self, call: HttpCall, _: bytes, exchange: Exchange) -> None:
        self._parts.guard.asker(call)
        self._parts.feed.join(exchange)

    def _topic(self, call: HttpCall, _: bytes, exchange: Exchange) -> None:
        asker = self._parts.guard.asker(call)
        fields = call.fields()
        if list(fields) != ["topic"] or not fields["topic"]:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the one field is topic")
        # Its rules are those of a list by topic.
        topic = request_of(Subject.FILTERS, fields).topic
        why = refusal(asker, Subject.FILTERS)
        if why:
            raise RefusedError(HTTPStatus.FORBIDDEN, why)
        self._parts.trace(topic, partial(_respond_traced, exchange))

    def _list(self, subject: Subject, call: HttpCall, _: bytes, exchange: Exchange) -> None:
        asker = self._parts.guard.asker(call)
        self._ask(request_of(subject, call.fields()), asker, exchange)

    def _change(self, subject: Subject, call: HttpCall, body: bytes, exchange: Exchange) -> None:
        asker = self._parts.guard.asker(call)
        why = refusal(asker, subject)
        if why:
            raise RefusedError(HTTPStatus.FORBIDDEN, why)
        self._ask(changing_request(subject, body), asker, exchange)

    def _ask(self, request: Request, asker: Asker, exchange: Exchange) -> None:
        self._parts.desk.ask(request, asker, partial(_respond, exchange))


def _probe(well: bool, text: str) -> Response:
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, TEXT, f"{text}\n".encode(), SAFE)


def _respond(exchange: Exchange, reply: bytes) -> None:
    error = msgspec.json.decode(reply, type=_Error).error
    status = HTTPStatus.SERVICE_UNAVAILABLE if error else HTTPStatus.OK
    exchange.respond(Response(status, JSON, reply, SAFE))


def _respond_traced(exchange: Exchange, found: Mapping[str, object] | None, fault: str) -> None:
    status = HTTPStatus.SERVICE_UNAVAILABLE if found is None else HTTPStatus.OK
    exchange.respond(Response(status, JSON, msgspec.json.encode({"error": fault} if found is None else found), SAFE))


class _Error(msgspec.Struct):
    """The one field of a Reply that decides about its status."""

    error: str = ""


def request_of(subject: Subject, fields: Mapping[str, str]) -> Request:
    """The request that a query means. Raises RefusedError."""
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"the fields are {', '.join(FIELDS)}")
    return _checked({"about": subject, **fields})


class _Kick(msgspec.Struct, forbid_unknown_fields=True):
    client: str
    peer: str = ""
    user: str = ""
    session: bool = False


class _Clear(msgspec.Struct, forbid_unknown_fields=True):
    filter: str
    limit: int = Request(Subject.CLEAR).limit


def changing_request(subject: Subject, body: bytes) -> Request:
    """The request that a body means. Raises RefusedError."""
    try:
        read = msgspec.json.decode(body, type=_Kick if subject is Subject.KICK else _Clear)
    except (ValueError, RecursionError) as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, f"malformed body: {' '.join(str(error).split())[:100]}") from None
    return _checked({"about": subject, **msgspec.structs.asdict(read)})


def _checked(fields: Mapping[str, object]) -> Request:
    try:
        request = msgspec.convert(fields, Request, strict=False)
        fault = fault_of(request)
        if not fault:
            encode_request(request)
            return request
    except (ValueError, RequestError) as error:
        fault = " ".join(str(error).split())[:100]
    raise RefusedError(HTTPStatus.BAD_REQUEST, fault)
