"""The settings of a peer: what is read from where, and that each wrong one gives one clear line."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.dispatching.algorithms import ALGORITHMS, Choice
from ringmq.logger.config import RecordConfig
from ringmq.mqtt_front.config import RANGES, FrontConfig
from ringmq.peer.errors import ConfigError
from ringmq.peer.messaging.config import LAN, LOCAL, MAX_SHADOWS, WAN
from ringmq.peer.settings.load import LIMITS, MAX_RULES, SETTINGS, load, parse_delay
from ringmq.peer.settings.model import FANOUT, PeerConfig, Rule

ALL = """
overlay = "0.0.0.0:5000"
advertise = "edge-1"
join = ["edge-2:4883", "[::1]:4883", "edge-2:4883"]
data = "var/ringmq"
identity = "required"
insecure = false
ring = "hall 7"
timing = "wan"
delay = "1-10ms"
delay_seed = 7
hash_seed = 11
discovery = false
mqtt = "127.0.0.1:1883"
mqtt_tls = "0.0.0.0:8883"
mqtt_ws = "[::1]:8083"
mqtt_wss = "0.0.0.0:8084"
http = "0.0.0.0:8880"
http_tokens = "etc/http_tokens"
tls_cert = "etc/server.pem"
tls_key = "etc/server.key"
tls_ca = "etc/ca.pem"
passwords = "etc/passwords"
acl = "etc/acl"
anonymous = false
front = "amqtt"
amqtt_settings = "etc/amqtt.yaml"
shadows = 3
dispatch = "guided"
fanout = 4
log_level = "debug"
log_json = true

[[topics]]
filter = "video/#"
dispatch = "guided"
fanout = 5

[[topics]]
filter = "alarm/+"
dispatch = "direct"

[limits]
max_connections = 500
connect_timeout_s = 5
sys_interval_s = 0.5
allow_zero_length_client_id = false

[record]
run = "spring-7"
every = 10
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "peer.toml"
    file.write_text(text)
    return file


def test_no_settings_give_the_defaults() -> None:
    assert load(None, {}) == PeerConfig()


def test_every_setting_is_read_from_the_file(tmp_path: Path) -> None:
    config = load(write(tmp_path, ALL), {})
    assert config == PeerConfig(
        overlay=("0.0.0.0", 5000),
        advertise="edge-1",
        join=(("edge-2", 4883), ("::1", 4883)),
        data=Path("var/ringmq"),
        identity="required",
        ring="hall 7",
        timing="wan",
        delay=(0.001, 0.010),
        delay_seed=7,
        hash_seed=11,
        discovery=False,
        mqtt=("127.0.0.1", 1883),
        mqtt_tls=("0.0.0.0", 8883),
        mqtt_ws=("::1", 8083),
        mqtt_wss=("0.0.0.0", 8084),
        http=("0.0.0.0", 8880),
        http_tokens=Path("etc/http_tokens"),
        tls_cert=Path("etc/server.pem"),
        tls_key=Path("etc/server.key"),
        tls_ca=Path("etc/ca.pem"),
        passwords=Path("etc/passwords"),
        acl=Path("etc/acl"),
        anonymous=False,
        front="amqtt",
        amqtt_settings=Path("etc/amqtt.yaml"),
        shadows=3,
        dispatch="guided",
        fanout=4,
        topics=(Rule("video/#", "guided", 5), Rule("alarm/+", "direct")),
        log_level="debug",
        log_json=True,
        limits=FrontConfig(
            max_connections=500, connect_timeout_s=5, sys_interval_s=0.5, allow_zero_length_client_id=False
        ),
        record=RecordConfig(run="spring-7", every=10),
    )
    default = PeerConfig()
    same = [
        field.name
        for field in dataclasses.fields(config)
        if getattr(config, field.name) == getattr(default, field.name)
    ]
    assert same == ["insecure"], "each other one must differ, or the test shows nothing; identity contradicts this one"


