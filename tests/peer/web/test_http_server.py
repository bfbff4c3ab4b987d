"""The page of metrics over HTTP: answers, refusals, and bounds on slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.logger.errors import LoggerError
from ringmq.logger.prometheus import CONTENT_TYPE
from ringmq.peer.web import http_server
from ringmq.peer.web.exchanges import HttpCall, RefusedError, Response, read_call
from ringmq.peer.web.http_server import MAX_REQUEST_BYTES, HttpServer
from ringmq.peer.web.metrics_site import MetricsSite

HOST = "127.0.0.1"
PAGE = "# a page\nä 1\n"
GOOD = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def metrics_server(page: Callable[[], str], **bounds: Any) -> HttpServer:
    return HttpServer(MetricsSite(page), **bounds)


class Given:
    """An exchange that keeps the response."""

    host = "here"

    def __init__(self) -> None:
        self.response: Response | None = None

    def respond(self, response: Response) -> None:
        self.response = response

    def stream(self, headers: tuple[str, ...], ended: Callable[[], None]) -> Callable[[bytes], bool]:
        raise AssertionError("metrics are no stream")


def answer(head: str, page: Callable[[], str]) -> bytes:
    """The answer to a head, without a socket."""
    site, given = MetricsSite(page), Given()
    try:
        call = read_call(head)
        assert site.body_bytes(call) == 0
        site.answer(call, b"", given)
    except RefusedError as error:
        return error.response.encode()
    assert given.response is not None
    return given.response.encode(call.method != "HEAD")


def parsed(response: bytes) -> Answer:
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    return Answer(int(status), dict(line.split(": ", 1) for line in lines), body)


def asked(request: str, page: Callable[[], str] = lambda: PAGE) -> Answer:
    return parsed(answer(request, page))


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /metrics HTTP/1.1\r\nHost: a",
        "GET /metrics HTTP/1.0",
        "GET /metrics?name[]=x HTTP/1.1\r\nhost:a:1\r\nAccept: */*\r\nX-Empty:",
        "GET http://a:1/metrics HTTP/1.1\r\nHOST: a",
        "GET /metrics HTTP/1.1\r\nHost:\r\nCookie: \xe4\xf6",
    ],
)
def test_metrics_page_is_served(request_text: str) -> None:
    status, headers, body = asked(request_text)
    assert (status, body) == (200, PAGE.encode())
    assert headers["Content-Type"] == CONTENT_TYPE
    assert headers["Content-Length"] == str(len(PAGE.encode()))
    assert headers["Connection"] == "close"
    assert headers["Date"].endswith(" GMT")


def test_head_is_the_page_without_its_body() -> None:
    status, headers, body = asked("HEAD /metrics HTTP/1.1\r\nHost: a")
    assert (status, body, headers["Content-Length"]) == (200, b"", str(len(PAGE.encode())))


@pytest.mark.parametrize("target", ["/", "/metrics/", "/Metrics", "//metrics", "*", "/metric", "http://a", "metrics"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_other_paths_are_not_found(method: str, target: str) -> None:
    assert asked(f"{method} {target} HTTP/1.1\r\nHost: a").status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get", "X-1"])
def test_other_methods_are_not_allowed(method: str) -> None:
    status, headers, body = asked(f"{method} /metrics HTTP/1.1\r\nHost: a")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "GET",
        "GET /metrics",
        "GET  /metrics HTTP/1.1\r\nHost: a",
        "GET /metrics  HTTP/1.1\r\nHost: a",
        "GET /metrics HTTP/2.0\r\nHost: a",
        "GET /metrics HTTP/1.1 \r\nHost: a",
        " /metrics HTTP/1.1\r\nHost: a",
        "G,T /metrics HTTP/1.1\r\nHost: a",
        "GET http://[/metrics HTTP/1.1\r\nHost: a",
        "GET /metrics HTTP/1.1",
        "GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b",
        "GET /metrics HTTP/1.1\r\nHost: a\r\nno colon",
        "GET /metrics HTTP/1.1\r\nHost: a\r\nspace : b",
        "GET /metrics HTTP/1.1\r\nHost: a\r\n folded: b",
        "GET /metrics HTTP/1.1\r\nHost: a\r\n: b",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_invalid_request_is_refused(request_text: str) -> None:
    assert asked(request_text, _unasked).status == 400


def _unasked() -> str:
    raise AssertionError("nobody asked for the page")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_get_one_of_these_answers(request: bytes) -> None:
    assert parsed(answer(request.decode("latin-1"), lambda: PAGE)).status in (200, 400, 404, 405)


async def settled(condition: Callable[[], bool]) -> None:
    """Let the server go on until this is so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the server tells nobody when a connection ends
            await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[HttpServer]:
    server = metrics_server(lambda: PAGE, max_connections=3)
    yield server
    await server.close()


