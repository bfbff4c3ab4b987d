"""`ringmq collect ingest` against real peers: killed, disconnected, refused, and with a full disk."""

from __future__ import annotations

import json
import random
import resource
import signal
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.collector.cli.ingest import read_credentials
from ringmq.collector.errors import SettingError
from ringmq.experiments.processes.ports import choose_ports
from ringmq.mqtt_front.access.passwords import SALT_BYTES, new_entry
from tests.collector.ingest_bench import BOOT, HOST, OTHER, PEER, TOPIC, Publisher, dead, landed, lines, names
from tests.mqtt_front.server.test_tls import Files

WITHIN_S = 60.0
KILLS = 10
BATCH = 20
MAX_IN_FLIGHT = 20
"""The most unacknowledged batches of a publisher."""
MAX_AHEAD = 400 * BATCH
"""The most unlanded records of a publisher: twice this number fits into a peer's queue for one client."""

Start = Callable[..., Any]
Eventually = Callable[..., Any]


class Site:
    """The peers of one ring, and an ingest."""

    def __init__(self, start: Start, folder: Path, eventually: Eventually) -> None:
        self.data = folder / "data"
        self._start = start
        self._eventually = eventually
        self._overlay: list[int] = []
        self.ports: list[int] = []
        self.peers: list[Any] = []
        self._settings = folder / "peer.toml"
        self._settings.write_text("[record]\nmqtt = false\n")  # only the tests publish records

    def peer(self, *more: str) -> int:
        """Add a peer; returns its MQTT port."""
        overlay, port = choose_ports(0, 2)
        join = ("--join", f"{HOST}:{self._overlay[0]}") if self._overlay else ()
        self._overlay.append(overlay)
        self.ports.append(port)
        self._run(overlay, *join, *("--mqtt", f"{HOST}:{port}"), *more)
        return port

    def _run(self, overlay: int, *more: str) -> None:
        where = ("--overlay", f"{HOST}:{overlay}", "--no-discovery", "--timing", "local", "--log-level", "error")
        self.peers.append(self._start("peer", "--config", str(self._settings), *where, *more))
        self.peers[-1].says("active")

    def start_again(self, index: int) -> None:
        self._run(self._overlay[index], "--mqtt", f"{HOST}:{self.ports[index]}")

    def ingest(self, *more: str) -> Any:
        """Start an ingest that listens to all peers."""
        peers = [option for port in self.ports for option in ("--peer", f"{HOST}:{port}")]
        return self._start("collect", "ingest", "--data", str(self.data), *peers, *more)

    def listening(self, *more: str) -> Any:
        """Start an ingest, and wait until it is subscribed at all peers."""
        ingest = self.ingest(*more)
        for port in self.ports:
            ingest.says(f"listening: {HOST}:{port}")
        return ingest

    @property
    def numbers(self) -> list[int]:
        folder = self.data / "landing"
        return [number for *_, number in names(landed(self.data))] if folder.exists() else []

    def lands(self, numbers: list[int]) -> None:
        """Wait until exactly these records are landed."""
        expected = sorted(numbers)
        self._eventually(lambda: len(self.numbers) >= len(expected), WITHIN_S)
        assert sorted(self.numbers) == expected


@pytest.fixture
def site(start: Start, tmp_path: Path, eventually: Eventually) -> Site:
    return Site(start, tmp_path, eventually)


def state(data: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "ingest.json").read_bytes())
    return found


def test_records_are_landed_until_a_signal(site: Site) -> None:
    port = site.peer()
    expected: list[int] = []
    for peer, number in ((PEER, signal.SIGTERM), (OTHER, signal.SIGINT)):
        ingest = site.listening()
        with Publisher(port, peer) as publisher:
            for _ in range(30):
                publisher.send(BATCH)
            site._eventually(lambda publisher=publisher: not publisher.in_flight)
            assert ingest.end(number) == 0
        assert ingest.says("ingested: ")
        # Messages that were not landed are queued at the peer.
        ingest = site.listening()
        expected += range(30 * BATCH)
        site.lands(expected)
        assert ingest.end() == 0