def test_command_line_overrides_the_file(tmp_path: Path) -> None:
    config = load(write(tmp_path, ALL), {"ring": "hall 8", "join": ("edge-3:1",), "discovery": True})
    assert (config.ring, config.join, config.discovery) == ("hall 8", (("edge-3", 1),), True)
    assert config.timing == "wan"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overlay", "localhost"),
        ("overlay", 4883),
        ("advertise", "0.0.0.0"),
        ("advertise", "edge 1"),
        ("advertise", "edge-1:4883"),
        ("join", "edge-2:4883"),
        ("join", ["edge-2:0"]),
        ("join", [f"edge:{port}" for port in range(1, 66)]),
        ("data", ""),
        ("data", 1),
        ("ring", ""),
        ("ring", "tab\t"),
        ("ring", "x" * 1000),
        ("timing", "fast"),
        ("timing", 1),
        ("delay", "10-1ms"),
        ("delay", "1-10"),
        ("delay", "20s"),
        ("delay", 5),
        ("delay_seed", -1),
        ("hash_seed", 1 << 32),
        ("delay_seed", True),
        ("delay_seed", "7"),
        ("discovery", "yes"),
        ("mqtt", "1883"),
        ("mqtt_tls", "0.0.0.0"),
        ("mqtt_ws", "ws://127.0.0.1:8083"),
        ("mqtt_wss", "::1:8084"),
        ("tls_cert", ""),
        ("tls_key", 1),
        ("tls_ca", True),
        ("shadows", -1),
        ("shadows", 9),
        ("shadows", 1.0),
        ("dispatch", "scribble"),
        ("dispatch", ["guided"]),
        ("fanout", 0),
        ("fanout", 1 << 63),
        ("fanout", True),
        ("log_level", "loud"),
        ("log_json", 1),
    ],
)
def test_wrong_value_error_names_setting_valid_values_and_value(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {name: value})
    line = str(caught.value)
    assert line.startswith(f"--{name.replace('_', '-')} must be {SETTINGS[name].wanted}, got ")
    assert "\n" not in line


def test_wrong_item_of_a_list_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--join must be a list of .*, got 'edge-3'$"):
        load(None, {"join": ("edge-2:4883", "edge-3")})


def test_wrong_value_in_the_file_names_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'timing = "fast"')
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value) == f"{file}: timing must be one of local, lan, wan, got 'fast'"


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("delay-seed", "did you mean delay_seed?"),
        ("log_lvel", "did you mean log_level?"),
        ("websocket", "expected one of overlay, "),
    ],
)
def test_unknown_key_is_refused_with_a_hint(tmp_path: Path, key: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, f"{key} = 1"), {})
    assert f"unknown setting {key}: {hint}" in str(caught.value)


@pytest.mark.parametrize("text", ["overlay = ", 'a = "b', "[peer"])
def test_invalid_toml_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="is not TOML"):
        load(write(tmp_path, text), {})


def test_binary_or_missing_file_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not TOML"):
        load(binary, {})
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(ConfigError, match="directory"):
        load(tmp_path, {})


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_wildcard_overlay_requires_advertise(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertise: missing"):
        load(None, {"overlay": f"{host}:4883"})
    given = {"overlay": f"{host}:4883", "advertise": "edge-1", "insecure": True}
    assert load(None, given).advertise == "edge-1"


def test_the_settings_of_the_documentation(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "listeners.md").read_text()
    config = load(write(tmp_path, text.partition("```toml\n")[2].partition("```")[0]), {})
    assert list(config.listeners) == ["mqtt", "mqtt_tls", "mqtt_wss"]


FILES = {"tls_cert": "server.pem", "tls_key": "server.key"}


@pytest.mark.parametrize("listener", ["mqtt_tls", "mqtt_wss"])
def test_tls_listener_requires_its_files(listener: str) -> None:
    where = {listener: "127.0.0.1:8883"}
    assert load(None, where | FILES).tls_ca is None
    for missing in FILES:
        with pytest.raises(ConfigError) as caught:
            load(None, where | {name: file for name, file in FILES.items() if name != missing})
        assert str(caught.value) == f"{missing}: missing, but {listener} is a listener with TLS: name the file"


@pytest.mark.parametrize("name", ["tls_cert", "tls_key", "tls_ca"])
def test_tls_files_require_a_listener(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"mqtt": "127.0.0.1:1883", "mqtt_ws": "127.0.0.1:8083", name: "a.pem"})
    assert str(caught.value) == f"{name}: a.pem has no effect without a listener with TLS: mqtt_tls or mqtt_wss"


