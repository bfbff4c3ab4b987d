"""The description of the interface over HTTP, in OpenAPI 3.1. The schemas come from the types themselves."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ringmq import __version__
from ringmq.peer.administration.requests import DEFAULT_ROWS, MAX_ROWS, ROWS, Reply, Row, Subject

SUMMARIES: Final = {
    Subject.PEERS: "All peers of the ring.",
    Subject.CLIENTS: "The connected clients of all peers.",
    Subject.SESSIONS: "The sessions of all peers, with and without a client.",
    Subject.TOPICS: "The topics that clients have published to lately.",
    Subject.FILTERS: "The filters that clients subscribe to.",
    Subject.RETAINED: "The retained messages of the ring.",
    Subject.KICK: "End the connection of a client.",
    Subject.CLEAR: "Clear the retained messages of topics that match a filter.",
}
QUERY: Final = {
    Subject.PEERS: ("peer",),
    Subject.CLIENTS: ("client", "user", "peer", "topic"),
    Subject.SESSIONS: ("client", "user", "peer", "topic"),
    Subject.TOPICS: ("peer", "filter"),
    Subject.FILTERS: ("peer", "topic"),
    Subject.RETAINED: ("peer", "filter"),
}
"""Fields of the query of each list that mean something, beside `limit`."""
MEANINGS: Final = {
    "client": "Only the client with this id.",
    "user": "Only clients of this user.",
    "peer": "Only of this peer: the first digits of its id, or its overlay address.",
    "topic": "Only with a subscription that matches this topic.",
    "filter": "Only topics that match this filter.",
}
BODIES: Final[dict[Subject, dict[str, Any]]] = {
    Subject.KICK: {
        "type": "object",
        "required": ["client"],
        "additionalProperties": False,
        "properties": {
            "client": {"type": "string", "minLength": 1, "description": "Its client id."},
            "peer": {"type": "string", "description": MEANINGS["peer"]},
            "user": {"type": "string", "description": MEANINGS["user"]},
            "session": {"type": "boolean", "description": "Whether its session ends too."},
        },
    },
    Subject.CLEAR: {
        "type": "object",
        "required": ["filter"],
        "additionalProperties": False,
        "properties": {
            "filter": {"type": "string", "minLength": 1, "description": "A filter of topics; # is for all."},
            "limit": {"type": "integer", "minimum": 0, "maximum": MAX_ROWS, "default": DEFAULT_ROWS},
        },
    },
}
REFUSALS: Final = {
    "400": "A field is wrong.",
    "401": "A token is needed, or it is wrong.",
    "403": "The token may not write, or the call comes of a page of another site.",
    "503": "This peer cannot ask its ring now.",
}
COMPONENTS: Final = "#/components/schemas/{name}"


def description() -> dict[str, Any]:
    """The whole document."""
    rows = {row.__name__: row for row in ROWS.values()}
    _, schemas = msgspec.json.schema_components([Reply, *rows.values()], ref_template=COMPONENTS)
    # A row is of the type that its path says.
    schemas["Reply"]["properties"]["rows"] = {"type": "array", "items": {"type": "object"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "RingMQ",
            "version": __version__,
            "description": "The whole ring from any of its peers. Every answer says which peers are missing in it.",
        },
        "paths": {
            **{f"/api/v1/{subject}": {"get": _list(subject)} for subject in QUERY},
            **{f"/api/v1/{subject}": {"post": _change(subject)} for subject in BODIES},
            "/api/v1/topic": {"get": _topic()},
            "/api/v1/events": {"get": _events()},
            "/healthz": {"get": _probe("Whether the peer works.")},
            "/readyz": {"get": _probe("Whether the peer is in its ring and serves clients.")},
            "/metrics": {"get": _probe("Metrics for Prometheus.")},
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _list(subject: Subject) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string"}, "description": MEANINGS[name]}
        for name in QUERY[subject]
    ]
    limit = {"type": "integer", "minimum": 0, "maximum": MAX_ROWS, "default": DEFAULT_ROWS}
    parameters.append({"name": "limit", "in": "query", "schema": limit, "description": "The most rows."})
    return {"summary": SUMMARIES[subject], "parameters": parameters, "responses": _responses(ROWS[subject])}


def _change(subject: Subject) -> dict[str, Any]:
    return {
        "summary": SUMMARIES[subject],
        "description": "Needs a token that may write.",
        "requestBody": {"required": True, "content": {"application/json": {"schema": BODIES[subject]}}},
        "responses": _responses(ROWS[subject]),
    }


def _responses(row: type[Row]) -> dict[str, Any]:
    reply = {
        "allOf": [{"$ref": COMPONENTS.format(name="Reply")}],
        "properties": {"rows": {"type": "array", "items": {"$ref": COMPONENTS.format(name=row.__name__)}}},
    }
    answer = {"description": "The answer of the ring.", "content": {"application/json": {"schema": reply}}}
    refused = {status: {"description": text} for status, text in REFUSALS.items()}
    return {"200": answer, **refused}


def _topic() -> dict[str, Any]:
    topic = {"name": "topic", "in": "query", "required": True, "schema": {"type": "string"}}
    answer = {"description": "Its partitions, each with its coordinator, the copies there and the subscribers."}
    content = {"application/json": {"schema": {"type": "object"}}}
    refused = {status: {"description": text} for status, text in REFUSALS.items()}
    return {
        "summary": "The coordinators and subscribers of a topic.",
        "parameters": [topic],
        "responses": {"200": answer | {"content": content}, **refused},
    }


def _events() -> dict[str, Any]:
    answer = {
        "description": "Server-sent events without end: first the id of this peer, then each second all peers.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    refused = {status: {"description": text} for status, text in REFUSALS.items()}
    return {"summary": "The state of the ring as it changes.", "responses": {"200": answer, **refused}}


def _probe(summary: str) -> dict[str, Any]:
    responses = {"200": {"description": "Yes."}, "503": {"description": "No; the text says why."}}
    return {"summary": summary, "responses": responses}
