"""`ringmq pub` from outside: what it publishes, from where, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.peer.cli.clients.commands import ALICE, RINGMQ, Commands, EveryListener

BINARY = bytes(range(256)) * 300


@pytest.fixture
def reach(peer: EveryListener) -> tuple[str, ...]:
    return peer.reach("mqtt")


def printed(commands: Commands, reach: tuple[str, ...], count: int, *published: str, typed: bytes = b"") -> bytes:
    """What a subscriber prints of these messages, without ends of lines."""
    listening = commands.subscribed(*reach, "-t", "a/#", "-q", "2", "-N", "-C", str(count))
    done = commands.run("pub", *reach, "-t", "a/b", *published, typed=typed)
    assert (done.status, done.out, done.err) == (0, b"", ""), done
    return listening.ends().out


@pytest.mark.parametrize("kind", ["mqtt", "mqtt-tls", "mqtt-ws", "mqtt-wss"])
@pytest.mark.parametrize("version", ["5", "3.1.1", "3.1"])
def test_a_message_of_any_bytes_passes_by_every_listener(
    commands: Commands, peer: EveryListener, kind: str, version: str
) -> None:
    reach = (*peer.reach(kind), "-V", version)
    assert printed(commands, reach, 1, "-s", "-q", "1", typed=BINARY) == BINARY


def test_a_payload_comes_from_an_option_a_file_or_nowhere(
    commands: Commands, reach: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(BINARY)
    assert printed(commands, reach, 1, "-f", str(file)) == BINARY
    assert printed(commands, reach, 1, "-m", "é\udcff") == "é".encode() + b"\xff"
    assert printed(commands, reach, 1, "-n") == b""


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_each_line_is_a_message(commands: Commands, reach: tuple[str, ...], qos: str) -> None:
    lines = [b"line %d\xff" % number for number in range(500)]
    typed = b"\n\n".join(lines)  # empty ones are none; the last has no end
    assert printed(commands, reach, len(lines), "-l", "-q", qos, typed=typed) == b"".join(lines)


def test_a_message_can_be_repeated(commands: Commands, reach: tuple[str, ...]) -> None:
    assert printed(commands, reach, 5, "-m", "x", "--repeat", "5") == b"xxxxx"
    assert printed(commands, reach, 3, "-m", "x", "-q", "1", "--repeat", "3", "--repeat-delay", "0.01") == b"xxx"


def test_properties_are_published(commands: Commands, reach: tuple[str, ...]) -> None:
    listening = commands.subscribed(*reach, "-t", "a", "--json", "-C", "1")
    words = ("--user-property", "k", "v", "--user-property", "k", "w", "--content-type", "text/plain")
    words += ("--response-topic", "re/ply", "--correlation-data", "17", "--message-expiry", "60")
    assert commands.run("pub", *reach, "-t", "a", "-m", "b", *words).status == 0
    assert json.loads(listening.ends().out)["properties"] == {
        "user-properties": {"k": ["v", "w"]},
        "content-type": "text/plain",
        "response-topic": "re/ply",
        "correlation-data": "17",
        "message-expiry-interval": 60,
    }


def test_the_topic_may_stand_in_a_url(commands: Commands, peer: EveryListener, reach: tuple[str, ...]) -> None:
    listening = commands.subscribed(*reach, "-t", "in/a", "-C", "1")
    url = f"mqtt://alice:secret@127.0.0.1:{peer.ports['mqtt']}/in/a"
    assert commands.run("pub", "-L", url, "-m", "x").status == 0
    assert listening.ends().out == b"x\n"


def test_the_next_address_is_tried(commands: Commands, reach: tuple[str, ...], closed_port: int) -> None:
    done = commands.run("pub", "-p", str(closed_port), *reach, "-t", "a", "-m", "x")
    assert done.status == 0
    assert done.err == f"ringmq: 127.0.0.1:{closed_port}: connection refused; trying 127.0.0.1:{reach[1]}\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-t", "a"), "pub needs exactly one of -m, -f, -s, -l, -n, got none"),
        (("-t", "a", "-m", "x", "-n"), "pub needs exactly one of -m, -f, -s, -l, -n, got -m and -n"),
        (("-m", "x"), "pub needs one topic: -t TOPIC, got none"),
        (("-t", "a/+", "-m", "x"), "-t: topic name 'a/+' has a wildcard"),
        (("-t", "a", "-l", "--repeat", "2"), "--repeat is for one message, and -l reads many"),
        (("-t", "a", "-m", "x", "-V", "3.1.1", "--content-type", "x"), "--content-type needs MQTT 5 (-V 5)"),
        (("-t", "a", "-m", "x", "-q", "3"), "Invalid value for '-q' / '--qos': 3 is not in the range 0<=x<=2."),
        (("-t", "a", "-m", "x", "-W", "nan"), "Invalid value for '-W' / '--timeout': nan is not a number of seconds."),
        (("-t", "a", "-m", "x", "-W", "0"), "Invalid value for '-W' / '--timeout': 0.0 is not in the range x>0."),
        (("-t", "a", "-m", "x", "-h", "a:b"), "a port must be 1 to 65535, got 'b' in 'a:b'"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(commands: Commands, arguments: tuple[str, ...], says: str) -> None:
    done = commands.run("pub", *arguments)
    assert (done.status, done.out) == (2, b"")
    assert done.err.startswith(f"ringmq: {says}")
    assert done.err.count("\n") == 1


def test_a_port_where_nobody_listens_is_one_line_with_advice(commands: Commands, closed_port: int) -> None:
    done = commands.run("pub", "-p", str(closed_port), "-t", "a", "-m", "x")
    says = f"ringmq: 127.0.0.1:{closed_port}: connection refused: is a peer running there? try: ringmq ring\n"
    assert (done.status, done.err) == (1, says)
    assert commands.run("pub", "-p", str(closed_port), "-t", "a", "-m", "x", "--quiet").err == ""


def test_a_host_that_nobody_knows_is_one_line(commands: Commands) -> None:
    done = commands.run("pub", "-h", "nobody.invalid", "-t", "a", "-m", "x")
    assert done.status == 1
    assert done.err.startswith("ringmq: nobody.invalid:1883: unknown host (")
    assert done.err.count("\n") == 1


def test_a_wrong_password_is_one_line_with_advice(commands: Commands, peer: EveryListener) -> None:
    port = peer.ports["mqtt"]
    done = commands.run("pub", "-p", port, "-u", "alice", "-P", "wrong", "-t", "a", "-m", "x")
    assert done.status == 1
    assert done.err.startswith(f"ringmq: 127.0.0.1:{port}: refused: bad user name or password")
    assert done.err.endswith(": check -u, and -P or --password-file\n")
    assert done.err.count("\n") == 1


def test_a_silent_port_is_given_up(commands: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = commands.run("pub", "-p", str(port), "-t", "a", "-m", "x", "--connect-timeout", "0.2")
    assert done.status == 1
    assert done.err.startswith(f"ringmq: 127.0.0.1:{port}: no answer within 0.2 s: is it the right host and port?")


def test_a_server_that_is_not_trusted_is_one_line_with_advice(commands: Commands, peer: EveryListener) -> None:
    port = peer.ports["mqtt-tls"]
    done = commands.run("pub", "--tls", "-h", "localhost", "-p", port, *ALICE, "-t", "a", "-m", "x")
    assert done.status == 1
    assert done.err.startswith(f"ringmq: localhost:{port}: the certificate is not trusted (")
    assert done.err.endswith("): name its CA with --cafile\n")


def test_a_message_too_large_for_the_server_is_refused(
    commands: Commands, reach: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(2_000_000))
    done = commands.run("pub", *reach, "-t", "a", "-f", str(file))
    assert done.status == 1
    says = "2,000,008 bytes with its head: packet too large, at most 1,048,576 bytes"
    assert done.err == f"ringmq: a: the server takes no such message of {says}\n"
    done = commands.run("pub", *reach, "-V", "3.1.1", "-t", "a", "-f", str(file))
    assert done.status == 1
    assert done.err.endswith(": the connection was lost: with -V 5 a server says why\n")


def test_a_message_that_the_server_refuses_is_told(commands: Commands, reach: tuple[str, ...]) -> None:
    done = commands.run("pub", *reach, "-t", "closed/a", "-m", "x", "-q", "1", "--repeat", "3")
    assert done.status == 1
    refused = "ringmq: closed/a: the server refused a message: not authorized\n"
    assert done.err == f"{refused}ringmq: 3 of 3 messages were refused\n"


def test_a_line_that_the_server_does_not_take_stops_no_other(
    commands: Commands, reach: tuple[str, ...], tmp_path: Path
) -> None:
    listening = commands.subscribed(*reach, "-t", "a", "-C", "2", "-N")
    done = commands.run("pub", *reach, "-t", "a", "-l", typed=b"one\n" + b"x" * 2_000_000 + b"\ntwo\n")
    assert done.status == 1
    assert done.err.endswith("ringmq: 1 of 3 messages were refused\n")
    assert listening.ends().out == b"onetwo"


def test_files_that_cannot_be_read_are_named(commands: Commands, reach: tuple[str, ...], tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    done = commands.run("pub", *reach, "-t", "a", "-f", str(missing))
    assert (done.status, done.err) == (1, f"ringmq: cannot read {missing}: No such file or directory\n")


def test_it_gives_up_when_its_time_is_over(commands: Commands, reach: tuple[str, ...]) -> None:
    command = commands.start("pub", *reach, "-t", "a", "-l", "-W", "0.3")
    done = command.ends()
    assert (done.status, done.err) == (27, "ringmq: timed out after 0.3 s: not done\n")


@pytest.mark.parametrize("source", ["-l", "-s"])
def test_input_that_is_closed_is_told(reach: tuple[str, ...], source: str) -> None:
    """Its number is that of a socket or of an event loop then."""
    words = ("sh", "-c", 'exec "$@" <&-', "sh", *RINGMQ, "pub", *reach, "-t", "a", source)
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (1, "ringmq: standard input is closed\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_silence(
    commands: Commands, reach: tuple[str, ...], number: signal.Signals, status: int
) -> None:
    listening = commands.subscribed(*reach, "-t", "a", "-t", "gone")
    command = commands.start("pub", *reach, "-t", "a", "-l", "--will-topic", "gone")
    command.types(b"x\n")
    assert listening.prints() == [b"x"]
    done = command.ends(number)
    assert (done.status, done.err) == (status, "")
    # It has said good-bye, or its will would come first.
    assert commands.run("pub", *reach, "-t", "a", "-m", "last").status == 0
    assert listening.prints() == [b"last"]


def test_a_message_is_retained_and_cleared(commands: Commands, reach: tuple[str, ...]) -> None:
    assert commands.run("pub", *reach, "-t", "kept/a", "-m", "x", "-r", "-q", "1").status == 0
    assert commands.run("sub", *reach, "-t", "kept/#", "-v", "-C", "1").out == b"kept/a x\n"
    assert commands.run("pub", *reach, "-t", "kept/a", "-n", "-r", "-q", "1").status == 0
    assert commands.run("sub", *reach, "-t", "kept/#", "-v", "-W", "0.3").out == b""
