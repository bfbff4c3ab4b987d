"""What one peer is told by its user: the settings, where they come from, and what is wrong with them.

Reads the configuration file and is given the command line, which wins. Opens no socket and creates nothing.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ringmq.dispatching.algorithms import ALGORITHMS, Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.logger.config import DELIVERIES, MAX_RUN_CHARS, RecordConfig, is_run
from ringmq.logger.config import RANGES as RECORD_RANGES
from ringmq.logger.log_setup import LEVELS
from ringmq.mqtt_front.config import RANGES, FrontConfig
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import SHARED, check_filter
from ringmq.overlay.config import Address, is_wildcard, show
from ringmq.overlay.core.timing import PRESETS
from ringmq.overlay.links.handshake import MAX_RING_CHARS
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.errors import ConfigError, Faults
from ringmq.peer.messaging.config import DIRECT, MAX_SHADOWS, PubSubConfig
from ringmq.peer.messaging.config import PRESETS as ROLES
from ringmq.peer.settings.addresses import is_host, parse_address
from ringmq.peer.settings.toml_file import check_names, read_toml, shown

MAX_DELAY_S: Final = 10.0
"""Longer than any network; past every timeout of the ring, which would only fall apart."""
MAX_SEEDS: Final = 64
"""One that answers is enough; more than this is a mistake in a script."""
MAX_RULES: Final = 256
"""Each topic that is published to is compared with all of them once."""
FANOUT: Final = 10
"""Of a tree for which none is said: a thousand subscribers in three hops."""
DISPATCHES: Final = (*ALGORITHMS, SCRIBE)
FRONTS: Final = ("own", "amqtt")
TLS_LISTENERS: Final = ("mqtt_tls", "mqtt_wss")
WEBSOCKET_LISTENERS: Final = ("mqtt_ws", "mqtt_wss")
LISTENERS: Final = ("mqtt", "mqtt_tls", "mqtt_ws", "mqtt_wss")
FOR_CLIENTS: Final = ("passwords", "acl", "anonymous", "front", "amqtt_settings", "limits")
"""Of no use to a peer that serves none."""
_UNIT_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_DELAY: Final = re.compile(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?(us|ms|s)")


class Rule(NamedTuple):
    """How the messages of some topics reach their subscribers: one `[[topics]]` of the file."""

    filter: str
    """The topics, as an MQTT filter. The first rule whose filter matches counts, so narrow ones come first."""
    dispatch: str
    """How messages to these topics reach their subscribers, in the place of the `dispatch` of the peer."""
    fanout: int | None = None
    """The most sends of any peer for one of these messages. None: the `fanout` of the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """One field per setting; the names are those of the file and, but for tables, with dashes of the command line."""

    overlay: Address = ("127.0.0.1", 4883)
    """Where other peers connect, by TCP, and by UDP for discovery. They are not authenticated: an address that
    strangers reach lets them in. Port 0 lets the system choose one, of use only with `join`, as nobody knows it
    before."""
    advertise: str | None = None
    """The host that other peers are told to connect to; needed where `overlay` listens on all addresses. None: the host
    of `overlay`."""
    join: tuple[Address, ...] = ()
    """Peers of the ring to join; one that answers is enough, and more are for when some are away. The same list at all
    peers is fine: the first of it founds the ring, or another if it stays away. Empty: those of the data folder, or a
    new ring."""
    data: Path | None = None
    """Keeps the peer's id, whom it knew, and the sessions and retained messages of its clients; their acknowledgements
    then wait for the disk. None: the id is that of the address, and nothing outlives the process."""
    ring: str = "ringmq"
    """Peers whose ring has another name are refused, so that two rings in one network stay two."""
    timing: str = "lan"
    """A preset of periods and timeouts, the same at all peers of a ring. Shorter ones find failures sooner and cost
    messages: lan finds a silent failure after 3 s, wan after 20 s with a fifth of the messages; local is for many peers
    on one machine."""
    delay: tuple[float, float] | None = None
    """Emulated latency, for experiments, which every message pays: each pair of peers gets one delay out of this range,
    in us, ms or s. To be the same at all peers of a ring. None: there is none."""
    delay_seed: int = 0
    """Chooses the delays: any number, the same at all peers of a ring. Another one is another network."""
    discovery: bool = True
    """Whether peers are also looked for over UDP, on the overlay's port number. Without it there is one port less to
    open, and a peer that has lost all those that it was told of finds no others."""
    mqtt: Address | None = None
    """Where MQTT clients connect over TCP, which everybody on the way can read. None: nowhere. A peer without any of
    the four kinds of listeners serves no clients."""
    mqtt_tls: Address | None = None
    """Where they connect over TLS, which nobody on the way can read, and which takes more of the processor. None:
    nowhere."""
    mqtt_ws: Address | None = None
    """Where they connect over WebSocket, for browsers. Pages from anywhere may do so in a browser that reaches it.
    None: nowhere."""
    mqtt_wss: Address | None = None
    """Where they connect over WebSocket inside TLS, for pages that came by https. None: nowhere."""
    tls_cert: Path | None = None
    """The certificate that listeners with TLS show, and those between it and its CA, in PEM. Read again on SIGHUP.
    None: there is no TLS."""
    tls_key: Path | None = None
    """The key of that certificate, in PEM and not encrypted, as nobody is there to be asked for its password: let only
    the peer read the file. Read again on SIGHUP. None: there is no TLS."""
    tls_ca: Path | None = None
    """Clients over TLS must show a certificate of this CA, in PEM: nobody else comes in, and each needs one made for
    it. Read again on SIGHUP. None: they need none."""
    passwords: Path | None = None
    """The password file, as `ringmq passwd` writes it. To verify one takes some 40 ms of a core on purpose. Read again
    on SIGHUP. None: a user name proves nothing."""
    acl: Path | None = None
    """Who may publish and subscribe what; what no rule allows is forbidden. Read again on SIGHUP. None: everybody may
    do everything."""
    anonymous: bool | None = None
    """Whether clients without a password are let in: more comfort or more safety. None: by the listeners that only this
    machine can reach."""
    front: str = "own"
    """What serves the clients: own, or amqtt, for those who need its plugins. It does less, and slower."""
    amqtt_settings: Path | None = None
    """A configuration file of amqtt's in YAML, for its plugins. Listeners in it are not used. None: there are no
    plugins."""
    limits: FrontConfig = dataclasses.field(default_factory=FrontConfig)
    """What clients may take of the peer, all listeners together. In the file alone, as the table `[limits]`."""
    shadows: int = 2
    """Copies of each list of subscribers, on other peers; to be the same at all peers of a ring. Acknowledged
    subscriptions survive as many crashes at once. Each copy costs a message for each change, and its memory."""
    dispatch: str = DIRECT.name
    """How the messages of this peer's clients reach their subscribers. With direct this peer sends to all others
    itself, over one hop; with guided those with subscribers pass the message on, which spares this one sends and costs
    hops. scribe is the algorithm to compare with, promises less, and must be said at all peers of a ring."""
    fanout: int | None = None
    """The most sends of any peer for one message, where others pass it on. Fewer sends make more hops. None: 10."""
    topics: tuple[Rule, ...] = ()
    """What holds for the messages to some topics, in the place of `dispatch`: a table `[[topics]]` for each filter, at
    most 256. The more there are, the longer the first message to a topic takes. In the file alone."""
    record: RecordConfig = dataclasses.field(default_factory=RecordConfig)
    """What is recorded, and where to. In the file as the table `[record]`; some of it also on the command line."""
    log_level: str = "info"
    """From which level on lines are logged. debug says the most, and takes the most room and time."""
    log_json: bool = False
    """Whether log lines are JSON objects, for programs, in place of text for people."""

    @property
    def listeners(self) -> dict[str, Address]:
        """Where MQTT clients connect, by the names of the settings."""
        every = (self.mqtt, self.mqtt_tls, self.mqtt_ws, self.mqtt_wss)
        return {name: address for name, address in zip(LISTENERS, every, strict=True) if address is not None}

    @property
    def roles(self) -> PubSubConfig:
        """What the pub/sub roles are told of all this."""
        return dataclasses.replace(
            ROLES[self.timing],
            shadows=self.shadows,
            dispatch=self._choice(self.dispatch, self.fanout),
            rules=tuple([(rule.filter, self._choice(rule.dispatch, rule.fanout)) for rule in self.topics]),
        )

    def _choice(self, dispatch: str, fanout: int | None) -> Choice:
        return DIRECT if dispatch in (DIRECT.name, SCRIBE) else Choice(dispatch, fanout or self.fanout or FANOUT)


