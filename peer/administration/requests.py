"""Requests about the whole ring, and the rows of their answers. Both cross links and the network as JSON.

Owns their forms and bounds. Every failure to read one raises RequestError with one line.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_filter, check_topic_name
from ringmq.overlay.core.messages import MAX_QUESTION_BYTES
from ringmq.peer.errors import PeerError

DEFAULT_ROWS: Final = 1000
"""Rows of an answer unless the request says otherwise: more than anybody reads."""
MAX_ROWS: Final = 100_000
MAX_SHOWN_CHARS: Final = 256
"""Characters shown of a name that a client has chosen: some have 65,535 bytes."""
MAX_PREVIEW_BYTES: Final = 200
"""Bytes shown of a payload."""
MAX_WARNINGS: Final = 16


class Subject(StrEnum):
    """What a request is about. `kick` and `clear` change something; the others only read."""

    PEERS = "peers"
    CLIENTS = "clients"
    SESSIONS = "sessions"
    TOPICS = "topics"
    FILTERS = "filters"
    RETAINED = "retained"
    KICK = "kick"
    CLEAR = "clear"


CHANGES: Final = frozenset({Subject.KICK, Subject.CLEAR})


class RequestError(PeerError):
    """A request that cannot be answered, in one line."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question to each peer of a ring. An empty field restricts nothing."""

    about: Subject
    client: str = ""
    """The client id to kick, or the only one to list."""
    user: str = ""
    peer: str = ""
    """First digits of the id of a peer, or its address: only that peer answers."""
    topic: str = ""
    """Only clients and sessions with a subscription that matches this topic."""
    filter: str = ""
    """Only topics that match this filter."""
    session: bool = False
    """Whether `kick` ends the session too, with all that is queued in it."""
    limit: Annotated[int, Meta(ge=0, le=MAX_ROWS)] = DEFAULT_ROWS


class NamedPeer(msgspec.Struct, frozen=True):
    """A peer that another one names."""

    id: str
    address: str


class GonePeer(msgspec.Struct, frozen=True):
    """A peer that is not in the ring any more."""

    id: str
    address: str
    left: bool
    """Whether it has said that it leaves; otherwise it was found dead."""


class PeerRow(msgspec.Struct, kw_only=True):
    """A peer about itself."""

    peer: str = ""
    address: str = ""
    state: str = ""
    """`active`, or `joining`."""
    version: str = ""
    uptime_s: float = 0.0
    clients: int = 0
    sessions: int = 0
    messages_in: int = 0
    messages_out: int = 0
    """MQTT messages from and to clients since the start, without those of its own log."""
    messages_in_s: float = 0.0
    messages_out_s: float = 0.0
    """The same for each second of the last ten."""
    memory_bytes: int = 0
    late_ms: float = 0.0
    """The longest time of the last ten seconds by which a timer came late: how long everything else waited."""
    coordinates: int = 0
    """Partitions of topics that it coordinates."""
    shadows: int = 0
    """Partitions that it has copies of."""
    links: int = 0
    listeners: dict[str, str] = {}
    http: str = ""
    before: NamedPeer | None = None
    after: NamedPeer | None = None
    """Its neighbours on the ring."""
    gone: list[GonePeer] = []
    """Peers that left or died, as far as it knows. It tries them again now and then."""
    warnings: list[str] = []


class ClientRow(msgspec.Struct, kw_only=True):
    """A connected client."""

    peer: str = ""
    client: str = ""
    user: str | None = None
    address: str = ""
    version: str = ""
    """Of MQTT: 3.1, 3.1.1 or 5.0."""
    connected_s: float = 0.0
    keep_alive_s: int = 0
    subscriptions: int = 0
    queued: int = 0
    """Messages that wait in its session."""
    inflight: int = 0
    """Messages with QoS 1 and 2 that it has not acknowledged."""
    dropped: int = 0


class SessionRow(msgspec.Struct, kw_only=True):
    """A session, with or without a connected client."""

    peer: str = ""
    client: str = ""
    user: str | None = None
    connected: bool = False
    subscriptions: int = 0
    queued: int = 0
    queued_bytes: int = 0
    inflight: int = 0
    dropped: int = 0
    ends_in_s: float | None = None
    """None while its client is connected, or if it never ends."""


class TopicRow(msgspec.Struct, kw_only=True):
    """A topic that clients of a peer have published to lately."""

    peer: str = ""
    topic: str = ""
    dispatch: str = ""
    peers: int | None = None
    """Other peers with subscribers. None: they are looked up again before the next message."""
    waiting: int = 0
    """Messages that wait until the subscribers are known."""


class FilterRow(msgspec.Struct, kw_only=True):
    """A filter that clients of a peer subscribe to."""

    peer: str = ""
    filter: str = ""
    clients: int = 0


