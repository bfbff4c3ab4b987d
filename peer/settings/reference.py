"""Every setting of a peer as one TOML file: its meaning, unit, trade-off and default.

Owns the form of that file. Its comments are the docstrings under the fields of the configuration dataclasses, its
values are the defaults of these fields, so the file cannot differ from the code.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from ringmq.logger.config import RecordConfig
from ringmq.mqtt_front.config import FrontConfig
from ringmq.overlay.config import show
from ringmq.peer.settings.load import LIMITS, RECORD, RULE, RULE_NEEDS, SETTINGS, Setting
from ringmq.peer.settings.model import PeerConfig, Rule
from ringmq.peer.settings.tokens import Token

WIDTH: Final = 100
"""Maximum characters of a line."""
UNSET: Final = (None, ())
"""Defaults that TOML cannot express: the file leaves the setting out."""
HEAD: Final = """
Every setting of a peer, with its default and its trade-off. `ringmq config example` prints this file.

Remove the # before the name of a setting, change its value, and start the peer with `ringmq peer --config FILE`.
Settings behind a # have their defaults, so the unchanged file changes nothing. Options of the command line override
the file. `ringmq config check FILE` reports the errors of a file, or its settings that are not the default.
"""
NO_DEFAULT: Final = "Default: not set. An example:"
NEEDED: Final = "Required in each of these tables. An example:"
EXAMPLES: Final[dict[str, object]] = {
    "advertise": "edge-1",
    "join": ["192.168.1.10:4883", "192.168.1.11:4883"],
    "data": "/var/lib/ringmq",
    "delay": "1-10ms",
    "mqtt": "127.0.0.1:1883",
    "mqtt_tls": "0.0.0.0:8883",
    "mqtt_ws": "127.0.0.1:8083",
    "mqtt_wss": "0.0.0.0:8084",
    "http": "127.0.0.1:8880",
    "http_tokens": "/etc/ringmq/http_tokens",
    "tls_cert": "/etc/ringmq/server.pem",
    "tls_key": "/etc/ringmq/server.key",
    "tls_ca": "/etc/ringmq/ca.pem",
    "passwords": "/etc/ringmq/passwords",
    "acl": "/etc/ringmq/acl",
    "anonymous": False,
    "amqtt_settings": "/etc/ringmq/amqtt.yaml",
    "fanout": 10,
}
"""Example values of the settings whose default TOML cannot express."""
RECORD_EXAMPLES: Final[dict[str, object]] = {
    "run": "spring-7",
    "file": "/var/log/ringmq/records.jsonl",
    "metrics": "127.0.0.1:9183",
}
RULE_EXAMPLE: Final[dict[str, object]] = {"filter": "video/#", "dispatch": "guided", "fanout": 4}


def reference() -> str:
    """Text of the file. Without changes it means all defaults."""
    about = documented(PeerConfig)
    parts = [
        "\n".join(_comment(HEAD.strip())),
        *_settings(PeerConfig, SETTINGS, EXAMPLES),
        "\n".join([*_comment(about["topics"]), "#[[topics]]"]),
        *_rule(),
        "\n".join([*_comment(about["limits"]), "[limits]"]),
        *_settings(FrontConfig, LIMITS, {}),
        "\n".join([*_comment(about["record"]), "[record]"]),
        *_settings(RecordConfig, RECORD, RECORD_EXAMPLES),
    ]
    return "\n\n".join(parts) + "\n"


def documented(kind: type) -> dict[str, str]:
    """Docstrings under the fields of a class by field name, each on one line."""
    # Docstrings under fields do not exist at run time, so they are read from the source.
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = " ".join(text.split())
    return found


def as_toml(value: object) -> str:
    """Value of a setting in TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}"
        case float():
            return repr(value)
        case str() | Path():
            # TOML knows all escapes of JSON, but JSON does not escape DEL, which TOML forbids.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case (str(host), int(port)):
            return as_toml(show((host, port)))
        case (float(low), float(high)):
            return as_toml(f"{low * 1e3:.9g}-{high * 1e3:.9g}ms")
        case Token():
            return as_toml(value.concealed)
        case list() | tuple():
            return f"[{', '.join(map(as_toml, value))}]"
    raise TypeError(f"no setting has a value such as {value!r}")


def _settings(kind: type, settings: Mapping[str, Setting], examples: Mapping[str, object]) -> Iterator[str]:
    """Comments and line of each setting of a dataclass, in the order of its fields."""
    about = documented(kind)
    default = kind()
    for field in dataclasses.fields(kind):
        if field.name in settings:
            value = getattr(default, field.name)
            unset = value in UNSET
            line = _line(field.name, examples[field.name] if unset else value)
            lines = _about(about[field.name], settings[field.name], NO_DEFAULT if unset else "")
            yield "\n".join([*lines, line])


def _rule() -> Iterator[str]:
    about = documented(Rule)
    for name, value in RULE_EXAMPLE.items():
        lines = _about(about[name], RULE[name], NEEDED if name in RULE_NEEDS else NO_DEFAULT)
        yield "\n".join([*lines, _line(name, value)])


def _about(text: str, setting: Setting, default: str) -> list[str]:
    """Comments of a setting: its documentation, its valid values, and a note on its default."""
    text = text.replace("None: ", "Not set: ").replace("Empty: ", "Not set: ")
    return [line for part in (text, f"Value: {setting.wanted}.", default) if part for line in _comment(part)]


def _line(name: str, value: object) -> str:
    return f"#{name} = {as_toml(value)}"


def _comment(text: str) -> list[str]:
    paragraphs = [textwrap.fill(part, WIDTH - 2, break_on_hyphens=False) for part in text.split("\n\n")]
    return [f"# {line}".rstrip() for line in "\n\n".join(paragraphs).split("\n")]