@pytest.mark.parametrize(("one", "other"), [("mqtt", "mqtt_ws"), ("overlay", "mqtt"), ("mqtt_tls", "mqtt_wss")])
def test_two_listeners_cannot_share_an_address(one: str, other: str) -> None:
    files = FILES if other == "mqtt_wss" else {}
    with pytest.raises(ConfigError) as caught:
        load(None, {one: "[::1]:1883", other: "[::1]:1883", **files})
    assert str(caught.value) == f"{other}: [::1]:1883 is the address of {one}: each needs its own"
    assert load(None, {one: "[::1]:0", other: "[::1]:0", **files}), "the system gives each a port of its own"
    assert load(None, {one: "[::1]:1883", other: "127.0.0.1:1883", **files})


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1-10ms", (0.001, 0.010)),
        ("5ms", (0.005, 0.005)),
        ("0ms", (0.0, 0.0)),
        ("0.5-1.5s", (0.5, 1.5)),
        ("50-100us", (0.00005, 0.0001)),
    ],
)
def test_delay_ranges_are_parsed(text: str, span: tuple[float, float]) -> None:
    assert parse_delay(text) == pytest.approx(span)


def test_amqtt_settings_require_the_amqtt_front() -> None:
    mqtt = {"mqtt": "127.0.0.1:1883"}
    assert load(None, {"front": "amqtt", "amqtt_settings": "a.yaml", **mqtt}).amqtt_settings == Path("a.yaml")
    with pytest.raises(ConfigError, match=r"^amqtt_settings: a\.yaml has no effect unless front is amqtt$"):
        load(None, {"amqtt_settings": "a.yaml", **mqtt})


NO_CLIENTS = "no effect without a listener for clients: mqtt or mqtt_tls or mqtt_ws or mqtt_wss"


@pytest.mark.parametrize(
    "line", [{"passwords": "a"}, {"acl": "a"}, {"anonymous": True}, {"anonymous": False}, {"front": "own"}]
)
def test_client_settings_require_a_listener(line: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, line)
    assert str(caught.value) == f"{next(iter(line))}: {NO_CLIENTS}"
    assert load(None, {"mqtt_ws": "127.0.0.1:0", **line}).listeners


def test_amqtt_settings_require_a_listener() -> None:
    with pytest.raises(ConfigError, match=f"^front: {NO_CLIENTS}$"):
        load(None, {"front": "amqtt", "amqtt_settings": "a.yaml"})


# Limits


def limited(folder: Path, text: str) -> FrontConfig:
    return load(write(folder, f"[limits]\n{text}"), {"mqtt": "127.0.0.1:0"}).limits


def test_unset_limit_has_its_default(tmp_path: Path) -> None:
    assert limited(tmp_path, "max_queued = 7") == FrontConfig(max_queued=7)
    assert limited(tmp_path, "") == FrontConfig()