async def exchanged(address: tuple[str, int], *chunks: bytes) -> bytes:
    """All that comes until the server closes its side."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        async with asyncio.timeout(10):
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(0)
            return await reader.read()
    finally:
        writer.close()


async def test_connection_closes_after_one_answer(server: HttpServer) -> None:
    address = await server.listen(HOST, 0)
    assert address[1] > 0
    for chunks in ([GOOD], [GOOD[:5], GOOD[5:-3], GOOD[-3:]], [bytes([byte]) for byte in GOOD], [GOOD * 3]):
        assert parsed(await exchanged(address, *chunks)).body == PAGE.encode()


def test_server_runs_on_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def run() -> None:
        server = metrics_server(lambda: PAGE, max_connections=1)
        address = await server.listen(HOST, 0)
        assert parsed(await exchanged(address, GOOD)).body == PAGE.encode()
        await settled(lambda: not server.connections)
        _, writer = await asyncio.open_connection(*address)
        await settled(lambda: len(server.connections) == 1)
        with contextlib.suppress(ConnectionResetError):
            assert await exchanged(address, GOOD) == b""
        assert server.refused == 1
        writer.close()
        await settled(lambda: not server.connections)
        server.deadline_s = 0.1
        assert await exchanged(address, GOOD[:-1]) == b""
        await server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_bytes_after_the_request_are_ignored(server: HttpServer) -> None:
    address = await server.listen(HOST, 0)
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    reader, writer = await asyncio.open_connection(*address)
    writer.write(GOOD)
    async with asyncio.timeout(10):
        response = await reader.readuntil(PAGE.encode())
        for _ in range(3):
            writer.write(GOOD)
        writer.write_eof()
        assert await reader.read() == b""
    await settled(lambda: not server.connections)
    assert (parsed(response).status, told) == (200, [])
    writer.close()


async def test_http_client_of_the_standard_library_gets_the_page(server: HttpServer) -> None:
    host, port = await server.listen(HOST, 0)

    def get() -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        return response.status, response.read()

    assert await asyncio.to_thread(get) == (200, PAGE.encode())


async def test_request_is_bounded(server: HttpServer) -> None:
    address = await server.listen(HOST, 0)
    filling = b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: "
    longest = filling + b"x" * (MAX_REQUEST_BYTES - len(filling)) + b"\r\n\r\n"
    assert parsed(await exchanged(address, longest)).status == 200
    one_more = filling + b"x" * (MAX_REQUEST_BYTES - len(filling) + 1) + b"\r\n\r\n"
    assert parsed(await exchanged(address, one_more)).status == 400
    assert parsed(await exchanged(address, b"x" * (MAX_REQUEST_BYTES + 10))).status == 400
    assert parsed(await exchanged(address, b"x" * MAX_REQUEST_BYTES, b"x" * 300_000)).status == 400


async def test_connections_are_bounded(server: HttpServer) -> None:
    address = await server.listen(HOST, 0)
    idle = [await asyncio.open_connection(*address) for _ in range(3)]
    await settled(lambda: len(server.connections) == 3)
    reader, writer = await asyncio.open_connection(*address)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert (server.refused, len(server.connections)) == (1, 3)
    idle.pop()[1].close()
    await settled(lambda: len(server.connections) == 2)
    assert parsed(await exchanged(address, GOOD)).status == 200
    for _, writer in idle:
        writer.close()


@pytest.mark.parametrize("said", [b"", GOOD[:-2], GOOD])
async def test_connection_ends_at_the_deadline(said: bytes) -> None:
    """Whether the client sends nothing, is slow, or has its answer and does not close."""
    server = metrics_server(lambda: PAGE, deadline_s=0.2)
    address = await server.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(said)
    assert bool(await asyncio.wait_for(reader.read(), 10)) == (said == GOOD)
    await settled(lambda: not server.connections)
    assert loop.time() - began >= 0.2
    writer.close()
    await server.close()


async def test_client_that_does_not_read_is_ended() -> None:
    server = metrics_server(lambda: "x" * 30_000_000, deadline_s=0.2)
    address = await server.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, address)
        await loop.sock_sendall(client, GOOD)
        assert await asyncio.wait_for(loop.sock_recv(client, 1), 10)
        await settled(lambda: not server.connections)
    await server.close()


async def test_failing_page_ends_one_connection(server: HttpServer) -> None:
    address = await server.listen(HOST, 0)
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    server.site = MetricsSite(_unasked)
    assert await exchanged(address, GOOD) == b""
    assert told == ["nobody asked for the page"]
    server.site = MetricsSite(lambda: "again\n")
    assert parsed(await exchanged(address, GOOD)).body == b"again\n"


async def test_close_ends_all_connections(server: HttpServer) -> None:
    address = await server.listen(HOST, 0)
    reader, writer = await asyncio.open_connection(*address)
    assert parsed(await exchanged(address, GOOD)).status == 200
    await server.close()
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_unusable_address_is_one_line() -> None:
    with socket.socket() as holder:
        holder.bind((HOST, 0))
        holder.listen()
        port = holder.getsockname()[1]
        server = metrics_server(lambda: PAGE)
        for host, number, reason in (
            (HOST, port, f"cannot serve HTTP on {HOST}:{port}: Address already in use"),
            ("192.0.2.1", 1, "cannot serve HTTP on 192.0.2.1:1: Cannot assign requested address"),
            ("a" * 300, 1, f"cannot serve HTTP on {'a' * 300}:1: not a valid host name"),
        ):
            with pytest.raises(LoggerError) as error:
                await server.listen(host, number)
            assert str(error.value) == reason
    await server.close()


async def test_answers_for_slow_readers_are_bounded(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_WAITING_BYTES", 30_000_000)
    server.site = MetricsSite(lambda: "x" * 20_000_000)
    address = await server.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.setblocking(False)
        await loop.sock_connect(slow, address)
        await loop.sock_sendall(slow, GOOD)
        await settled(lambda: server.waiting_bytes() > 10_000_000)
        answer = parsed(await exchanged(address, GOOD))
        assert (answer.status, answer.body) == (503, b"too many answers wait for slow readers\n")
    await settled(lambda: not server.connections)
    assert parsed(await exchanged(address, GOOD)).status == 200


class Streaming:
    """A site that streams to everybody, and notes what was refused."""

    def __init__(self) -> None:
        self.sends: list[Callable[[bytes], bool]] = []
        self.ended = 0
        self.whys: list[str] = []

    def body_bytes(self, call: HttpCall) -> int:
        return call.body_bytes(10)

    def answer(self, call: HttpCall, body: bytes, exchange: http_server.Exchange) -> None:
        self.sends.append(exchange.stream(("X-Body: " + body.decode(),), self._end))

    def _end(self) -> None:
        self.ended += 1

    def refused(self, host: str, why: str) -> None:
        assert host == HOST
        self.whys.append(why)


async def test_a_stream_goes_on_past_the_deadline_until_its_reader_leaves() -> None:
    site = Streaming()
    server = HttpServer(site, deadline_s=0.1)
    address = await server.listen(HOST, 0)
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
    writer.write(b"cde and more")
    head = await reader.readuntil(b"\r\n\r\n")
    assert b"200 OK" in head
    assert b"Content-Type: text/event-stream" in head
    assert b"X-Body: abcde" in head
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await settled(lambda: loop.time() > begun + 0.2)
    assert site.sends[0](b"data: 1\n\n")
    assert await reader.readuntil(b"\n\n") == b"data: 1\n\n"
    writer.close()
    await settled(lambda: site.ended == 1)
    assert not site.sends[0](b"data: 2\n\n")
    await server.close()


async def test_a_slow_reader_of_a_stream_is_cut_off() -> None:
    site = Streaming()
    server = HttpServer(site)
    address = await server.listen(HOST, 0)
    loop = asyncio.get_running_loop()
    with socket.socket() as slow:
        slow.setblocking(False)
        await loop.sock_connect(slow, address)
        await loop.sock_sendall(slow, GOOD)
        await settled(lambda: bool(site.sends))
        sent = 0
        while site.sends[0](b"x" * 100_000):
            sent += 1
            assert sent < 1000
            await asyncio.sleep(0)
        await settled(lambda: site.ended == 1)
    assert site.whys == ["it does not read its events"]
    await server.close()


async def test_a_body_that_never_comes_ends_at_the_deadline() -> None:
    site = Streaming()
    server = HttpServer(site, deadline_s=0.1)
    address = await server.listen(HOST, 0)
    assert await exchanged(address, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab") == b""
    assert site.sends == []
    refused = await exchanged(address, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n")
    assert parsed(refused).status == 413
    assert site.whys == ["the body must have at most 10 bytes, got 11"]
    await server.close()
