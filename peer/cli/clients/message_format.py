"""Messages as `ringmq sub` prints them: payloads, topics with payloads, JSON, or a format of mosquitto_sub (-F).

Owns the syntax of formats. Pure: bytes come out, the time is an argument.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ringmq.mqtt_front.client.events import Arrived
from ringmq.mqtt_front.codec.packets import Properties


class Printed(NamedTuple):
    """A message, and the time of its arrival."""

    message: Arrived
    time_ns: int


Form = Callable[[Printed], bytes]
_Field = Callable[[Printed], bytes | int | None]
NS: Final = 1_000_000_000
ESCAPES: Final = {"\\": "\\", "0": "\0", "a": "\a", "e": "\x1b", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_PIECE: Final = re.compile(
    r"%(?P<flags>[0-]*)(?P<width>\d*)(?:\.(?P<most>\d+))?(?P<field>.)|@(?P<clock>.)|\\(?P<escape>.)|(?P<text>[^%@\\]+)",
    re.DOTALL,
)
MAX_WIDTH: Final = 10_000
_KEPT: Final = "\n\t"
"""Characters without a shape that a terminal may get."""


class FormatError(ValueError):
    """The text is no format: one line about what is wrong."""


def plain(topics: bool, end: bytes) -> Form:
    """The payload as it came, perhaps after its topic."""
    if topics:
        return lambda printed: b"%b %b%b" % (printed.message.topic.encode(), printed.message.payload, end)
    return lambda printed: printed.message.payload + end


def as_json(end: bytes) -> Form:
    """An object of JSON on a line."""
    return lambda printed: json_of(printed).encode() + end


def formatted(text: str, end: bytes) -> Form:
    """By a format of mosquitto_sub. Raises FormatError."""
    parts: list[bytes | Callable[[Printed], bytes]] = []
    at = 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise FormatError(f"a format must not end with {text[at:]!r}: write {text[at] * 2}")
        at = piece.end()
        parts.append(_part(piece))
    return lambda printed: b"".join([part if isinstance(part, bytes) else part(printed) for part in parts]) + end


def for_terminal(form: Form) -> Form:
    """The same without characters that would steer a terminal: anybody may publish them."""

    def shown(printed: Printed) -> bytes:
        text = form(printed).decode("utf-8", "replace")
        return "".join(
            [char if char.isprintable() or char in _KEPT else "\N{REPLACEMENT CHARACTER}" for char in text]
        ).encode()

    return shown


def _part(piece: re.Match[str]) -> bytes | Callable[[Printed], bytes]:
    text, escape, clock = piece["text"], piece["escape"], piece["clock"]
    if text is not None:
        return text.encode("utf-8", "surrogateescape")
    if escape is not None:
        if escape not in ESCAPES:
            raise FormatError(f"a format has \\ and one of {' '.join(ESCAPES)}, got {piece[0]!r}")
        return ESCAPES[escape].encode()
    if clock is not None:
        return _clock(clock)
    if piece["field"] == "%":
        return b"%"
    field = FIELDS.get(piece["field"])
    if field is None:
        raise FormatError(f"a format has % and one of {' '.join(FIELDS)}, got {piece[0]!r}")
    width = int(piece["width"] or 0)
    if width > MAX_WIDTH:
        raise FormatError(f"a width must be at most {MAX_WIDTH}, got {width}")
    most = None if piece["most"] is None else int(piece["most"])
    flags = piece["flags"]
    return lambda printed: _padded(field(printed), width, most, flags)


def _padded(value: bytes | int | None, width: int, most: int | None, flags: str) -> bytes:
    text = b"" if value is None else value if isinstance(value, bytes) else b"%d" % value
    text = text[:most]
    if "-" in flags:
        return text.ljust(width)
    return text.rjust(width, b"0" if "0" in flags else b" ")


def _clock(name: str) -> bytes | Callable[[Printed], bytes]:
    if name == "@":
        return b"@"
    if name == "N":
        return lambda printed: b"%09d" % (printed.time_ns % NS)
    return lambda printed: time.strftime(f"%{name}", time.localtime(printed.time_ns // NS)).encode()


def iso_time(time_ns: int, *, fraction: bool = False) -> str:
    """Local time with its offset from UTC."""
    local = time.localtime(time_ns // NS)
    part = f".{time_ns % NS // 1000:06d}" if fraction else ""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}{part}{time.strftime('%z', local)}"


def json_of(printed: Printed, *, raw: bool = False) -> str:
    """The message as JSON, with the names of mosquitto_sub. A payload that is not UTF-8 is in `payload_base64`.

    `raw`: the payload is JSON itself, and stands in it as such, unless it is not.
    """
    message = printed.message
    fields: dict[str, Any] = {
        "tst": iso_time(printed.time_ns, fraction=True),
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        fields["mid"] = message.packet_id
    properties = _properties(message.properties)
    if properties:
        fields["properties"] = properties
    try:
        text = message.payload.decode()
        fields["payload"] = _value(text) if raw else text
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _properties(properties: Properties) -> dict[str, Any]:
    named = {
        "user-properties": _user_properties(properties),
        "content-type": properties.content_type,
        "response-topic": properties.response_topic,
        "correlation-data": _text(properties.correlation_data),
        "payload-format-indicator": properties.payload_format,
        "message-expiry-interval": properties.message_expiry_s,
        "subscription-identifier": list(properties.subscription_ids) or None,
    }
    return {name: value for name, value in named.items() if value is not None}


def _user_properties(properties: Properties) -> dict[str, str | list[str]] | None:
    """Values by names; a list where a name occurs more than once."""
    values: dict[str, list[str]] = {}
    for name, value in properties.user_properties:
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()} or None


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


FIELDS: Final[dict[str, _Field]] = {
    "A": lambda printed: printed.message.properties.topic_alias,
    "C": lambda printed: _encoded(printed.message.properties.content_type),
    "D": lambda printed: printed.message.properties.correlation_data,
    "E": lambda printed: printed.message.properties.message_expiry_s,
    "F": lambda printed: printed.message.properties.payload_format,
    "I": lambda printed: iso_time(printed.time_ns).encode(),
    "j": lambda printed: json_of(printed).encode(),
    "J": lambda printed: json_of(printed, raw=True).encode(),
    "l": lambda printed: len(printed.message.payload),
    "m": lambda printed: printed.message.packet_id,
    "P": lambda printed: " ".join([f"{n}:{v}" for n, v in printed.message.properties.user_properties]).encode(),
    "p": lambda printed: printed.message.payload,
    "q": lambda printed: printed.message.qos,
    "R": lambda printed: _encoded(printed.message.properties.response_topic),
    "r": lambda printed: int(printed.message.retain),
    "S": lambda printed: " ".join(map(str, printed.message.properties.subscription_ids)).encode(),
    "t": lambda printed: printed.message.topic.encode(),
    "U": lambda printed: b"%d.%09d" % divmod(printed.time_ns, NS),
    "X": lambda printed: printed.message.payload.hex().upper().encode(),
    "x": lambda printed: printed.message.payload.hex().encode(),
}
"""What % and a letter stand for, as in mosquitto_sub."""