def test_limits_require_a_listener(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^limits: {NO_CLIENTS}$"):
        load(write(tmp_path, "[limits]\nmax_queued = 7"), {})


@pytest.mark.parametrize("name", LIMITS)
def test_every_limit_can_be_set_within_its_range(tmp_path: Path, name: str) -> None:
    right = map(str, RANGES[name]) if name in RANGES else ("true", "false")
    wrong = (str(RANGES[name][0] - 1), str(RANGES[name][1] * 2), "nan", "inf", "true") if name in RANGES else ("0", "1")
    for value in right:
        assert str(getattr(limited(tmp_path, f"{name} = {value}"), name)).lower() == value
    for value in (*wrong, "'7'", "[7]", "{}", "0x" + "f" * 9999):
        with pytest.raises(ConfigError) as caught:
            limited(tmp_path, f"{name} = {value}")
        assert str(caught.value).startswith(f"{tmp_path / 'peer.toml'}: {name} must be {LIMITS[name].wanted}, got ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_queued = 1.0", "max_queued must be a whole number of at least 0, got 1.0"),
        ("max_keep_alive_s = 0", "max_keep_alive_s must be a whole number from 1 to 65535, got 0"),
        ("sys_interval_s = -0.5", "sys_interval_s must be a number from 0 to 1000000000, got -0.5"),
        ("max_conections = 7", "unknown limit max_conections: did you mean max_connections?"),
        ("max-queued = 7", "unknown limit max-queued: did you mean max_queued?"),
        ("ring = 'hall 7'", "ring is not a limit: it belongs above [limits]"),
    ],
)
def test_wrong_limit_fails_with_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        limited(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'peer.toml'}: {says}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limits = 7", "limits must be a table, such as [limits] and max_queued = 100 below, got 7"),
        ("record = 7", "record must be a table, such as [record] and every = 10 below, got 7"),
        ("[[limits]]", "limits must be a table, such as [limits] and max_queued = 100 below, got [{}]"),
        ("max_queued = 7", "max_queued is a limit: it belongs under [limits]"),
        ("limit = 7", "unknown setting limit: did you mean limits?"),
    ],
)
def test_misplaced_limits_fail_with_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {"mqtt": "127.0.0.1:0"})
    assert str(caught.value).startswith(f"{tmp_path / 'peer.toml'}: {says}")


DOCUMENT = (Path(__file__).parents[3] / "docs" / "limits.md").read_text()


@pytest.mark.parametrize("field", dataclasses.fields(FrontConfig), ids=lambda field: field.name)
def test_every_limit_is_documented_with_its_default(field: dataclasses.Field[object]) -> None:
    rows = [line for line in DOCUMENT.splitlines() if line.startswith(f"| `{field.name}` |")]
    assert len(rows) == 1
    _, _, default, meaning, reached, _ = rows[0].split("|")
    assert tomllib.loads(f"default = {default.strip().strip('`')}")["default"] == field.default
    assert meaning.strip()
    assert reached.strip()


def test_documented_limits_exist_in_order() -> None:
    named = [line.split("`")[1] for line in DOCUMENT.splitlines() if line.startswith("| `")]
    assert named == list(LIMITS), "in the order of FrontConfig"


def test_examples_of_the_limits_document_are_accepted(tmp_path: Path) -> None:
    examples = [part.partition("```")[0] for part in DOCUMENT.split("```toml\n")[1:]]
    assert examples
    for example in examples:
        assert load(write(tmp_path, example), {"mqtt": "127.0.0.1:0"}).limits != FrontConfig()


# What the pub/sub roles are told


def test_scribe_refuses_fanout_and_rules(tmp_path: Path) -> None:
    config = load(None, {"dispatch": "scribe", "shadows": 4})
    assert (config.dispatch, config.roles.dispatch.name, config.roles.shadows) == ("scribe", "direct", 4)
    for text, useless in (("fanout = 4", "fanout"), (VIDEO, "topics")):
        with pytest.raises(ConfigError, match=f"^{useless}: no effect with dispatch scribe"):
            load(write(tmp_path, text), {"dispatch": "scribe"})
    with pytest.raises(ConfigError, match="dispatch must be one of direct, guided, got 'scribe'"):
        load(write(tmp_path, VIDEO.replace("guided", "scribe")), {})


VIDEO = "[[topics]]\nfilter = 'video/#'\ndispatch = 'guided'\n"