class Setting(NamedTuple):
    """How a value of the file or the command line is read; `read` raises ValueError for a wrong one."""

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


def _seeds(value: object) -> tuple[Address, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_SEEDS:
        raise ValueError(value)
    return tuple(dict.fromkeys(parse_address(one) for one in value))


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
    kinds = (int, float) if kind is float else (int,)

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise ValueError(value)
        return value

    last = "on" if most >= 1 << 62 else f"to {most:.0f}"
    return Setting(read, f"a {'' if kind is float else 'whole '}number from {least:g} {last}")


def _limit(name: str, kind: type) -> Setting:
    """A field of FrontConfig, whose default has the type that a value must have."""
    return Setting(_truth, "true or false") if kind is bool else _number(*RANGES[name], kind)


def _run(value: object) -> str:
    if not isinstance(value, str) or not is_run(value):
        raise ValueError(value)
    return value


def _rule_filter(value: object) -> str:
    """Topics are told apart, not subscribers: a shared filter would match none."""
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
    "join": Setting(_seeds, f"a list of at most {MAX_SEEDS} HOST:PORT of running peers, such as 192.168.1.10:4883"),
    "data": Setting(_path, "the path of a folder"),
    "ring": Setting(_ring_name, f"a printable name of 1 to {MAX_RING_CHARS} characters"),
    "timing": _one_of(tuple(PRESETS)),
    "delay": Setting(parse_delay, f"a range such as 1-10ms, rising, at most {MAX_DELAY_S:g}s"),
    "delay_seed": _number(0, sys.maxsize),
    "discovery": Setting(_truth, "true or false"),
    "mqtt": Setting(_listen, "HOST:PORT, such as 127.0.0.1:1883"),
    "mqtt_tls": Setting(_listen, "HOST:PORT, such as 0.0.0.0:8883"),
    "mqtt_ws": Setting(_listen, "HOST:PORT, such as 127.0.0.1:8083"),
    "mqtt_wss": Setting(_listen, "HOST:PORT, such as 0.0.0.0:8084"),
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
"""Those that the file and the command line have."""
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
"""Those of them that the command line has, by their names there."""
assert {*RECORD} == {field.name for field in dataclasses.fields(RecordConfig)}
RULE: Final = {
    "filter": Setting(_rule_filter, "an MQTT filter, such as video/#, and no shared one"),
    "dispatch": _one_of(tuple(ALGORITHMS)),
    "fanout": SETTINGS["fanout"],
}
RULE_NEEDS: Final = ("filter", "dispatch")
TABLES: Final = ("topics", "limits", "record")
"""Those that the file alone has."""
assert {*SETTINGS, *TABLES} == {field.name for field in dataclasses.fields(PeerConfig)}


class Place(NamedTuple):
    """What stands together in the file: at its top, or in one table."""

    settings: Mapping[str, Setting]
    kind: str
    """What a name is called there."""
    known: Collection[str]
    misplaced: Mapping[str, str]
    """What to say of names that stand elsewhere."""


_A_LIMIT: Final = dict.fromkeys(LIMITS, "is a limit: it stands under [limits]")
_OF_RECORD: Final = dict.fromkeys(RECORD, "is a setting of [record]: it stands under that")
_NO_LIMIT: Final = dict.fromkeys(SETTINGS, "stands under [limits] and is no limit: it stands above")
_NOT_OF_RECORD: Final = dict.fromkeys(SETTINGS, "stands under [record] and is no setting of that: it stands above")
AT_THE_TOP: Final = Place(SETTINGS, "setting", (*SETTINGS, *TABLES), _OF_RECORD | _A_LIMIT)
IN_LIMITS: Final = Place(LIMITS, "limit", LIMITS, _NO_LIMIT)
IN_RECORD: Final = Place(RECORD, "setting", RECORD, _NOT_OF_RECORD | _A_LIMIT)
IN_A_RULE: Final = Place(RULE, "setting", RULE, {})


def load(file: Path | None, line: Mapping[str, object]) -> PeerConfig:
    """The settings of `file` (TOML), overruled by those that `line` has.

    Raises ConfigError with a line for each wrong value; where they all are right, for what does not go together.
    """
    values = _values(file, line)
    config = PeerConfig(**values)  # type: ignore[arg-type]  # each value was read by its own setting
    faults = Faults()
    faults.lines += _contradictions(config, values)
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
                assert isinstance(found, RecordConfig), "it was read as one"
                values["record"] = _recorded(found, name, value, where)
            else:
                values[name] = _parse(SETTINGS[name], value, where)
    faults.raise_any()
    return values


def _recorded(record: RecordConfig, name: str, value: object, where: str) -> RecordConfig:
    """With one setting of the command line."""
    own = RECORD_LINE[name]
    try:
        return dataclasses.replace(record, **{own: _parse(RECORD[own], value, where)})  # type: ignore[arg-type]
    except ValueError as error:  # settings that do not go together
        raise ConfigError(f"{where}: {error}") from error


def _contradictions(config: PeerConfig, told: Collection[str]) -> Iterator[str]:
    """What does not go together; `told` are the names of the settings that were given."""
    if is_wildcard(config.overlay[0]) and config.advertise is None:
        listen = show(config.overlay)
        yield f"advertise: missing, but overlay {listen} is no address to connect to: name the host"
    if config.amqtt_settings is not None and config.front != "amqtt":
        yield f"amqtt_settings: {config.amqtt_settings} is of no use unless front is amqtt"
    if not config.listeners:
        useless = [name for name in FOR_CLIENTS if name in told]
        yield from (f"{name}: of no use without a listener for clients: {' or '.join(LISTENERS)}" for name in useless)
    yield from _wrong_certificates(config)
    yield from _wrong_addresses(config)
    yield from _wrong_fanout(config)


def _wrong_certificates(config: PeerConfig) -> Iterator[str]:
    """Listeners with TLS have what they need, and nobody believes to have one by naming its files."""
    files = {"tls_cert": config.tls_cert, "tls_key": config.tls_key, "tls_ca": config.tls_ca}
    encrypted = [name for name in TLS_LISTENERS if name in config.listeners]
    for name, file in files.items():
        if encrypted and file is None and name != "tls_ca":
            yield f"{name}: missing, but {encrypted[0]} is a listener with TLS: name the file"
        if not encrypted and file is not None:
            yield f"{name}: {file} is of no use without a listener with TLS: {' or '.join(TLS_LISTENERS)}"


def _wrong_addresses(config: PeerConfig) -> Iterator[str]:
    """Those that are written differently and are still the same are for the system to find."""
    taken: dict[Address, str] = {}
    metrics = {} if config.record.metrics is None else {"record: metrics": config.record.metrics}
    for name, address in {"overlay": config.overlay, **config.listeners, **metrics}.items():
        other = taken.setdefault(address, name)
        if other != name and address[1]:
            yield f"{name}: {show(address)} is the address of {other}: each needs its own"


def _wrong_fanout(config: PeerConfig) -> Iterator[str]:
    """Who says how many sends a tree has means one."""
    useless = [name for name, given in (("topics", config.topics), ("fanout", config.fanout)) if given]
    if config.dispatch == SCRIBE:
        why = f"of no use with dispatch {SCRIBE}, which has trees of its own for all topics"
        yield from (f"{name}: {why}" for name in useless)
        return
    trees = [config.dispatch, *(rule.dispatch for rule in config.topics if rule.fanout is None)]
    if config.fanout is not None and all(name == DIRECT.name for name in trees):
        yield f"fanout: {config.fanout} is of no use with dispatch {DIRECT.name}, which has no tree"


def _read(file: Path) -> dict[str, object]:
    found = read_toml(file)
    if found.get("limits") == {}:
        del found["limits"]  # it says nothing, not even that there are clients to be limited
    readers = {"topics": _read_rules, "limits": _read_limits, "record": _read_record}
    tables = {name: found.pop(name) for name in TABLES if name in found}
    faults = Faults()
    values: dict[str, object] = {}
    with faults.gathered():
        values |= _parse_all(found, AT_THE_TOP, f"{file}: ")
    for name, table in tables.items():
        with faults.gathered():
            values[name] = readers[name](table, file)
    faults.raise_any()
    return values


def _parse_all(table: Mapping[str, object], place: Place, where: str) -> dict[str, object]:
    """Each value by its own setting. Raises ConfigError."""
    faults = Faults()
    values = {}
    strange = [name for name in table if name not in place.settings]
    faults.lines += [f"{where}{name} {place.misplaced[name]}" for name in strange if name in place.misplaced]
    with faults.gathered():
        unknown = [name for name in strange if name not in place.misplaced]
        check_names(unknown, place.known, f"{where}unknown {place.kind}")
    for name, setting in place.settings.items():
        if name in table:
            with faults.gathered():
                values[name] = _parse(setting, table[name], f"{where}{name}")
    faults.raise_any()
    return values


def _read_limits(table: object, file: Path) -> FrontConfig:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: limits: {shown(table)} is not a table, such as [limits] and max_queued = 100 below")
    values = _parse_all(table, IN_LIMITS, f"{file}: ")
    try:
        return FrontConfig(**values)  # type: ignore[arg-type]
    except ValueError as error:  # limits that do not go together
        raise ConfigError(f"{file}: limits: {error}") from error


def _read_record(table: object, file: Path) -> RecordConfig:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: record: {shown(table)} is not a table, such as [record] and every = 10 below")
    values = _parse_all(table, IN_RECORD, f"{file}: record: ")
    try:
        return RecordConfig(**values)  # type: ignore[arg-type]
    except ValueError as error:  # settings that do not go together
        raise ConfigError(f"{file}: record: {error}") from error


def _read_rules(tables: object, file: Path) -> tuple[Rule, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ConfigError(
            f"{file}: topics: {shown(tables)} is no list of tables, such as [[topics]] and lines below it"
        )
    if len(tables) > MAX_RULES:
        raise ConfigError(f"{file}: topics: {len(tables)} are more than the {MAX_RULES} that there may be")
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
    faults.lines += [f"{where}: {name}: missing, where {RULE[name].wanted} is wanted" for name in missing]
    faults.raise_any()
    rule = Rule(**values)  # type: ignore[arg-type]
    if rule.fanout is not None and rule.dispatch == DIRECT.name:
        raise ConfigError(f"{where}: fanout: {rule.fanout} is of no use with dispatch {DIRECT.name}, which has no tree")
    return rule


def _parse(setting: Setting, value: object, where: str) -> object:
    try:
        return setting.read(value)
    except ValueError as error:
        raise ConfigError(f"{where}: {_blamed(value, error)} is not {setting.wanted}") from error


def _blamed(value: object, error: ValueError) -> str:
    """The wrong value; of a list the one wrong item."""
    wrong = error.args[0] if error.args else value
    return shown(str(wrong) if isinstance(wrong, Path) else wrong)