class RetainedRow(msgspec.Struct, kw_only=True):
    """A retained message, as the coordinator of its topic has it."""

    peer: str = ""
    topic: str = ""
    size_bytes: int = 0
    qos: int = 0
    stored_at: float = 0.0
    """Seconds since 1970, by the clock of its publisher's peer."""
    expires_in_s: float | None = None
    payload: str = ""
    """The first MAX_PREVIEW_BYTES as text; bytes that are no text are shown as U+FFFD."""


class ChangedRow(msgspec.Struct, kw_only=True):
    """Something that a request has changed: a client that was kicked, a topic that was cleared."""

    peer: str = ""
    name: str = ""
    done: str = ""
    """`disconnected`, `session ended` or `cleared`."""


Row = PeerRow | ClientRow | SessionRow | TopicRow | FilterRow | RetainedRow | ChangedRow
R = TypeVar("R", bound=Row)
ROWS: Final[dict[Subject, type[Row]]] = {
    Subject.PEERS: PeerRow,
    Subject.CLIENTS: ClientRow,
    Subject.SESSIONS: SessionRow,
    Subject.TOPICS: TopicRow,
    Subject.FILTERS: FilterRow,
    Subject.RETAINED: RetainedRow,
    Subject.KICK: ChangedRow,
    Subject.CLEAR: ChangedRow,
}


class Page(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Some rows of the answer of one peer."""

    rows: list[msgspec.Raw] = []
    total: int = 0
    """In the last page: the rows that there are, of which at most `limit` were sent."""
    fault: str = ""
    """In the last page: why this peer cannot answer, as one line."""


class Missing(msgspec.Struct, kw_only=True):
    """A peer of the ring whose answer is missing, or not whole."""

    peer: str
    address: str
    why: str


class Reply(msgspec.Struct, kw_only=True):
    """The answer of a ring: the rows of all its peers, in no order."""

    rows: list[msgspec.Raw] = []
    total: int = 0
    """The rows that there are; `rows` may have fewer."""
    peers: list[NamedPeer] = []
    """Peers that have answered."""
    missing: list[Missing] = []
    unasked: int = 0
    """Peers that were not asked, as there are too many."""
    took_ms: float = 0.0
    error: str = ""
    """Why there is no answer, as one line."""


_requests: Final = msgspec.json.Decoder(Request)
_pages: Final = msgspec.json.Decoder(Page)
_replies: Final = msgspec.json.Decoder(Reply)
_rows: Final = {subject: msgspec.json.Decoder(row) for subject, row in ROWS.items()}
_encode: Final = msgspec.json.encode


def encode_request(request: Request) -> bytes:
    """Raises RequestError for one that is too large for a peer."""
    body = _encode(request)
    # One byte of the largest frame of a stranger is its kind.
    if len(body) >= MAX_QUESTION_BYTES:
        raise RequestError(f"a request must have less than {MAX_QUESTION_BYTES} bytes, got {len(body)}")
    return body


def decode_request(body: bytes) -> Request:
    """Raises RequestError unless the bytes are a request that means something."""
    try:
        request = _requests.decode(body)
    # msgspec raises RecursionError for deeply nested JSON.
    except (ValueError, RecursionError) as error:
        raise RequestError(_line(f"unreadable request: {error}")) from None
    fault = fault_of(request)
    if fault:
        raise RequestError(fault)
    return request


def fault_of(request: Request) -> str:
    """What is wrong with the fields of a request, as one line; empty if nothing is."""
    if request.about is Subject.KICK and not request.client:
        return "kick needs the id of a client"
    if request.about is Subject.CLEAR and not request.filter:
        return "clear needs a filter of topics; # is for all of them"
    try:
        if request.topic:
            check_topic_name(request.topic)
        if request.filter:
            check_filter(request.filter)
    except PacketError as error:
        return _line(str(error))
    return ""


def decode_page(body: bytes) -> Page:
    """Raises RequestError."""
    try:
        return _pages.decode(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(_line(f"unreadable page: {error}")) from None


def checked_row(subject: Subject, row: msgspec.Raw, peer: str) -> bytes:
    """A row of another peer, read and written again, and with the name of that peer. Raises RequestError."""
    try:
        read = _rows[subject].decode(row)
    except (ValueError, RecursionError) as error:
        raise RequestError(_line(f"unreadable row: {error}")) from None
    read.peer = peer
    return _encode(read)


def decode_reply(body: bytes, kind: type[R]) -> tuple[Reply, list[R]]:
    """The answer of a ring, and its rows. Raises RequestError."""
    try:
        reply = _replies.decode(body)
        decode = msgspec.json.Decoder(kind).decode
        rows = [decode(row) for row in reply.rows]
    except (ValueError, RecursionError) as error:
        raise RequestError(_line(f"unreadable answer: {error}")) from None
    return reply, rows


def shown(name: str) -> str:
    """A name that a client has chosen, not longer than MAX_SHOWN_CHARS."""
    return name if len(name) <= MAX_SHOWN_CHARS else f"{name[:MAX_SHOWN_CHARS]}…"


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_SHOWN_CHARS]
