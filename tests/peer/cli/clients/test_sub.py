"""`ringmq sub` from outside: which messages it prints, how it ends, and that it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.processes.ports import choose_ports
from tests.conftest import wait_until
from tests.peer.cli.clients.commands import RINGMQ, WITHIN_S, Command, Commands, EveryListener


@pytest.fixture
def reach(peer: EveryListener) -> tuple[str, ...]:
    return peer.reach("mqtt")


@pytest.fixture
def publish(commands: Commands, reach: tuple[str, ...]) -> Callable[..., None]:
    def publisher(topic: str, *payloads: str, options: tuple[str, ...] = ()) -> None:
        typed = "".join(f"{payload}\n" for payload in payloads).encode()
        done = commands.run("pub", *reach, "-t", topic, "-l", "-q", "1", *options, typed=typed)
        assert (done.status, done.err) == (0, ""), done

    return publisher


Publish = Callable[..., None]


def test_messages_are_printed_with_their_topics(commands: Commands, reach: tuple[str, ...], publish: Publish) -> None:
    command = commands.subscribed(*reach, "-t", "a/+", "-t", "b/#", "-v", "-C", "3", "-q", "1")
    publish("a/1", "x")
    publish("c", "nobody wants it")
    publish("b/2/3", "y", "z")
    assert command.ends().out == b"a/1 x\nb/2/3 y\nb/2/3 z\n"


def test_messages_are_printed_as_json_and_by_a_format(
    commands: Commands, reach: tuple[str, ...], publish: Publish
) -> None:
    lines = commands.subscribed(*reach, "-t", "a", "--json", "-C", "1")
    form = commands.subscribed(*reach, "-t", "a", "-F", "%t=%x\\t%q", "-C", "1")
    publish("a", "x")
    found = json.loads(lines.ends().out)
    assert (found["topic"], found["payload"], found["qos"], found["retain"]) == ("a", "x", 0, 0)
    assert form.ends().out == b"a=78\t0\n"


def test_a_message_is_printed_when_it_comes(commands: Commands, reach: tuple[str, ...], publish: Publish) -> None:
    command = commands.subscribed(*reach, "-t", "a")
    publish("a", "first")
    assert command.prints() == [b"first"]
    publish("a", "second")
    assert command.prints() == [b"second"]


def test_retained_and_unwanted_messages_are_left_out(
    commands: Commands, reach: tuple[str, ...], publish: Publish
) -> None:
    publish("r/a", "retained", options=("-r",))
    publish("r/b", "retained", options=("-r",))
    fresh = commands.subscribed(*reach, "-t", "r/#", "-R", "-C", "1", "-v")
    some = commands.run("sub", *reach, "-t", "r/#", "-T", "+/a", "-C", "1", "-v")
    only = commands.subscribed(*reach, "-t", "r/#", "--retained-only", "-v")
    none = commands.subscribed(*reach, "-t", "r/#", "--retain-handling", "never", "-C", "1", "-v")
    publish("r/c", "fresh")
    assert some.out == b"r/b retained\n"
    assert fresh.ends().out == none.ends().out == b"r/c fresh\n"
    done = only.ends()
    assert (done.status, sorted(done.out.splitlines())) == (0, [b"r/a retained", b"r/b retained"])
    for topic in ("r/a", "r/b"):
        assert commands.run("pub", *reach, "-t", topic, "-n", "-r").status == 0


def test_members_of_a_shared_group_share_the_messages(
    commands: Commands, reach: tuple[str, ...], publish: Publish
) -> None:
    members = [commands.subscribed(*reach, "-t", "$share/group/s/#", "-q", "1") for _ in range(2)]
    publish("s/1", *(str(number) for number in range(20)))
    publish("s/end", *("end" for _ in range(20)))
    found: list[bytes] = []
    while len(found) < 40:
        for member in members:
            os.set_blocking(member.popen.stdout.fileno(), False)  # type: ignore[union-attr]
            found += (member.popen.stdout.read() or b"").splitlines()  # type: ignore[union-attr]
    assert sorted(found) == sorted([b"%d" % number for number in range(20)] + [b"end"] * 20)


def test_the_time_ends_it_with_status_27(commands: Commands, reach: tuple[str, ...]) -> None:
    done = commands.run("sub", *reach, "-t", "a", "-W", "0.2")
    assert (done.status, done.out, done.err) == (27, b"", "ringmq: timed out after 0.2 s\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_silence_and_without_its_will(
    commands: Commands, reach: tuple[str, ...], publish: Publish, number: signal.Signals
) -> None:
    witness = commands.subscribed(*reach, "-t", "gone")
    command = commands.start("sub", *reach, "-t", "a", "-q", "1", "--will-topic", "gone", "--will-payload", "lost")
    vanishing = commands.subscribed(*reach, "-t", "a", "--will-topic", "gone", "--will-payload", "vanished")
    publish("a", *("x" for _ in range(2)))
    wait_until(lambda: publish("a", "x") or _readable(command), WITHIN_S, "it has subscribed")
    done = command.ends(number)
    assert (done.status, done.err) == (0, "")
    vanishing.ends(signal.SIGKILL)
    assert witness.prints() == [b"vanished"]


def _readable(command: Command) -> bool:
    assert command.popen.stdout is not None
    os.set_blocking(command.popen.stdout.fileno(), False)
    found = command.popen.stdout.read()
    os.set_blocking(command.popen.stdout.fileno(), True)
    return bool(found)


def test_it_ends_in_silence_when_its_reader_goes(commands: Commands, reach: tuple[str, ...], publish: Publish) -> None:
    """As before `| head -1`: it does not wait for a message that it cannot write."""
    command = commands.subscribed(*reach, "-t", "a")
    publish("a", "x")
    assert command.prints() == [b"x"]
    before = command.err
    assert command.popen.stdout is not None
    command.popen.stdout.close()
    assert command.popen.wait(WITHIN_S) == 0
    assert command.err == before


def test_output_that_cannot_be_written_is_one_line(
    commands: Commands, reach: tuple[str, ...], publish: Publish
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        command = commands.subscribed(*reach, "-t", "a", stdout=full)
    finally:
        os.close(full)
    publish("a", "x")
    done = command.ends()
    assert done.status == 1
    assert done.err.endswith("ringmq: cannot write standard output: No space left on device\n")


def test_output_that_is_closed_is_told(reach: tuple[str, ...]) -> None:
    """Its number is that of a socket or of an event loop then."""
    words = ("sh", "-c", 'exec "$@" >&-', "sh", *RINGMQ, "sub", *reach, "-t", "a")
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (1, "ringmq: standard output is closed\n")


def test_a_slow_reader_gets_everything(commands: Commands, reach: tuple[str, ...], publish: Publish) -> None:
    """The pipe holds 64 KiB, and the command 1 MiB more: the rest waits at the peer."""
    lines = [f"{number} {'x' * 8000}" for number in range(900)]
    command = commands.subscribed(*reach, "-t", "a", "-q", "1", "-C", str(len(lines)), "-k", "1")
    publish("a", *lines)
    assert command.popen.poll() is None
    done = command.ends()
    assert done.status == 0
    assert done.out.decode().splitlines() == lines
    assert "lost" not in done.err


def test_filters_that_the_server_refuses_are_told(commands: Commands, reach: tuple[str, ...], publish: Publish) -> None:
    done = commands.run("sub", *reach, "-t", "closed/a")
    refused = "ringmq: closed/a: the server refused this filter: not authorized\n"
    assert (done.status, done.err) == (1, f"{refused}ringmq: the server refused all filters\n")
    some = commands.start("sub", *reach, "-t", "closed/a", "-t", "a", "-C", "1", "-d")
    some.says("subscribed to a ")
    publish("a", "x")
    done = some.ends()
    assert (done.status, done.out) == (0, b"x\n")
    assert refused in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "sub needs a topic filter: -t FILTER, such as -t '#' for all topics"),
        (("-t", "a/#/b"), "-t: topic filter 'a/#/b' has a '#' that is not its last level"),
        (("-t", "\udcff"), "-t: topic filter '\\udcff' is not UTF-8"),
        (("-t", "a", "-T", "b/c+"), "-T: topic filter 'b/c+' has a wildcard that is not a whole level"),
        (("-t", "a", "-R", "--retained-only"), "-R and --retained-only exclude each other"),
        (("-t", "a", "--json", "-F", "%t"), "--json and -F exclude each other"),
        (("-t", "a", "-F", "%y"), "-F: a format has % and one of"),
        (("-t", "a", "-V", "3.1", "--no-local"), "--no-local needs MQTT 5 (-V 5)"),
        (("-t", "a", "-C", "0"), "Invalid value for '-C' / '--count': 0 is not in the range x>=1."),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(commands: Commands, arguments: tuple[str, ...], says: str) -> None:
    done = commands.run("sub", *arguments)
    assert (done.status, done.out) == (2, b"")
    assert done.err.startswith(f"ringmq: {says}")
    assert done.err.count("\n") == 1


def test_a_session_keeps_messages_that_were_not_printed(
    commands: Commands, reach: tuple[str, ...], publish: Publish
) -> None:
    session = (*reach, "-c", "-i", "keeper", "-t", "s/a", "-q", "1", "-x", "60")
    assert commands.run("sub", *session, "-E").status == 0
    publish("s/a", "first", "second")
    assert commands.run("sub", *session, "-C", "1").out == b"first\n"
    assert commands.run("sub", *session, "-C", "1").out == b"second\n"
    assert commands.run("sub", *reach, "-c", "-i", "keeper", "-x", "60", "-U", "s/a").status == 0
    publish("s/a", "third")
    assert commands.run("sub", *reach, "-c", "-i", "keeper", "-x", "0", "-t", "none", "-W", "0.3").out == b""


def test_a_client_with_the_same_id_ends_it(commands: Commands, reach: tuple[str, ...]) -> None:
    first = commands.subscribed(*reach, "-t", "a", "-i", "same")
    commands.subscribed(*reach, "-t", "a", "-i", "same")
    done = first.ends()
    assert done.status == 1
    assert ": the server ended the connection: session taken over (another client " in done.err


def test_it_is_back_when_a_killed_peer_is_back(commands: Commands, start: Callable[..., Any], tmp_path: Path) -> None:
    overlay = ("--overlay", "127.0.0.1:0", "--no-discovery", "--data", str(tmp_path / "data"))
    port = choose_ports(0, 1)[0]
    first = start("peer", *overlay, "--mqtt", f"127.0.0.1:{port}")
    wait_until(lambda: "serving MQTT" in first.err, WITHIN_S)
    reach = ("-p", str(port))
    session = ("-c", "-x", "60", "-i", "stays", "-q", "2")
    listening = commands.subscribed(*reach, *session, "-t", "a")
    writing = commands.start("pub", *reach, "-t", "a", "-l", "-q", "2", "-d")
    writing.types(b"before\n")
    writing.says("acknowledged: success")
    assert listening.prints() == [b"before"]
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    for command in (listening, writing):
        command.says(f"127.0.0.1:{port}: the connection was lost; connecting again in 0.")
    writing.types(b"between\n")
    second = start("peer", *overlay, "--mqtt", f"127.0.0.1:{port}")
    assert listening.prints() == [b"between"]
    listening.says(f"127.0.0.1:{port}: connected again, the session was kept")
    writing.says(f"127.0.0.1:{port}: connected again, in a new session")
    assert writing.popen.stdin is not None
    writing.popen.stdin.close()
    assert writing.ends().status == 0
    assert listening.ends(signal.SIGINT).status == 0
    assert second.end() == 0


def test_without_reconnecting_a_killed_peer_is_the_end(commands: Commands, start: Callable[..., Any]) -> None:
    port = choose_ports(0, 1)[0]
    peer = start("peer", "--overlay", "127.0.0.1:0", "--no-discovery", "--mqtt", f"127.0.0.1:{port}")
    wait_until(lambda: "serving MQTT" in peer.err, WITHIN_S)
    command = commands.subscribed("-p", str(port), "-t", "a", "--no-reconnect")
    peer.end(signal.SIGKILL)
    done = command.ends()
    assert done.status == 1
    assert done.err.endswith(f"ringmq: 127.0.0.1:{port}: the connection was lost\n")


def test_a_terminal_gets_no_characters_that_steer_it(
    commands: Commands, reach: tuple[str, ...], publish: Publish
) -> None:
    above, below = os.openpty()
    try:
        commands.subscribed(*reach, "-t", "a", stdout=below)
        publish("a", "\x1b[31mred")
        found = b""
        while b"red" not in found:
            found += os.read(above, 1000)
        assert found == "\N{REPLACEMENT CHARACTER}[31mred\r\n".encode()
    finally:
        os.close(above)
        os.close(below)


def test_subscribers_and_publishers_start_without_the_peer() -> None:
    """Their modules only: the first message must not wait for a database, or for a ring that they do not run."""
    code = """if True:
        import sys
        from ringmq.peer.cli import main as command
        try:
            command.main([sys.argv[1], "-t", "a", *sys.argv[2:], "-p", "1", "--quiet"])
        finally:
            names = {".".join(name.split(".")[:2]) for name in sys.modules}
            print("loaded:", sorted(name for name in names if name.startswith("ringmq.")))
            heavy = {"ctypes", "importlib.metadata", "kademlia", "sqlite3", "structlog", "uvloop", "urllib.request"}
            print("heavy:", sorted(heavy & names))
    """
    for words in (("pub", "-m", "x"), ("sub",)):
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *words],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        loaded, heavy = done.stdout.splitlines()
        assert loaded == "loaded: ['ringmq.mqtt_front', 'ringmq.overlay', 'ringmq.peer']", done.stderr
        assert heavy == "heavy: []"
