"""A data folder is copied and started beside the original: the original keeps everything, and the copy ends."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringmq.experiments.processes.ports import choose_ports
from tests.peer.rings import LATEST_S, Client

Start = Callable[..., Any]
Eventually = Callable[..., Any]

MESSAGES = 200
LINE = ("--timing", "local", "--no-discovery", "--mqtt", "127.0.0.1:0")


class Site:
    """Three peers: `original` has a data folder, and clients publish at `third`."""

    def __init__(self, start: Start, tmp_path: Path) -> None:
        self._start = start
        self.data, self.copied = tmp_path / "data", tmp_path / "copied"
        ports = choose_ports(0, 2)
        self.at, self.copy_at = (f"127.0.0.1:{port}" for port in ports)
        self.third = start("peer", *LINE, "--overlay", "127.0.0.1:0")
        self.seed = self.third.says("active: ").rpartition(" ")[2]
        self.original = self.start_original()
        self.other = start("peer", *LINE, "--overlay", "127.0.0.1:0", "--join", self.seed)
        self.other.says("active: ")

    def start_original(self) -> Any:
        process = self._start("peer", *LINE, "--overlay", self.at, "--join", self.seed, "--data", str(self.data))
        process.says("active: ")
        return process

    def start_copy(self) -> Any:
        line = (*LINE, "--overlay", self.copy_at, "--join", self.seed, "--data", str(self.copied))
        return self._start("peer", *line)


def said(process: Any) -> str:
    return str(process.out + process.err)


def mqtt_of(process: Any, eventually: Eventually) -> str:
    def found() -> str:
        lines = [line for line in said(process).splitlines() if "serving MQTT" in line]
        return lines[-1].split("address=")[1].split()[0] if lines else ""

    return str(eventually(found, LATEST_S))


def assert_refused(copy: Any, site: Site) -> None:
    assert copy.popen.wait(LATEST_S) == 1
    last = copy.err.strip().splitlines()[-1]
    assert last.startswith("ringmq: ")
    assert f"is this a copy of {site.at}'s data folder?" in last
    assert "active: " not in copy.out


def test_a_copy_is_refused_and_the_original_loses_nothing(start: Start, tmp_path: Path, eventually: Eventually) -> None:
    site = Site(start, tmp_path)
    subscriber = Client(mqtt_of(site.original, eventually), "subscriber", "t/#")
    publisher = Client(mqtt_of(site.third, eventually), "publisher")
    shutil.copytree(site.data, site.copied, ignore=shutil.ignore_patterns("lock", "*.sock"))
    copy = site.start_copy()
    sent = 0
    while copy.popen.poll() is None or sent < MESSAGES:
        publisher.publish("t/x", b"%d" % sent, qos=1)
        sent += 1
        eventually(lambda: publisher.read() is not None and publisher.acknowledged >= sent, LATEST_S)  # noqa: B023
    assert_refused(copy, site)
    eventually(lambda: len(subscriber.read()) >= sent, LATEST_S)
    assert [body for _, body in subscriber.came] == [b"%d" % number for number in range(sent)]
    # Both are named in the logs of both, and where the refusal was decided.
    assert site.copy_at in copy.err
    for process in (site.original, site.third):
        assert any(site.at in line and site.copy_at in line for line in said(process).splitlines())
    # The copy is started again.
    assert_refused(site.start_copy(), site)
    # The original is, and the copy before it has come back.
    site.original.end(signal.SIGKILL)
    copy = site.start_copy()
    eventually(lambda: "waits for the peer that had this id" in said(copy), LATEST_S)
    site.original = site.start_original()
    assert_refused(copy, site)
    again = Client(mqtt_of(site.original, eventually), "again", "t/#")
    publisher.publish("t/x", b"after", qos=1)
    eventually(lambda: ("t/x", b"after") in again.read(), LATEST_S)


def test_a_copy_takes_over_when_the_original_is_gone(start: Start, tmp_path: Path, eventually: Eventually) -> None:
    """As when a disk is moved to a new machine, after a crash that nobody else was told of."""
    site = Site(start, tmp_path)
    shutil.copytree(site.data, site.copied, ignore=shutil.ignore_patterns("lock", "*.sock"))
    site.original.end(signal.SIGKILL)
    moved = site.start_copy()
    moved.says("active: ", LATEST_S)
