"""Reading and checking of a peer's settings, from the configuration file and from the command line, which wins.

Opens no socket and creates nothing. The settings themselves are in `model`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ringmq.dispatching.algorithms import ALGORITHMS
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.logger.config import DELIVERIES, MAX_RUN_CHARS, RecordConfig, is_run
from ringmq.logger.config import RANGES as RECORD_RANGES
from ringmq.logger.log_setup import LEVELS
from ringmq.mqtt_front.config import RANGES, FrontConfig
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import SHARED, check_filter
from ringmq.overlay.config import Address, is_wildcard, show
from ringmq.overlay.core.ids import MAX_HASH_SEED
from ringmq.overlay.core.timing import PRESETS
from ringmq.overlay.links.handshake import MAX_RING_CHARS
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.errors import ConfigError, Faults
from ringmq.peer.messaging.config import DIRECT, MAX_SHADOWS
from ringmq.peer.settings.addresses import is_host, is_loopback, parse_address
from ringmq.peer.settings.model import (
    DISPATCHES,
    FRONTS,
    IDENTITIES,
    LISTENERS,
    REQUIRED,
    TLS_LISTENERS,
    PeerConfig,
    Rule,
)
from ringmq.peer.settings.tokens import Token, parse_token
from ringmq.peer.settings.toml_file import check_names, read_toml, shown

MAX_DELAY_S: Final = 10.0
"""Longer than any network delay. A longer delay exceeds every timeout of the ring, so that it falls apart."""
MAX_SEEDS: Final = 64
"""One peer that answers is enough, so a longer list is a mistake in a script."""
MAX_RULES: Final = 256
"""The first message to a topic compares it with every rule."""
FOR_CLIENTS: Final = ("passwords", "acl", "anonymous", "front", "amqtt_settings", "limits")
"""Settings without effect on a peer that serves no clients."""
_UNIT_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?(us|ms|s)")


class Setting(NamedTuple):
    """Reader of one value of the file or the command line. `read` raises ValueError for a wrong value."""

    read: Callable[[object], object]
    wanted: str


def parse_delay(value: object) -> tuple[float, float]:
    """Read `1-10ms` or `5ms` as a range in seconds; raises ValueError."""
    match = _DELAY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(value)
    low, high, unit = match.groups()
    span = (float(low) * _UNIT_S[unit], float(high or low) * _UNIT_S[unit])
    if not span[0] <= span[1] <= MAX_DELAY_S:
        raise ValueError(value)
    return span


def _listen(value: object) -> Address:
    return parse_address(value, any_port=True)


def _seeds(value: object) -> tuple[Address | Token, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_SEEDS:
        raise ValueError(value)
    return tuple(dict.fromkeys(map(_seed, value)))


def _seed(value: object) -> Address | Token:
    return parse_token(value) if isinstance(value, str) and "@" in value else parse_address(value)


def _advertised(value: object) -> str:
    if not isinstance(value, str) or not is_host(value) or is_wildcard(value):
        raise ValueError(value)
    return value


def _path(value: object) -> Path:
    if not isinstance(value, (str, Path)) or not str(value):
        raise ValueError(value)
    return Path(value)


def _ring_name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= MAX_RING_CHARS:
        raise ValueError(value)
    return value


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(value)
    return value


def _one_of(choices: tuple[str, ...]) -> Setting:
    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(value)
        return value

    return Setting(read, f"one of {', '.join(choices)}")


def _number(least: float, most: float, kind: type = int) -> Setting:
    # TOML has integers and floats: "interval_s = 5" must be accepted where 0.5 is.
    kinds = (int, float) if kind is float else (int,)

    def read(value: object) -> float:
        # bool is a subclass of int: without this check `true` would be accepted as 1.
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise ValueError(value)
        return value

    span = f"of at least {least:g}" if most >= 1 << 62 else f"from {least:g} to {most:.0f}"
    return Setting(read, f"a {'' if kind is float else 'whole '}number {span}")


def _limit(name: str, kind: type) -> Setting:
    """Reader of a field of FrontConfig. `kind` is the type of its default."""
    return Setting(_truth, "true or false") if kind is bool else _number(*RANGES[name], kind)


def _run(value: object) -> str:
    if not isinstance(value, str) or not is_run(value):
        raise ValueError(value)
    return value


def _rule_filter(value: object) -> str:
    # Rules match topics, and no topic begins like a shared filter: such a rule would never apply.
    if not isinstance(value, str) or value.startswith(SHARED):
        raise ValueError(value)
    try:
        check_filter(value)
    except PacketError:
        raise ValueError(value) from None
    return value


SETTINGS: Final[dict[str, Setting]] = {
    "overlay": Setting(_listen, "HOST:PORT, such as 127.0.0.1:4883 or [::1]:4883"),
    "advertise": Setting(_advertised, "a host name or address that other peers can reach, without a port"),
    "join": Setting(
        _seeds,
        f"a list of at most {MAX_SEEDS} running peers as HOST:PORT, such as 192.168.1.10:4883, or TOKEN@HOST:PORT as "
        "`ringmq invite` prints it",
    ),
    "identity": _one_of(IDENTITIES),
    "insecure": Setting(_truth, "true or false"),
    "data": Setting(_path, "the path of a folder"),
    "ring": Setting(_ring_name, f"a printable name of 1 to {MAX_RING_CHARS} characters"),
    "timing": _one_of(tuple(PRESETS)),
    "hash_seed": _number(0, MAX_HASH_SEED),
    "delay": Setting(parse_delay, f"a rising range such as 1-10ms, at most {MAX_DELAY_S:g}s"),
    "delay_seed": _number(0, sys.maxsize),
    "discovery": Setting(_truth, "true or false"),
    "mqtt": Setting(_listen, "HOST:PORT, such as 127.0.0.1:1883"),
    "mqtt_tls": Setting(_listen, "HOST:PORT, such as 0.0.0.0:8883"),
    "mqtt_ws": Setting(_listen, "HOST:PORT, such as 127.0.0.1:8083"),
    "mqtt_wss": Setting(_listen, "HOST:PORT, such as 0.0.0.0:8084"),
    "http": Setting(_listen, "HOST:PORT, such as 127.0.0.1:8880"),
    "http_tokens": Setting(_path, "the path of a file"),
    "tls_cert": Setting(_path, "the path of a file"),
    "tls_key": Setting(_path, "the path of a file"),
    "tls_ca": Setting(_path, "the path of a file"),
    "passwords": Setting(_path, "the path of a file"),
    "acl": Setting(_path, "the path of a file"),
    "anonymous": Setting(_truth, "true or false"),
    "front": _one_of(FRONTS),
    "amqtt_settings": Setting(_path, "the path of a file"),
    "shadows": _number(0, MAX_SHADOWS),
    "dispatch": _one_of(DISPATCHES),
    "fanout": _number(1, UNBOUNDED),
    "log_level": _one_of(tuple(LEVELS)),
    "log_json": Setting(_truth, "true or false"),
}
"""Settings that both the file and the command line have."""
LIMITS: Final = {field.name: _limit(field.name, type(field.default)) for field in dataclasses.fields(FrontConfig)}
RECORD: Final[dict[str, Setting]] = {
    "run": Setting(_run, f"1 to {MAX_RUN_CHARS} letters, digits, dots, underscores and dashes"),
    "interval_s": _number(*RECORD_RANGES["interval_s"], float),
    "deliveries": _one_of(DELIVERIES),
    "every": _number(*RECORD_RANGES["every"]),
    "mqtt": Setting(_truth, "true or false"),
    "file": Setting(_path, "the path of a file"),
    "metrics": Setting(_listen, "HOST:PORT, such as 127.0.0.1:9183"),
}
RECORD_LINE: Final = {"run": "run", "record": "deliveries", "record_every": "every"}
"""Settings of `[record]` on the command line: the name there, and the name in the table."""
assert {*RECORD} == {field.name for field in dataclasses.fields(RecordConfig)}
RULE: Final = {
    "filter": Setting(_rule_filter, "an unshared MQTT filter, such as video/#"),
    "dispatch": _one_of(tuple(ALGORITHMS)),
    "fanout": SETTINGS["fanout"],
}
RULE_NEEDS: Final = ("filter", "dispatch")
TABLES: Final = ("topics", "limits", "record")
"""Settings that only the file has."""
assert {*SETTINGS, *TABLES} == {field.name for field in dataclasses.fields(PeerConfig)}


class Section(NamedTuple):
    """Settings that are together in the file: at its top level, or in one table."""

    settings: Mapping[str, Setting]
    kind: str
    """The word for a setting of this section in errors."""
    known: Collection[str]
    misplaced: Mapping[str, str]
    """Errors for names that belong to another section."""


_A_LIMIT: Final = dict.fromkeys(LIMITS, "is a limit: it belongs under [limits]")
_OF_RECORD: Final = dict.fromkeys(RECORD, "is a setting of [record]: it belongs there")
_NO_LIMIT: Final = dict.fromkeys(SETTINGS, "is not a limit: it belongs above [limits]")
_NOT_OF_RECORD: Final = dict.fromkeys(SETTINGS, "is not a setting of [record]: it belongs above [record]")
TOP_LEVEL: Final = Section(SETTINGS, "setting", (*SETTINGS, *TABLES), _OF_RECORD | _A_LIMIT)
IN_LIMITS: Final = Section(LIMITS, "limit", LIMITS, _NO_LIMIT)
IN_RECORD: Final = Section(RECORD, "setting", RECORD, _NOT_OF_RECORD | _A_LIMIT)
IN_A_RULE: Final = Section(RULE, "setting", RULE, {})


def load(file: Path | None, line: Mapping[str, object]) -> PeerConfig:
    """Read the settings of `file` (TOML) and of the command line, which overrides the file.

    Raises ConfigError with a line for each wrong value; if all values are right, with a line for each contradiction.
    """
    values = _values(file, line)
    # Only valid values are checked against each other: a listener with a wrong address would look like no listener.
    config = PeerConfig(**values)  # type: ignore[arg-type]  # each value was read by its own setting
    faults = Faults()
    faults.add(_contradictions(config, values))
    faults.raise_any()
    return config


def _values(file: Path | None, line: Mapping[str, object]) -> dict[str, object]:
    faults = Faults()
    values: dict[str, object] = {}
    with faults.gathered():
        values = _read(file) if file is not None else {}
    for name, value in line.items():
        where = f"--{name.replace('_', '-')}"
        with faults.gathered():
            if name in RECORD_LINE:
                found = values.get("record", RecordConfig())
                assert isinstance(found, RecordConfig), "_read_record returns a RecordConfig"
                values["record"] = _with_record_option(found, name, value, where)
            else:
                values[name] = _parse(SETTINGS[name], value, where)
    faults.raise_any()
    return values


def _with_record_option(record: RecordConfig, name: str, value: object, where: str) -> RecordConfig:
    """Return `record` with one setting replaced by its value on the command line."""
    own = RECORD_LINE[name]
    try:
        return dataclasses.replace(record, **{own: _parse(RECORD[own], value, where)})  # type: ignore[arg-type]
    except ValueError as error:  # settings that contradict each other
        raise ConfigError(f"{where}: {error}") from error


def _contradictions(config: PeerConfig, given: Collection[str]) -> Iterator[str]:
    """Errors of settings that contradict each other; `given` are the names of the settings that the user gave."""
    if is_wildcard(config.overlay[0]) and config.advertise is None:
        listen = show(config.overlay)
        yield f"advertise: missing, but overlay {listen} is a wildcard address: name the host for other peers"
    if config.amqtt_settings is not None and config.front != "amqtt":
        yield f"amqtt_settings: {config.amqtt_settings} has no effect unless front is amqtt"
    if not config.listeners:
        useless = [name for name in FOR_CLIENTS if name in given]
        yield from (f"{name}: no effect without a listener for clients: {' or '.join(LISTENERS)}" for name in useless)
    yield from _wrong_http(config)
    yield from _wrong_identity(config)
    yield from _wrong_certificates(config)
    yield from _wrong_addresses(config)
    yield from _wrong_fanout(config)


def _wrong_http(config: PeerConfig) -> Iterator[str]:
    """Errors of an HTTP server that anybody could use, and of tokens for none."""
    if config.http is None and config.http_tokens is not None:
        yield f"http_tokens: {config.http_tokens} has no effect without http"
    if config.http is not None and config.http_tokens is None and not is_loopback(config.http[0]):
        yield f"http_tokens: missing, but http {show(config.http)} is not on loopback: name the file of tokens"


def _wrong_identity(config: PeerConfig) -> Iterator[str]:
    """Errors of a ring with identity that lacks what it needs, and of a ring that should have one and none."""
    tokens = sum(isinstance(item, Token) for item in config.join)
    if tokens > 1:
        yield f"join: {tokens} addresses have a token: one token admits this machine"
    if config.insecure and (tokens or config.identity == REQUIRED):
        other = f"identity is {REQUIRED}" if config.identity == REQUIRED else "a token in join is for one with identity"
        yield f"insecure: true is for a ring without identity, but {other}"
    elif config.proves and config.data is None:
        why = "join has a token" if tokens else f"identity is {REQUIRED}"
        if config.is_open and not tokens:
            why = f"other machines can reach overlay {show(config.overlay)}"
        yield (
            f"data: missing, but {why}: peers prove who they are there, with keys in their data folders; for a ring "
            "that anybody can join, set insecure"
        )


def _wrong_certificates(config: PeerConfig) -> Iterator[str]:
    """Errors of TLS listeners without their files, and of files without a TLS listener."""
    # A user who names the files of TLS but no TLS listener would believe that the connections are encrypted.
    files = {"tls_cert": config.tls_cert, "tls_key": config.tls_key, "tls_ca": config.tls_ca}
    encrypted = [name for name in TLS_LISTENERS if name in config.listeners]
    for name, file in files.items():
        if encrypted and file is None and name != "tls_ca":
            yield f"{name}: missing, but {encrypted[0]} is a listener with TLS: name the file"
        if not encrypted and file is not None:
            yield f"{name}: {file} has no effect without a listener with TLS: {' or '.join(TLS_LISTENERS)}"


def _wrong_addresses(config: PeerConfig) -> Iterator[str]:
    """Errors of settings with equal addresses."""
    # Names and addresses of one host are not resolved here; the system refuses the second listener then.
    taken: dict[Address, str] = {}
    others = {"http": config.http, "record: metrics": config.record.metrics}
    given = {name: address for name, address in others.items() if address is not None}
    for name, address in {"overlay": config.overlay, **config.listeners, **given}.items():
        other = taken.setdefault(address, name)
        if other != name and address[1]:
            yield f"{name}: {show(address)} is the address of {other}: each needs its own"


def _wrong_fanout(config: PeerConfig) -> Iterator[str]:
    """Errors of a fan-out or rules where no message uses them."""
    useless = [name for name, given in (("topics", config.topics), ("fanout", config.fanout)) if given]
    if config.dispatch == SCRIBE:
        why = f"no effect with dispatch {SCRIBE}, which has trees of its own for all topics"
        yield from (f"{name}: {why}" for name in useless)
        return
    trees = [config.dispatch, *(rule.dispatch for rule in config.topics if rule.fanout is None)]
    if config.fanout is not None and all(name == DIRECT.name for name in trees):
        yield f"fanout: {config.fanout} has no effect with dispatch {DIRECT.name}, which has no tree"


def _read(file: Path) -> dict[str, object]:
    found = read_toml(file)
    if found.get("limits") == {}:
        # An empty table sets no limit, so it is no contradiction on a peer without clients.
        del found["limits"]
    readers = {"topics": _read_rules, "limits": _read_limits, "record": _read_record}
    tables = {name: found.pop(name) for name in TABLES if name in found}
    faults = Faults()
    values: dict[str, object] = {}
    with faults.gathered():
        values |= _parse_all(found, TOP_LEVEL, f"{file}: ")
    for name, table in tables.items():
        with faults.gathered():
            values[name] = readers[name](table, file)
    faults.raise_any()
    return values


def _parse_all(table: Mapping[str, object], section: Section, where: str) -> dict[str, object]:
    """Read each value with its own setting. Raises ConfigError with a line for each fault."""
    faults = Faults()
    values = {}
    strange = [name for name in table if name not in section.settings]
    faults.add([f"{where}{name} {section.misplaced[name]}" for name in strange if name in section.misplaced])
    with faults.gathered():
        unknown = [name for name in strange if name not in section.misplaced]
        check_names(unknown, section.known, f"{where}unknown {section.kind}")
    for name, setting in section.settings.items():
        if name in table:
            with faults.gathered():
                values[name] = _parse(setting, table[name], f"{where}{name}")
    faults.raise_any()
    return values


def _read_limits(table: object, file: Path) -> FrontConfig:
    if not isinstance(table, dict):
        raise ConfigError(
            f"{file}: limits must be a table, such as [limits] and max_queued = 100 below, got {shown(table)}"
        )
    values = _parse_all(table, IN_LIMITS, f"{file}: ")
    try:
        return FrontConfig(**values)  # type: ignore[arg-type]
    except ValueError as error:  # limits that contradict each other
        raise ConfigError(f"{file}: limits: {error}") from error


def _read_record(table: object, file: Path) -> RecordConfig:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: record must be a table, such as [record] and every = 10 below, got {shown(table)}")
    values = _parse_all(table, IN_RECORD, f"{file}: record: ")
    try:
        return RecordConfig(**values)  # type: ignore[arg-type]
    except ValueError as error:  # settings that contradict each other
        raise ConfigError(f"{file}: record: {error}") from error


def _read_rules(tables: object, file: Path) -> tuple[Rule, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(
            f"{file}: topics must be a list of tables, such as [[topics]] and lines below it, got {shown(tables)}"
        )
    if len(tables) > MAX_RULES:
        raise ConfigError(f"{file}: topics must be at most {MAX_RULES} tables, got {len(tables)}")
    faults = Faults()
    rules = []
    for number, table in enumerate(tables, 1):
        with faults.gathered():
            rules.append(_read_rule(table, f"{file}: topics {number}"))
    faults.raise_any()
    return tuple(rules)


def _read_rule(table: dict[str, object], where: str) -> Rule:
    faults = Faults()
    values: dict[str, object] = {}
    with faults.gathered():
        values = _parse_all(table, IN_A_RULE, f"{where}: ")
    missing = [name for name in RULE_NEEDS if name not in table]
    faults.add([f"{where}: {name}: missing, must be {RULE[name].wanted}" for name in missing])
    faults.raise_any()
    rule = Rule(**values)  # type: ignore[arg-type]
    if rule.fanout is not None and rule.dispatch == DIRECT.name:
        raise ConfigError(
            f"{where}: fanout: {rule.fanout} has no effect with dispatch {DIRECT.name}, which has no tree"
        )
    return rule


def _parse(setting: Setting, value: object, where: str) -> object:
    try:
        return setting.read(value)
    except ValueError as error:
        raise ConfigError(f"{where} must be {setting.wanted}, got {_wrong_part(value, error)}") from error


def _wrong_part(value: object, error: ValueError) -> str:
    """The wrong value as text; for a list only its wrong item."""
    wrong = error.args[0] if error.args else value
    return shown(str(wrong) if isinstance(wrong, Path) else wrong)