def test_kill_9_during_publications_loses_and_repeats_nothing(site: Site) -> None:
    chance = random.Random("kill -9")
    port = site.peer()
    ingest = site.listening()
    with Publisher(port) as first, Publisher(port, OTHER) as second:
        publishers = (first, second)

        def publish(until: Callable[[], bool]) -> None:
            deadline = time.monotonic() + WITHIN_S
            while not until():
                assert time.monotonic() < deadline
                known = {peer: end for peer, _, _, _, end, _ in state(site.data)["sources"]}
                for publisher in publishers:
                    ahead = publisher.sent - known.get(publisher.peer, 0)
                    if publisher.in_flight < MAX_IN_FLIGHT and ahead < MAX_AHEAD:
                        publisher.send(BATCH)
                time.sleep(0.001)

        for kill in range(KILLS):
            # Kill at any moment of landing: from the appearance of a file on.
            before = set((site.data / "spool").rglob("*")) | set((site.data / "landing").iterdir())
            publish(lambda before=before: set((site.data / "landing").iterdir()) - before)
            moment = time.monotonic() + chance.uniform(0, 0.3)
            publish(lambda moment=moment: time.monotonic() >= moment)
            assert ingest.end(signal.SIGKILL) == -signal.SIGKILL, kill
            ingest = site.ingest()
        publish(lambda: first.sent > 2000)
        site._eventually(lambda: not first.in_flight and not second.in_flight)
        sent = [(PEER, BOOT, number) for number in first.acknowledged]
        sent += [(OTHER, BOOT, number) for number in second.acknowledged]
    site._eventually(lambda: len(landed(site.data)) >= len(sent), WITHIN_S)
    assert sorted(names(landed(site.data))) == sorted(sent)
    assert ingest.end() == 0
    assert ingest.says("ingested: ").count(" 0 dead letters, 0 missing")
    assert [(peer, boot, end, holes) for peer, boot, _, _, end, holes in sorted(state(site.data)["sources"])] == [
        (PEER, BOOT, first.sent, []),
        (OTHER, BOOT, second.sent, []),
    ]


GARBAGE = {
    b"\x00\xff\xfe garbage": "malformed",
    lines([1])[:50]: "truncated",
    lines([1]).replace(b'"v":1', b'"v":2'): "$.v",
    lines([1]).replace(b'"hops":1,', b""): "`hops`",
    lines([1]).replace(b'"hops":1', b'"hops":-1'): "$.hops",
    lines([1], OTHER): "under the topic of another peer",
}


def test_six_kinds_of_garbage_become_dead_letters(site: Site) -> None:
    port = site.peer()
    ingest = site.listening()
    kinds = list(GARBAGE)
    with Publisher(port) as publisher:
        for number in range(100):
            publisher.send(1)
            publisher.send_raw(kinds[number % 6])
        # Garbage in the middle of a batch.
        publisher.send_raw(b"\n".join([lines([100]), *kinds, lines([101])]))
        site.lands(list(range(102)))
        site._eventually(lambda: len(dead(site.data)) == 106)
    for line, reason in GARBAGE.items():
        shown = line.decode("utf-8", "backslashreplace")
        found = [letter for letter in dead(site.data) if letter["line"] == shown]
        assert len(found) in (17, 18)
        assert all(reason in letter["reason"] and letter["topic"] == TOPIC for letter in found)
    assert ingest.end() == 0
    assert "102 records" in ingest.out
    assert "106 dead letters, 0 missing" in ingest.out


def test_loss_of_one_of_two_peers_loses_no_record(site: Site) -> None:
    first, second = site.peer(), site.peer()
    ingest = site.listening()
    with Publisher(second) as publisher:
        for _ in range(20):
            publisher.send(BATCH)
        site.lands(list(range(20 * BATCH)))
        site.peers[0].end(signal.SIGKILL)
        for _ in range(20):
            publisher.send(BATCH)
        site.lands(list(range(40 * BATCH)))
        site._eventually(lambda: f"peer {HOST}:{first} is away" in ingest.err)
    assert ingest.end() == 0
    assert ingest.err.count("is away") == 1
    assert f"ringmq: peer {HOST}:{first} is away, retrying: " in ingest.err
    assert "0 missing" in ingest.out