@pytest.mark.parametrize(
    ("text", "line", "fanout"),
    [
        (VIDEO, {}, FANOUT),
        ("fanout = 4\n" + VIDEO, {}, 4),
        ("fanout = 4\n" + VIDEO, {"fanout": 6}, 6),
        ("dispatch = 'guided'\nfanout = 4\n" + VIDEO + "fanout = 5", {"fanout": 6}, 5),
    ],
)
def test_rule_fanout_falls_back_to_the_peer(tmp_path: Path, text: str, line: dict[str, object], fanout: int) -> None:
    assert load(write(tmp_path, text), line).roles.rules == (("video/#", Choice("guided", fanout)),)


def test_rules_keep_their_order(tmp_path: Path) -> None:
    roles = load(write(tmp_path, ALL), {"fanout": 7}).roles
    assert roles.rules == (("video/#", Choice("guided", 5)), ("alarm/+", Choice("direct")))
    assert (roles.dispatch, roles.lease_s) == (Choice("guided", 7), WAN.lease_s)


@pytest.mark.parametrize("text", ["", VIDEO + "fanout = 5", "[[topics]]\nfilter = '#'\ndispatch = 'direct'"])
def test_fanout_requires_a_tree(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {"fanout": 4})
    assert str(caught.value) == "fanout: 4 has no effect with dispatch direct, which has no tree"


FILTER = "an unshared MQTT filter, such as video/#"
NAMES = f"one of {', '.join(ALGORITHMS)}"
LISTED = "topics must be a list of tables, such as [[topics]] and lines below it, got"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topics = 7", f"{LISTED} 7"),
        ("topics = ['a/#']", f"{LISTED} ['a/#']"),
        ("[topics]\nfilter = 'a'", f"{LISTED} {{'filter': 'a'}}"),
        ("topic = []", "unknown setting topic: did you mean topics?"),
        ("[[topics]]\ndispatch = 'guided'", f"topics 1: filter: missing, must be {FILTER}"),
        ("[[topics]]\nfilter = 'a'", f"topics 1: dispatch: missing, must be {NAMES}"),
        ("[[topics]]\nfilters = 'a'", "topics 1: unknown setting filters: did you mean filter?"),
        (VIDEO + "shadows = 2", "topics 1: unknown setting shadows: expected one of filter, dispatch, fanout"),
        (
            VIDEO + "[[topics]]\nfilter = 'a/#/b'\ndispatch = 'guided'",
            f"topics 2: filter must be {FILTER}, got 'a/#/b'",
        ),
        ("[[topics]]\nfilter = ''\ndispatch = 'guided'", f"topics 1: filter must be {FILTER}, got ''"),
        ("[[topics]]\nfilter = 7\ndispatch = 'guided'", f"topics 1: filter must be {FILTER}, got 7"),
        (
            "[[topics]]\nfilter = '$share/g/a'\ndispatch = 'guided'",
            f"topics 1: filter must be {FILTER}, got '$share/g/a'",
        ),
        ("[[topics]]\nfilter = 'a'\ndispatch = 'scribble'", f"topics 1: dispatch must be {NAMES}, got 'scribble'"),
        (VIDEO + "fanout = 0", "topics 1: fanout must be a whole number of at least 1, got 0"),
        (
            "[[topics]]\nfilter = 'a'\ndispatch = 'direct'\nfanout = 5",
            "topics 1: fanout: 5 has no effect with dispatch direct, which has no tree",
        ),
        (VIDEO * (MAX_RULES + 1), f"topics must be at most {MAX_RULES} tables, got {MAX_RULES + 1}"),
    ],
)
def test_wrong_rule_fails_with_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text), {})
    assert str(caught.value) == f"{tmp_path / 'peer.toml'}: {says}"


def test_maximum_number_of_rules_is_accepted(tmp_path: Path) -> None:
    assert len(load(write(tmp_path, VIDEO * MAX_RULES), {}).topics) == MAX_RULES


# The document about rings

RING = (Path(__file__).parents[3] / "docs" / "ring.md").read_text()


