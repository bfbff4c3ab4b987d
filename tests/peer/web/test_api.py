"""The site of a peer: which call asks what, and what is refused before anything is asked."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.server.http_request import HeadReader
from ringmq.peer.administration.requests import Reply, Request, Subject
from ringmq.peer.administration.rights import Asker
from ringmq.peer.web.api import MAX_BODY_BYTES, AdministrationSite, Parts, Traced
from ringmq.peer.web.exchanges import RefusedError, Response, read_call
from ringmq.peer.web.feed import Feed
from ringmq.peer.web.guard import Guard
from ringmq.peer.web.health import Health
from ringmq.peer.web.http_server import MAX_REQUEST_BYTES
from ringmq.peer.web.tokens import Tokens

READ, WRITE = "r" * 20, "w" * 20


class Asked:
    """A site on a desk that answers at once, and the exchange of one call."""

    host = "here"

    def __init__(self, tokens: Tokens | None = None, error: str = "") -> None:
        self.requests: list[tuple[Request, Asker]] = []
        self.error = error
        self.health = Health("", True)
        self.traced: list[str] = []
        self.log: list[tuple[str, str]] = []
        feed = Feed(self.ask, lambda: "ab12")
        guard = Guard(tokens)
        parts = Parts(
            desk=self,
            guard=guard,
            health=lambda: self.health,
            metrics=lambda: "metrics 1\n",
            log=self._refused,
            trace=self._trace,
            feed=feed,
            websocket_port=lambda: self.websocket,
        )
        self.websocket: int | None = None
        self.site = AdministrationSite(parts)
        self.response: Response | None = None

    def _trace(self, topic: str, done: Traced) -> None:
        self.traced.append(topic)
        done({"topic": topic} if not self.error else None, self.error)

    def _refused(self, host: str, why: str) -> None:
        self.log.append((host, why))

    def ask(self, request: Request, asker: Asker, done: Callable[[bytes], None]) -> None:
        self.requests.append((request, asker))
        done(msgspec.json.encode(Reply(total=7, error=self.error)))

    def respond(self, response: Response) -> None:
        self.response = response

    def stream(self, headers: tuple[str, ...], ended: Callable[[], None]) -> Callable[[bytes], bool]:
        return lambda data: True

    def call(self, first: str, *headers: str, body: bytes = b"") -> tuple[int, bytes]:
        self.response = None
        length = (f"Content-Length: {len(body)}",) if body else ()
        try:
            call = read_call("\r\n".join([f"{first} HTTP/1.1", "Host: 127.0.0.1", *length, *headers]))
            assert self.site.body_bytes(call) == len(body)
            self.site.answer(call, body, self)
        except RefusedError as error:
            self.response = error.response
        assert self.response is not None
        return self.response.status.value, self.response.body

    def post(self, path: str, body: Any, *headers: str) -> tuple[int, bytes]:
        encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call(f"POST {path}", "Content-Type: application/json; charset=utf-8", *headers, body=encoded)


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("peers", Request(Subject.PEERS)),
        ("peers?peer=ab12", Request(Subject.PEERS, peer="ab12")),
        ("clients?user=alice&topic=hall%2F7&limit=5", Request(Subject.CLIENTS, user="alice", topic="hall/7", limit=5)),
        ("sessions?client=a+b", Request(Subject.SESSIONS, client="a b")),
        ("topics?filter=hall/%23", Request(Subject.TOPICS, filter="hall/#")),
        ("filters", Request(Subject.FILTERS)),
        ("retained?filter=", Request(Subject.RETAINED)),
    ],
)
def test_lists_are_asked_for(path: str, request_: Request) -> None:
    asked = Asked()
    status, body = asked.call(f"GET /api/v1/{path}")
    assert (status, json.loads(body)["total"]) == (200, 7)
    assert asked.requests == [(request_, Asker.WRITER)]


def test_one_topic_is_looked_for() -> None:
    asked = Asked()
    assert asked.call("GET /api/v1/topic?topic=hall%2F7") == (200, b'{"topic":"hall/7"}')
    assert asked.traced == ["hall/7"]
    for query in ("", "?topic=", "?topic=a&limit=1", "?topic=a/%23", "?filter=a"):
        assert asked.call(f"GET /api/v1/topic{query}")[0] == 400
    assert asked.traced == ["hall/7"]
    assert Asked(error="nobody").call("GET /api/v1/topic?topic=a") == (503, b'{"error":"nobody"}')


@pytest.mark.parametrize(
    ("path", "body", "request_"),
    [
        ("kick", {"client": "a", "session": True}, Request(Subject.KICK, client="a", session=True)),
        ("kick", {"client": "a", "peer": "here:1"}, Request(Subject.KICK, client="a", peer="here:1")),
        ("clear", {"filter": "hall/#"}, Request(Subject.CLEAR, filter="hall/#")),
    ],
)
def test_changes_are_asked_for(path: str, body: object, request_: Request) -> None:
    asked = Asked()
    assert asked.post(f"/api/v1/{path}", body)[0] == 200
    assert asked.requests == [(request_, Asker.WRITER)]


@pytest.mark.parametrize(
    ("first", "status", "text"),
    [
        ("GET /index", 404, "not found"),
        ("POST /", 405, "/ takes GET, HEAD only"),
        ("HEAD /api/v1/events", 405, "/api/v1/events takes GET only"),
        ("GET /api/v1/", 404, "not found"),
        ("GET /api/v1/peers/", 404, "not found"),
        ("GET /api/v1/all", 404, "not found"),
        ("POST /api/v1/peers", 405, "/api/v1/peers takes GET, HEAD only"),
        ("GET /api/v1/kick", 405, "/api/v1/kick takes POST only"),
        ("DELETE /api/v1/clear", 405, "/api/v1/clear takes POST only"),
        ("GET /api/v1/clients?all=1", 400, "the fields are client, user, peer, topic, filter, limit"),
        ("GET /api/v1/clients?user=a&user=b", 400, "malformed query: a field stands twice"),
        ("GET /api/v1/clients?&", 400, "malformed query: bad query field: ''"),
        ("GET /api/v1/clients?user=%ff", 400, "malformed query: "),
        ("GET /api/v1/clients?limit=-1", 400, "Expected `int` >= 0"),
        ("GET /api/v1/clients?limit=many", 400, "Expected `int`, got `str`"),
        ("GET /api/v1/clients?topic=a/%23", 400, "topic name 'a/#' has a wildcard"),
        ("GET /api/v1/clients?client=" + "c" * 5000, 400, "a request must have less than 4096 bytes, got"),
        ("POST /api/v1/kick", 415, "the body must be application/json"),
    ],
)
def test_wrong_calls_ask_nothing(first: str, status: int, text: str) -> None:
    asked = Asked()
    found, body = asked.call(first)
    assert found == status
    assert body.decode().startswith(text)
    assert body.count(b"\n") == 1
    assert asked.requests == []


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("kick", b"", 400),
        ("kick", b"[", 400),
        ("kick", {}, 400),
        ("kick", {"client": ""}, 400),
        ("kick", {"client": 7}, 400),
        ("kick", {"client": "a", "all": True}, 400),
        ("kick", {"client": "c" * 5000}, 400),
        ("clear", {"filter": "a#"}, 400),
        ("clear", {"filter": "#", "limit": -1}, 400),
        ("clear", b"[" * 8000, 400),
        ("clear", b'"' + b"x" * MAX_BODY_BYTES, 413),
    ],
)
def test_wrong_bodies_change_nothing(path: str, body: Any, status: int) -> None:
    asked = Asked()
    assert asked.post(f"/api/v1/{path}", body)[0] == status
    assert asked.requests == []


def test_a_body_of_unknown_length_is_refused() -> None:
    asked = Asked()
    json_body = "Content-Type: application/json"
    assert asked.call("POST /api/v1/kick", json_body, "Transfer-Encoding: chunked")[0] == 411
    assert asked.call("POST /api/v1/kick", json_body, "Content-Length: 1", "Content-Length: 1")[0] == 400
    assert asked.call("POST /api/v1/kick", json_body, "Content-Length: -1")[0] == 400
    assert asked.call("POST /api/v1/kick", json_body, "Content-Length: 9999999999999999999")[0] == 400


def test_tokens_decide_what_is_allowed() -> None:
    asked = Asked(Tokens(f"read {READ}\nwrite {WRITE}", "tokens"))
    for path in ("/api/v1/peers", "/api/v1/openapi.json", "/metrics"):
        assert asked.call(f"GET {path}")[0] == 401
        assert asked.call(f"GET {path}", f"Authorization: Bearer {READ}")[0] == 200
    assert asked.post("/api/v1/kick", {"client": "a"})[0] == 401
    status, body = asked.post("/api/v1/kick", {"client": "a"}, f"Authorization: Bearer {READ}")
    assert (status, body) == (403, b"kick needs a token that may write\n")
    assert asked.post("/api/v1/kick", {"client": "a"}, f"Authorization: Bearer {WRITE}")[0] == 200
    assert [asker for _, asker in asked.requests] == [Asker.READER, Asker.WRITER]
    # Probes need none.
    assert asked.call("GET /healthz")[0] == 200
    assert asked.call("GET /readyz")[0] == 200


def test_probes_tell_what_is_wrong() -> None:
    asked = Asked()
    assert asked.call("GET /healthz") == (200, b"ok\n")
    assert asked.call("GET /readyz") == (200, b"ready\n")
    asked.health = Health("", False)
    assert asked.call("GET /healthz") == (200, b"ok\n")
    assert asked.call("GET /readyz") == (503, b"not in its ring yet\n")
    asked.health = Health("disk full", True)
    assert asked.call("GET /healthz") == (503, b"disk full\n")
    assert asked.call("GET /readyz") == (503, b"disk full\n")


def test_metrics_are_served() -> None:
    assert Asked().call("GET /metrics") == (200, b"metrics 1\n")


def test_a_ring_that_cannot_be_asked_is_unavailable() -> None:
    status, body = Asked(error="too many").call("GET /api/v1/peers")
    assert (status, json.loads(body)["error"]) == (503, "too many")


def test_the_description_has_each_path_and_its_rows() -> None:
    asked = Asked()
    described = json.loads(asked.call("GET /api/v1/openapi.json")[1])
    assert described["openapi"] == "3.1.0"
    paths = {path for path in described["paths"] if path.startswith("/api/")}
    assert paths == {f"/api/v1/{subject}" for subject in Subject} | {"/api/v1/topic", "/api/v1/events"}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            # Each described field is taken.
            fields = "&".join(f"{one['name']}=1" for one in operation.get("parameters", ()))
            if method == "get" and path != "/api/v1/events":
                assert asked.call(f"GET {path}{'?' if fields else ''}{fields}")[0] == 200, path
    text = json.dumps(described)
    schemas = described["components"]["schemas"]
    assert {"PeerRow", "ClientRow", "SessionRow", "TopicRow", "FilterRow", "RetainedRow", "ChangedRow"} <= set(schemas)
    references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert references <= set(schemas)


@given(st.sampled_from(["kick", "clear"]), st.binary(max_size=300))
def test_any_body_gets_an_answer(path: str, body: bytes) -> None:
    assert Asked().post(f"/api/v1/{path}", body)[0] in (200, 400)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=100))
def test_any_query_gets_an_answer(query: str) -> None:
    assert Asked().call(f"GET /api/v1/clients?{query}")[0] in (200, 400)


REQUESTS = (
    b"GET /api/v1/clients?user=alice&topic=hall%2F7&limit=5 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b'POST /api/v1/kick HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"client":"a"}',
    b"GET /api/v1/topic?topic=a HTTP/1.1\r\nHost: [::1]:1\r\nSec-Fetch-Site: same-origin\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer rrrrrrrrrrrrrrrrrrrr\r\n\r\n",
    b"GET /metrics HTTP/1.0\r\n\r\n",
)


def mutated(request: bytes, dice: random.Random) -> bytes:
    broken = bytearray(request)
    for _ in range(dice.randrange(6)):
        at = dice.randrange(len(broken) + 1)
        other = dice.choice(REQUESTS)
        start = dice.randrange(len(other))
        piece = dice.choice([b"", dice.randbytes(dice.randrange(1, 9)), other[start : start + dice.randrange(1, 40)]])
        broken[at : at + dice.randrange(9)] = piece
    return bytes(broken)


def test_mutated_requests_get_one_line_or_an_answer() -> None:
    dice = random.Random(1)
    sites = [Asked(), Asked(Tokens(f"read {READ}\nwrite {WRITE}", "tokens"))]
    answers: Counter[int] = Counter()
    lines: set[int] = set()
    for _ in range(5000):
        read = HeadReader(MAX_REQUEST_BYTES).feed(mutated(dice.choice(REQUESTS), dice))
        if read is None:
            continue
        asked = dice.choice(sites)
        try:
            call = read_call(read[0])
            asked.site.answer(call, read[1][: asked.site.body_bytes(call)], asked)
            assert asked.response is not None
            answers[asked.response.status.value] += 1
        except RefusedError as error:
            lines.add(error.response.body.count(b"\n"))
            answers[error.response.status.value] += 1
    assert {200, 400, 401, 404, 415} <= set(answers)
    assert lines == {1}