def test_returning_peer_is_subscribed_again(site: Site) -> None:
    port = site.peer()
    ingest = site.listening()
    site.peers[0].end(signal.SIGKILL)
    site._eventually(lambda: "is away" in ingest.err)
    site.start_again(0)
    site._eventually(lambda: f"ringmq: peer {HOST}:{port} is back\n" in ingest.err, WITHIN_S)
    with Publisher(port) as publisher:
        publisher.send(BATCH)
        site.lands(list(range(BATCH)))
    assert ingest.end() == 0
    assert ingest.err.count("is away") == ingest.err.count("is back") == 1


def test_two_addresses_of_one_peer_land_each_record_once(site: Site) -> None:
    port = site.peer()
    ingest = site.listening("--peer", f"localhost:{port}", "--until-idle", "1")
    with Publisher(port) as publisher:
        for _ in range(20):
            publisher.send(BATCH)
        assert ingest.popen.wait(WITHIN_S) == 0
    assert sorted(site.numbers) == list(range(20 * BATCH))
    assert f"{20 * BATCH} repeated" in ingest.says("ingested: ")


def sessions(site: Site, ringmq: Start) -> int:
    """The number of subscriptions at the peer, of connected clients and of kept sessions."""
    status = json.loads(ringmq("status", "--peer", f"{HOST}:{site._overlay[0]}", "--json").out)
    in_force: int = status["pubsub"]["subscribing"]["total"]
    return in_force


@pytest.mark.parametrize("end", ["time", "signal"])
def test_session_ends_after_time_and_stays_after_a_signal(site: Site, ringmq: Start, end: str) -> None:
    port = site.peer()
    ingest = site.listening("--for", "1.5" if end == "time" else "1000")
    with Publisher(port) as publisher:
        publisher.send(BATCH)
        assert sessions(site, ringmq) == 1
        status = ingest.popen.wait(WITHIN_S) if end == "time" else ingest.end()
    assert status == 0
    assert sessions(site, ringmq) == (end == "signal")
    if end == "time":
        assert sorted(site.numbers) == list(range(BATCH))


def test_full_disk_is_one_line_and_loses_nothing(site: Site) -> None:
    port = site.peer()
    ingest = site.listening()
    with Publisher(port) as publisher:
        publisher.send(BATCH)
        site.lands(list(range(BATCH)))
        resource.prlimit(ingest.pid, resource.RLIMIT_FSIZE, (5000, 5000))
        for _ in range(10):
            publisher.send(BATCH)
        assert ingest.popen.wait(WITHIN_S) == 1
        name = f"{state(site.data)['id']}-000000000002.jsonl"
        file = site.data / "spool" / "landing" / name
        assert ingest.err == f"ringmq: data: cannot write {file}: File too large\n"
        assert sorted(site.numbers) == list(range(BATCH))
        ingest = site.listening()
        site.lands(list(range(11 * BATCH)))
    assert ingest.end() == 0