def test_examples_of_the_ring_document_are_accepted(tmp_path: Path) -> None:
    one_peer, rules = [part.partition("```")[0] for part in RING.split("```toml\n")[1:]]
    assert load(write(tmp_path, one_peer), {}).listeners
    config = load(write(tmp_path, rules), {})
    assert [rule.filter for rule in config.topics] == ["video/low/#", "video/#"]


def test_ring_document_has_the_times_of_pubsub() -> None:
    assert LOCAL == LAN, "they share a column"
    for start, times in (
        ("A silent publisher delays a SUBACK by at most", (LAN.void_s, WAN.void_s)),
        ("Publishers wait for a peer that crashed or fell silent for at most", (LAN.entry_s, WAN.entry_s)),
    ):
        assert f"| {start} | {times[0]:g} s | {times[1]:g} s |\n" in RING
    bounds = RING[RING.index("**Bounds.**") : RING.index("**When peers die.**")]
    assert f"At most {LAN.window} messages with QoS 1 and 2 are on their way to each peer without an ack" in bounds
    assert f"All queues together have at most {LAN.max_waiting_bytes >> 20} MiB" in bounds
    assert f"(default {FANOUT})" in RING
    assert f"(2 by default, 0 to {MAX_SHADOWS})" in RING
    assert PeerConfig().shadows == 2


# Recording


def recorded(folder: Path, text: str, **line: object) -> RecordConfig:
    return load(write(folder, f"[record]\n{text}"), line).record


def test_record_settings_have_defaults(tmp_path: Path) -> None:
    assert load(None, {}).record == recorded(tmp_path, "") == RecordConfig()


def test_command_line_overrides_the_record_table(tmp_path: Path) -> None:
    table = "run = 'a'\nevery = 7\ninterval_s = 2\nmqtt = false\nfile = 'r.jsonl'\nmetrics = '127.0.0.1:9183'"
    said = RecordConfig(run="a", every=7, interval_s=2, mqtt=False, file=Path("r.jsonl"), metrics=("127.0.0.1", 9183))
    assert recorded(tmp_path, table) == said
    line = {"run": "b", "record": "histogram", "record_every": 1}
    assert recorded(tmp_path, table, **line) == replace(said, run="b", deliveries="histogram", every=1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("every = 0", "record: every must be a whole number from 1 to 1000000000, got 0"),
        ("every = 1.5", "record: every must be a whole number from 1 to 1000000000, got 1.5"),
        ("interval_s = 0.01", "record: interval_s must be 0 (no samples) or at least 0.1, got 0.01"),
        ("deliveries = 'some'", "record: deliveries must be one of each, histogram, off, got 'some'"),
        ("run = 'a b'", "record: run must be 1 to 64 letters, digits, dots, underscores and dashes, got 'a b'"),
        ("metrics = 9183", "record: metrics must be HOST:PORT, such as 127.0.0.1:9183, got 9183"),
        ("evry = 7", "record: unknown setting evry: did you mean every?"),
        (
            "deliveries = 'histogram'\ninterval_s = 0",
            "record: deliveries is histogram, which needs an interval_s above 0",
        ),
    ],
)
def test_wrong_record_setting_fails_with_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        recorded(tmp_path, text)
    assert str(caught.value) == f"{tmp_path / 'peer.toml'}: {says}"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"record_every": 0}, "--record-every must be a whole number from 1 to 1000000000, got 0"),
        ({"record": "some"}, "--record must be one of each, histogram, off, got 'some'"),
        ({"run": ""}, "--run must be 1 to 64 letters, digits, dots, underscores and dashes, got ''"),
    ],
)
def test_wrong_record_option_fails_with_one_line(line: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, line)
    assert str(caught.value) == says


def test_contradiction_of_file_and_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--record: deliveries is histogram, which needs an interval_s above 0"):
        recorded(tmp_path, "interval_s = 0", record="histogram")


def test_metrics_cannot_share_an_address(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"record: metrics: .* is the address of mqtt: each needs its own"):
        recorded(tmp_path, "metrics = '127.0.0.1:1883'", mqtt="127.0.0.1:1883")
