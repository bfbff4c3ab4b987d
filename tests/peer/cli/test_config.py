"""`ringmq config`: what it says of right and wrong files, and that it and a peer refuse the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.peer.cli.config import FILES, not_default, wrong_files
from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.load import MAX_RULES, load
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.reference import reference
from ringmq.peer.settings.toml_file import MAX_UNKNOWN
from tests.mqtt_front.server.test_tls import Files

Run = Callable[..., Any]
COMMITTED = Path(__file__).parents[3] / "docs" / "ringmq.toml"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def write(folder: Path, text: str) -> Path:
    file = folder / "peer.toml"
    file.write_text(text)
    return file


def faults(file: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    return [line.removeprefix(f"{file}: ") for line in caught.value.lines]


# All that is wrong at once


def test_every_wrong_value_has_a_line(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        rign = "hall 7"
        timing = "fast"
        shadows = 9
        max_queued = 7
        interval_s = 1

        [[topics]]
        filter = "a/#/b"
        fan = 4

        [[topics]]
        filter = "video/#"
        dispatch = "scribble"

        [limits]
        max_queued = -1
        max_conections = 7
        ring = "hall 7"

        [record]
        evry = 7
        every = 0
        acl = "acl"
        max_queued = 7
        """,
    )
    assert faults(file) == [
        "max_queued is a limit: it belongs under [limits]",
        "interval_s is a setting of [record]: it belongs there",
        "unknown setting rign: did you mean ring?",
        "timing must be one of local, lan, wan, got 'fast'",
        "shadows must be a whole number from 0 to 8, got 9",
        "topics 1: unknown setting fan: did you mean fanout?",
        "topics 1: filter must be an unshared MQTT filter, such as video/#, got 'a/#/b'",
        "topics 1: dispatch: missing, must be one of direct, guided",
        "topics 2: dispatch must be one of direct, guided, got 'scribble'",
        "ring is not a limit: it belongs above [limits]",
        "unknown limit max_conections: did you mean max_connections?",
        "max_queued must be a whole number of at least 0, got -1",
        "record: acl is not a setting of [record]: it belongs above [record]",
        "record: max_queued is a limit: it belongs under [limits]",
        "record: unknown setting evry: did you mean every?",
        "record: every must be a whole number from 1 to 1000000000, got 0",
    ]


def test_every_contradiction_has_a_line(tmp_path: Path) -> None:
    settings = """
        overlay = "0.0.0.0:4883"
        mqtt_ws = "127.0.0.1:8083"
        tls_cert = "server.pem"
        tls_key = "server.key"
        amqtt_settings = "amqtt.yaml"
        fanout = 4
        record.metrics = "127.0.0.1:8083"
        """
    proof = "peers prove who they are there, with keys in their data folders"
    aloud = "for a ring that anybody can join, set insecure"
    no_tls = "no effect without a listener with TLS: mqtt_tls or mqtt_wss"
    assert faults(write(tmp_path, settings)) == [
        "advertise: missing, but overlay 0.0.0.0:4883 is a wildcard address: name the host for other peers",
        "amqtt_settings: amqtt.yaml has no effect unless front is amqtt",
        f"data: missing, but other machines can reach overlay 0.0.0.0:4883: {proof}; {aloud}",
        f"tls_cert: server.pem has {no_tls}",
        f"tls_key: server.key has {no_tls}",
        "record: metrics: 127.0.0.1:8083 is the address of mqtt_ws: each needs its own",
        "fanout: 4 has no effect with dispatch direct, which has no tree",
    ]
    no_clients = "no effect without a listener for clients: mqtt or mqtt_tls or mqtt_ws or mqtt_wss"
    without = write(tmp_path, "acl = 'a'\npasswords = 'p'\n[limits]\nmax_queued = 7\n")
    assert faults(without) == [f"{name}: {no_clients}" for name in ("passwords", "acl", "limits")]
    tls = write(tmp_path, "mqtt_tls = '127.0.0.1:0'")
    assert faults(tls) == [
        f"{name}: missing, but mqtt_tls is a listener with TLS: name the file" for name in ("tls_cert", "tls_key")
    ]


