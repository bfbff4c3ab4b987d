"""`ringmq collect all` beside a real peer with clients: the totals of its tables equal the counts of the clients."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from ringmq.collector.data_lock import lock_folder
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report.plots import PLOTS
from ringmq.collector.report.read_tables import read_local
from ringmq.experiments.processes.ports import choose_ports
from tests.collector.conftest import QUICK
from tests.conftest import Eventually, Process, Usage

Start = Callable[..., Process]
MESSAGES = 200
SPARK_S = 300
"""A deadline for the Spark jobs: 20 s on an idle machine, above 100 s beside other work."""
SETTINGS = '[record]\nrun = "trial"\ninterval_s = 0.2\nevery = 1\n'


@pytest.fixture
def port(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The MQTT port of a peer that records every message."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)
    overlay, mqtt = choose_ports(0, 2)
    (tmp_path / "peer.toml").write_text(SETTINGS)
    options = ("--config", f"{tmp_path}/peer.toml", "--no-discovery", "--timing", "local")
    start("peer", "--overlay", f"127.0.0.1:{overlay}", "--mqtt", f"127.0.0.1:{mqtt}", *options).says("active")
    return mqtt


def client(port: int, **more: Any) -> Client:
    made = Client(CallbackAPIVersion.VERSION2)
    for name, value in more.items():
        setattr(made, name, value)
    made.connect("127.0.0.1", port)
    made.loop_start()
    return made


def send_messages(port: int, eventually: Eventually) -> None:
    """Send messages from one client to another; returns when all have arrived."""
    received: list[bytes] = []
    subscribed: list[object] = []
    subscriber = client(
        port,
        on_message=lambda _, __, message: received.append(message.payload),
        on_subscribe=lambda *_: subscribed.append(1),
    )
    subscriber.subscribe("hall/+", qos=1)
    eventually(lambda: subscribed)
    publisher = client(port)
    for number in range(MESSAGES):
        publisher.publish(f"hall/{number % 3}", b"x" * 100, qos=1)
    eventually(lambda: len(received) == MESSAGES)
    for mqtt_client in (subscriber, publisher):
        mqtt_client.disconnect()
        mqtt_client.loop_stop()


@pytest.mark.timeout(SPARK_S + 60)
def test_totals_equal_the_counts_of_clients(port: int, start: Start, tmp_path: Path, eventually: Eventually) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    where = ("--peer", f"127.0.0.1:{port}", "--data", str(data), "--out", str(out))
    process = start("collect", "all", "--for", "10", *where)
    # Messages before the first recorded sample would be in the totals alone.
    eventually(lambda: sum(b"sample" in file.read_bytes() for file in data.glob("landing/*.jsonl")), 30, "a sample")
    send_messages(port, eventually)
    assert process.popen.wait(SPARK_S) == 0, process.err
    tables = read_local(data, HEADS)
    peer, total, average = tables["per_peer"]
    for row in (peer, total, average):
        assert (row["tot_msg"], row["published"], row["measured"]) == (MESSAGES, MESSAGES, MESSAGES)
    assert (peer["port"], peer["dispatching"]) == (str(port), "direct")
    assert tables["rates"][-1]["delivered"] == MESSAGES
    assert tables["stress"][0]["messages"] == MESSAGES
    assert [row["count"] for row in tables["latencies"] if row["by"] == "topic"] == [67, 67, 66]
    assert tables["runs"][0]["missing"] == 0
    assert tables["dead"] == []
    assert "Peers (run trial)" in process.out
    assert {file.name for file in out.iterdir()} == {f"{name}.csv" for name in HEADS} | {
        f"{name}.png" for name in PLOTS
    }


def test_signal_ends_the_child(
    port: int, start: Start, tmp_path: Path, eventually: Eventually, usage: type[Usage]
) -> None:
    process = start("collect", "all", "--peer", f"127.0.0.1:{port}", "--data", str(tmp_path / "data"))
    eventually(lambda: "listening:" in process.err, 30, process.err)
    (child,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    assert process.end(signal.SIGINT, within_s=30) == 130
    assert not usage(child).runs


def test_errors_are_reported_before_the_ingest(ringmq: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = ringmq("collect", "all", "--data", "hdfs://host/data")
    assert process.popen.returncode == 2
    assert (
        process.err
        == "ringmq: --data must be a folder of this machine, since ingest writes there, got hdfs://host/data\n"
    )
    with lock_folder(tmp_path, "reduce"):
        process = ringmq("collect", "all", "--for", "1000", "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert process.err == f"ringmq: data: {tmp_path} is in use by another reduce: each needs its own\n"
    process = ringmq("collect", "all", "--for", "0.2", "--peer", "nowhere", "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert process.err == (
        "ringmq: --peer must be HOST:PORT, such as 127.0.0.1:1883, got 'nowhere'\nringmq: the ingest has failed\n"
    )
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    process = ringmq("collect", "all", "--for", "1000", "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert "Spark needs Java 17 or newer" in process.err
