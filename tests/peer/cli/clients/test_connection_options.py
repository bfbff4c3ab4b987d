"""The options of a connection: their meaning as settings of a client, and one line for each that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.codec.packets import Version, Will
from ringmq.peer.cli.clients.connection_options import Connecting, connecting, connection_options
from ringmq.peer.errors import ConfigError, PeerError
from tests.mqtt_front.server.test_tls import Files


@click.command()
@connection_options
def options(**line: Any) -> Connecting:
    return connecting(line, "test", reconnects=True)


def parsed(*words: str) -> Connecting:
    """What a command makes of these words."""
    found = options.main([*words], standalone_mode=False)
    assert isinstance(found, Connecting)
    return found


def addresses(*words: str) -> tuple[ServerAddress, ...]:
    return parsed(*words).settings.addresses


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


def test_without_options_it_is_a_peer_of_this_machine() -> None:
    settings = parsed().settings
    assert settings.addresses == (ServerAddress("127.0.0.1", 1883),)
    connect = settings.connect
    assert (connect.version, connect.clean_start, connect.keep_alive_s) == (Version.V5, True, 60)
    assert (connect.will, connect.user_name, connect.password, settings.tls) == (None, None, None, None)
    assert connect.client_id != parsed().settings.connect.client_id
    assert 1 <= len(connect.client_id) <= 23, "the longest that every server of MQTT 3.1 takes"


def test_several_addresses_can_be_given() -> None:
    a, b = ServerAddress("a", 1883), ServerAddress("b", 1890)
    assert addresses("-h", "a", "-h", "b:1890", "-h", "a") == (a, b)
    assert addresses("-p", "1890", "-p", "1891") == (
        ServerAddress("127.0.0.1", 1890),
        ServerAddress("127.0.0.1", 1891),
    )
    assert addresses("-h", "a", "-h", "b:1890", "-p", "1", "-p", "2") == (
        ServerAddress("a", 1),
        ServerAddress("a", 2),
        b,
    )
    assert addresses("-h", "ws://a:8083/mqtt", "-L", "mqtt://b:1890") == (ServerAddress("a", 8083, path="/mqtt"), b)


def test_a_url_names_user_and_topic() -> None:
    found = parsed("-L", "mqtt://alice:secret@a/hall/7")
    assert (found.topics, found.settings.connect.user_name) == (("hall/7",), "alice")
    assert found.settings.connect.password == b"secret"
    assert parsed("-L", "mqtt://alice:secret@a/hall/7", "-u", "bob", "-P", "x").settings.connect.user_name == "bob"


def test_a_password_comes_from_an_option_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"s\xffcret word\r\nsecond line\n")
    assert parsed("-u", "alice", "--password-file", str(file)).settings.connect.password == b"s\xffcret word"
    assert parsed("-u", "alice", "-P", "é").settings.connect.password == "é".encode()
    assert parsed("-P", "token").settings.connect.password == b"token"


def test_a_session_is_kept_as_long_as_wanted() -> None:
    def session(*words: str) -> tuple[bool, int | None]:
        connect = parsed(*words).settings.connect
        return connect.clean_start, connect.properties.session_expiry_s

    assert session() == (True, None)
    assert session("-x", "60") == (True, 60)
    assert session("-c", "-i", "a") == (False, 0xFFFF_FFFF)
    assert session("-c", "-i", "a", "-x", "60") == (False, 60)
    assert session("-x", "-1") == (True, 0xFFFF_FFFF)
    assert session("-c", "-i", "a", "-V", "mqttv311") == (False, None)


def test_ids_and_versions_are_those_of_mosquitto() -> None:
    assert parsed("-i", "a").settings.connect.client_id == "a"
    assert parsed("-I", "a-").settings.connect.client_id.startswith("a-")
    for text, version in (
        ("5", 5),
        ("mqttv5", 5),
        ("3.1.1", 4),
        ("mqttv311", 4),
        ("311", 4),
        ("mqttv31", 3),
        ("3.1", 3),
    ):
        assert parsed("-V", text).settings.connect.version == version


def test_a_will_is_given() -> None:
    words = ("--will-topic", "gone", "--will-payload", "é", "--will-qos", "2", "--will-retain")
    assert parsed(*words).settings.connect.will == Will("gone", "é".encode(), 2, True)
    assert parsed("--will-topic", "gone").settings.connect.will == Will("gone", b"", 0, False)


def test_a_ca_or_a_url_or_an_option_means_tls(files: Files) -> None:
    ca, certificate, key = str(files.ca), str(files.client), str(files.client_key)
    found = parsed("--cafile", ca, "--cert", certificate, "--key", key).settings
    assert found.addresses == (ServerAddress("127.0.0.1", 8883, tls=True),)
    assert found.tls is not None
    assert found.tls.check_hostname
    insecure = parsed("-h", "wss://a/mqtt", "--cafile", ca, "--insecure").settings
    assert insecure.tls is not None
    assert not insecure.tls.check_hostname
    assert addresses("--tls", "-h", "a", "-p", "1") == (ServerAddress("a", 1, tls=True),)
    assert parsed("-h", "mqtts://a").settings.tls is not None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-h", "a:b"), "a port must be 1 to 65535, got 'b' in 'a:b'"),
        (("-h", "mqtt://a/topic"), "--host: mqtt://a/topic: a URL with a topic is for -L"),
        (("-L", "a"), "-L must be a URL such as mqtt://127.0.0.1/TOPIC, got 'a'"),
        (("-L", "mqtt://a:b@x", "-L", "mqtt://c:d@y"), "the URLs name several users: one client has one"),
        (("-P", "a", "--password-file", "b"), "-P and --password-file exclude each other"),
        (("-P", "a", "-V", "3.1.1"), "a password needs a user name (-u) before MQTT 5"),
        (("-i", "a", "-I", "b"), "-i and -I exclude each other"),
        (("-c",), "-c resumes the session of a client id: name it with -i"),
        (("-x", "1", "-V", "3.1.1"), "-x needs MQTT 5 (-V 5); before, -c keeps the session"),
        (("--will-payload", "a"), "a will needs --will-topic"),
        (("--will-topic", "a/#"), "--will-topic: topic name 'a/#' has a wildcard"),
        (("--insecure",), "--insecure is for TLS: use it with mqtts:// or wss://, or with --cafile or --tls"),
        (
            ("--cafile", "x", "-h", "ws://a"),
            "--cafile is for TLS: use it with mqtts:// or wss://, or with --cafile or --tls",
        ),
        (("--tls", "--key", "x"), "--key needs --cert"),
        (("-i", "x" * 65_536), "this is no CONNECT of MQTT: "),
        (("-u", "\udcff"), "this is no CONNECT of MQTT: "),
        (("--will-topic", "\udcff"), "--will-topic: topic name '\\udcff' is not UTF-8"),
    ],
)
def test_wrong_options_are_one_line(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(*words)
    assert str(caught.value).startswith(says)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_used_are_named(tmp_path: Path, files: Files) -> None:
    missing, empty = tmp_path / "missing", tmp_path / "empty"
    empty.write_bytes(b"\n")
    cases = [
        (("-u", "a", "--password-file", str(missing)), f"cannot read {missing}: No such file or directory"),
        (
            ("-u", "a", "--password-file", str(empty)),
            f"{empty}: the first line must be a password of 1 to 65,535 bytes",
        ),
        (("--cafile", str(missing)), f"cannot read {missing}: No such file or directory"),
        (("--cafile", str(files.key)), f"{files.key}: no certificate in PEM format found"),
    ]
    for words, says in cases:
        with pytest.raises(PeerError) as caught:
            parsed(*words)
        assert str(caught.value) == says