def test_contradictions_are_reported_only_for_valid_values(tmp_path: Path) -> None:
    """A listener that could not be read is still one."""
    file = write(tmp_path, "mqtt = 'localhost'\npasswords = 'passwords'\nfanout = 4\n")
    assert faults(file) == ["mqtt must be HOST:PORT, such as 127.0.0.1:1883, got 'localhost'"]


def test_empty_tables_set_nothing(tmp_path: Path) -> None:
    assert load(write(tmp_path, "topics = []\n[limits]\n[record]\n"), {}) == PeerConfig()


def test_faults_of_file_and_command_line_are_reported_together(tmp_path: Path) -> None:
    file = write(tmp_path, "timing = 'fast'\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {"shadows": 9, "ring": "", "record_every": 0})
    assert [line.partition(" must be ")[0] for line in caught.value.lines] == [
        f"{file}: timing",
        "--shadows",
        "--ring",
        "--record-every",
    ]


def test_file_full_of_unknown_names_gets_few_lines(tmp_path: Path) -> None:
    names = [f"strange_{number} = 1" for number in range(10_000)]
    found = faults(write(tmp_path, "\n".join(names)))
    assert len(found) == MAX_UNKNOWN + 1
    assert found[-1] == f"unknown setting: {10_000 - MAX_UNKNOWN} more"
    assert len(faults(write(tmp_path, "[[topics]]\nfilter = 1\n" * MAX_RULES))) == 2 * MAX_RULES


# Files that settings name


def content(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.iterdir()}


async def test_every_wrong_file_has_a_line(tmp_path: Path, tls: Files) -> None:
    (tmp_path / "passwords").write_text("alice:secret\n")
    (tmp_path / "amqtt.yaml").write_text("plugins: [")
    config = load(
        write(
            tmp_path,
            f"""
            mqtt_tls = "127.0.0.1:0"
            data = "{tmp_path / "passwords" / "folder"}"
            http = "127.0.0.1:0"
            http_tokens = "{tmp_path / "tokens"}"
            passwords = "{tmp_path / "passwords"}"
            acl = "{tmp_path / "acl"}"
            tls_cert = "{tls.certificate}"
            tls_key = "{tls.client_key}"
            front = "amqtt"
            amqtt_settings = "{tmp_path / "amqtt.yaml"}"
            """,
        ),
        {},
    )
    starts = [
        f"data: cannot use {tmp_path / 'passwords' / 'folder'}: Not a directory",
        f"cannot read {tmp_path / 'tokens'}: No such file or directory",
        f"{tmp_path / 'passwords'}:1: ",
        f"cannot read {tmp_path / 'acl'}: No such file or directory",
        f"{tls.certificate}, {tls.client_key}: the key does not belong to the certificate",
        f"{tmp_path / 'amqtt.yaml'} is not YAML: ",
    ]
    found = await wrong_files(config)
    assert [line[: len(start)] for line, start in zip(found, starts, strict=True)] == starts


async def test_valid_files_pass_and_stay_unchanged(tmp_path: Path, tls: Files) -> None:
    (tmp_path / "passwords").write_text("")
    (tmp_path / "acl").write_text("topic read public/#\n")
    (tmp_path / "amqtt.yaml").write_text("plugins:\n")
    before = content(tmp_path)
    config = PeerConfig(
        mqtt_tls=("127.0.0.1", 0),
        data=tmp_path / "new" / "data",
        passwords=tmp_path / "passwords",
        acl=tmp_path / "acl",
        tls_cert=tls.certificate,
        tls_key=tls.key,
        tls_ca=tls.ca,
        front="amqtt",
        amqtt_settings=tmp_path / "amqtt.yaml",
    )
    assert await wrong_files(config) == []
    assert content(tmp_path) == before


async def test_peer_without_listeners_reads_no_client_files(tmp_path: Path) -> None:
    config = PeerConfig(passwords=tmp_path / "passwords")
    assert await wrong_files(config) == []
    assert len(await wrong_files(dataclasses.replace(config, mqtt=("127.0.0.1", 0)))) == 1


def test_each_setting_that_names_a_file_is_checked() -> None:
    named = {name for names in FILES for name in names}
    paths = {field.name for field in dataclasses.fields(PeerConfig) if field.type == "Path | None"}
    assert named - {"front"} | {"data", "http_tokens"} == paths


# What is not the default


def test_settings_that_are_not_the_default_are_listed(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        ring = "ringmq"
        delay = "1-10ms"
        mqtt = "127.0.0.1:1883"
        acl = "acl"

        [[topics]]
        filter = "video/#"
        dispatch = "guided"

        [[topics]]
        filter = "film/#"
        dispatch = "guided"
        fanout = 4

        [limits]
        max_queued = 1000
        max_retained = 7

        [record]
        run = "spring-7"
        """,
    )
    assert list(not_default(load(file, {}))) == [
        'delay = "1-10ms"',
        'mqtt = "127.0.0.1:1883"',
        'acl = "acl"',
        'topics 1: filter = "video/#", dispatch = "guided"',
        'topics 2: filter = "film/#", dispatch = "guided", fanout = 4',
        "limits: max_retained = 7",
        'record: run = "spring-7"',
    ]
    assert list(not_default(PeerConfig())) == []


# The commands


def test_example_prints_the_reference(ringmq: Run) -> None:
    process = ringmq("config", "example")
    assert (process.popen.returncode, process.out, process.err) == (0, reference(), "")


def test_check_of_a_default_file_reports_defaults(ringmq: Run) -> None:
    process = ringmq("config", "check", str(COMMITTED))
    said = f"{COMMITTED}: no errors, every setting has its default\n"
    assert (process.popen.returncode, process.out, process.err) == (0, said, "")


def test_check_lists_changed_settings(ringmq: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "ring = 'hall 7'\n")
    process = ringmq("config", "check", str(file))
    said = f'{file}: no errors, 1 setting is not the default\nring = "hall 7"\n'
    assert (process.popen.returncode, process.out, process.err) == (0, said, "")
    file = write(tmp_path, "ring = 'hall 7'\nmqtt = '127.0.0.1:0'\n")
    assert "no errors, 2 settings are not the default\n" in ringmq("config", "check", str(file)).out


def test_check_prints_a_line_per_fault(ringmq: Run, tmp_path: Path) -> None:
    file = write(tmp_path, "rign = 'hall 7'\nshadows = 9\n")
    process = ringmq("config", "check", str(file))
    assert (process.popen.returncode, process.out) == (2, "")
    assert process.err == (
        f"ringmq: {file}: unknown setting rign: did you mean ring?\n"
        f"ringmq: {file}: shadows must be a whole number from 0 to 8, got 9\n"
    )


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("timing = 'fast'\nshadows = 9\n", 2),
        ("passwords = 'none'\nacl = 'none'\n", 2),
        ("mqtt = '127.0.0.1:0'\npasswords = 'none'\n", 1),
        ("mqtt_tls = '127.0.0.1:0'\ntls_cert = 'none'\ntls_key = 'none'\nacl = 'none'\n", 1),
        ("data = '/dev/null'\n", 1),
        ("this is no TOML", 2),
    ],
)
def test_peer_refuses_the_same_files(ringmq: Run, tmp_path: Path, text: str, status: int) -> None:
    file = write(tmp_path, text)
    told = ringmq("config", "check", str(file))
    refused = ringmq("peer", "--config", str(file), "--log-level", "error")
    assert refused.popen.returncode == told.popen.returncode == status
    assert refused.err.startswith("ringmq: ")
    assert refused.err in told.err.splitlines(keepends=True)


def test_a_ring_that_strangers_can_join_is_named(ringmq: Callable[..., Any], tmp_path: Path) -> None:
    aloud = ringmq("config", "check", str(write(tmp_path, "overlay = '192.168.1.10:4883'\ninsecure = true\n")))
    assert aloud.popen.returncode == 0
    assert aloud.out.endswith("warning: insecure: whoever reaches 192.168.1.10:4883 reads and writes every message\n")
    data = tmp_path / "data"
    file = write(tmp_path, f"overlay = '192.168.1.10:4883'\njoin = ['192.168.1.11:4883']\ndata = '{data}'\n")
    without = ringmq("config", "check", str(file))
    assert without.popen.returncode == 1
    assert "join: 192.168.1.11:4883 needs a token in front" in without.err