def test_unusable_folder_is_one_line(ringmq: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ringmq("collect", "ingest", "--data", str(tmp_path / "file" / "data"))
    assert (done.popen.returncode, done.err) == (1, f"ringmq: data: cannot create {tmp_path}/file: File exists\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "landing").touch()
    done = ringmq("collect", "ingest", "--data", str(tmp_path / "data"))
    assert done.popen.returncode == 1
    assert done.err == f"ringmq: data: cannot create {tmp_path}/data/landing: File exists\n"


def test_damaged_state_is_one_line(ringmq: Start, tmp_path: Path) -> None:
    (tmp_path / "ingest.json").write_bytes(b"garbage")
    done = ringmq("collect", "ingest", "--data", str(tmp_path))
    assert done.popen.returncode == 1
    assert done.err.startswith(f"ringmq: data: {tmp_path}/ingest.json is damaged (")
    assert done.err.count("\n") == 1
    assert (tmp_path / "ingest.json").read_bytes() == b"garbage"


def test_second_ingest_of_a_folder_is_refused(site: Site, ringmq: Start) -> None:
    site.peer()
    ingest = site.listening()
    second = ringmq("collect", "ingest", "--data", str(site.data))
    assert second.popen.returncode == 1
    assert second.err == f"ringmq: data: {site.data} is in use by another ingest: each needs its own\n"
    assert ingest.end() == 0


def test_unreachable_peer_is_reported(ringmq: Start, tmp_path: Path, closed_port: int) -> None:
    done = ringmq("collect", "ingest", "--data", str(tmp_path), "--peer", f"{HOST}:{closed_port}", "--for", "0.5")
    assert done.popen.returncode == 1
    assert done.err.splitlines() == [
        f"ringmq: peer {HOST}:{closed_port} is away, retrying: Connection refused",
        "ringmq: cannot listen to any peer",
    ]


def test_user_password_and_tls_are_used(site: Site, tmp_path: Path) -> None:
    files = Files(tmp_path)
    passwords, secret, wrong = tmp_path / "passwords", tmp_path / "secret", tmp_path / "wrong"
    secret.write_text("open sesame\r\nnot this\n")
    wrong.write_text("open barley")
    passwords.write_text(_entry("collector", b"open sesame"))
    port = choose_ports(0, 1)[0]
    certificate, key = files.issue("here", HOST)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key), "--mqtt-tls", f"{HOST}:{port}")
    site.peer("--passwords", str(passwords), "--no-anonymous", *tls)
    site.ports[0] = port
    for options in (("--user", "collector", "--password-file", str(wrong)), ()):
        refused = site.ingest(*options, "--tls-ca", str(files.ca))
        assert refused.popen.wait(WITHIN_S) == 1
        assert refused.err.startswith(f"ringmq: peer {HOST}:{port} refused the connection: ")
    (tmp_path / "other").mkdir()
    other_ca = Files(tmp_path / "other").ca
    stranger = site.ingest("--user", "collector", "--password-file", str(secret), "--tls-ca", str(other_ca))
    site._eventually(lambda: "certificate verify failed" in stranger.err)
    assert stranger.end() == 1
    ingest = site.listening("--user", "collector", "--password-file", str(secret), "--tls-ca", str(files.ca))
    assert ingest.end() == 0


def _entry(user: str, password: bytes) -> str:
    return f"{new_entry(user, password, bytes(SALT_BYTES)).line}\n"


def test_credentials_are_read_from_files(tmp_path: Path) -> None:
    assert read_credentials(None, None, None).user is None
    secret = tmp_path / "secret"
    secret.write_bytes("pässword \nmore\n".encode())
    ca = Files(tmp_path).ca
    found = read_credentials("jo", secret, ca)
    assert (found.user, found.password) == ("jo", "pässword ")
    assert isinstance(found.tls, ssl.SSLContext)
    assert found.tls.check_hostname


@pytest.mark.parametrize(
    ("user", "content", "ca", "text"),
    [
        ("jo", None, None, "--user and --password-file must be given together"),
        (None, b"secret", None, "--user and --password-file must be given together"),
        ("jo", b"", None, "--password-file: the first line of {} is empty, expected a password"),
        ("jo", b"\nsecret", None, "--password-file: the first line of {} is empty, expected a password"),
        ("jo", b"\xff\n", None, "--password-file: {} is not UTF-8 text"),
        (None, None, b"nonsense", "--tls-ca: {} contains no PEM certificates"),
    ],
)
def test_wrong_credential_files_raise_one_line(
    tmp_path: Path, user: str | None, content: bytes | None, ca: bytes | None, text: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content or ca or b"")
    with pytest.raises(SettingError) as caught:
        read_credentials(user, None if content is None else file, None if ca is None else file)
    assert str(caught.value) == text.format(file)


def test_missing_credential_files_raise_one_line(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(SettingError, match=f"^--password-file: cannot read {missing}: No such file or directory$"):
        read_credentials("jo", missing, None)
    with pytest.raises(SettingError, match=f"^--tls-ca: cannot read {missing}: No such file or directory$"):
        read_credentials(None, None, missing)


def test_wrong_options_are_one_line(ringmq: Start, tmp_path: Path) -> None:
    done = ringmq("collect", "ingest", "--data", str(tmp_path), "--peer", "nowhere")
    assert (done.popen.returncode, done.err) == (
        2,
        "ringmq: --peer must be HOST:PORT, such as 127.0.0.1:1883, got 'nowhere'\n",
    )
    done = ringmq("collect", "ingest")
    assert done.popen.returncode == 2
    assert done.err.startswith("ringmq: Missing option '--data'")
