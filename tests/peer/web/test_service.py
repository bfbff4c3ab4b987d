"""HTTP of a real peer, from outside."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until
from tests.peer.cli.ring.mqtt_clients import PlainClient
from tests.peer.rings import Ring, Start

READ, WRITE = "r" * 20, "w" * 20


def address_in(process: Any, text: str, key: str = "address=") -> str:
    """The address in the log line with this text."""

    def found() -> str:
        line = next((line for line in process.err.splitlines() if text in line), "")
        return next((word[len(key) :] for word in line.split() if word.startswith(key)), "")

    return wait_until(found, 15.0, text)


def called(address: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    try:
        encoded = None if body is None else json.dumps(body)
        given = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(
            method, path, encoded, given | {key.replace("_", "-"): value for key, value in headers.items()}
        )
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, json.loads(text) if response.getheader("Content-Type") == "application/json" else text
    finally:
        connection.close()


@pytest.fixture
def ring(start: Start, ringmq: Start, eventually: Callable[..., Any]) -> Ring:
    made = Ring(start, ringmq, eventually, 3, "--http", "127.0.0.1:0")
    eventually(lambda: all(len(told["leaves"]["clockwise"]) == 2 for told in made.statuses()), 15.0)
    return made


def test_the_ring_over_http(ring: Ring) -> None:
    address = address_in(ring.processes[1], "serving HTTP")
    assert called(address, "GET", "/healthz") == (200, "ok\n")
    assert called(address, "GET", "/readyz") == (200, "ready\n")
    status, text = called(address, "GET", "/metrics")
    assert status == 200
    assert "\nringmq_clients 0\n" in text
    status, peers = called(address, "GET", "/api/v1/peers")
    assert (status, {row["peer"] for row in peers["rows"]}) == (200, set(ring.ids))
    assert {row["http"] for row in peers["rows"]} == {address_in(process, "serving HTTP") for process in ring.processes}
    client = PlainClient(ring.mqtt[0], "sensor")
    client.retain("hall/7", b"open")
    status, clients = called(address, "GET", "/api/v1/clients?client=sensor")
    assert [(row["client"], row["peer"]) for row in clients["rows"]] == [("sensor", ring.ids[0])]
    status, cleared = called(address, "POST", "/api/v1/clear", {"filter": "hall/#"})
    assert [row["done"] for row in cleared["rows"]] == ["cleared"]
    status, kicked = called(address, "POST", "/api/v1/kick", {"client": "sensor"})
    assert [row["done"] for row in kicked["rows"]] == ["disconnected"]
    while client.read() is not None:
        pass
    status, text = called(address, "GET", "/api/v1/peers", Origin="http://evil.example")
    assert (status, text) == (403, "calls of pages of http://evil.example are refused\n")
    # One line, however often it happens.
    called(address, "GET", "/api/v1/peers", Origin="http://evil.example")
    assert ring.processes[1].err.count("calls of pages of http://evil.example are refused") == 1


def test_tokens_of_a_file_are_read_again(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"read {READ}\n")
    peer = start(
        "peer", "--overlay", "127.0.0.1:0", "--no-discovery", "--http", "0.0.0.0:0", "--http-tokens", str(file)
    )
    peer.says("active: ")
    port = address_in(peer, "serving HTTP").rpartition(":")[2]
    address = f"127.0.0.1:{port}"
    bearer = {"Authorization": f"Bearer {WRITE}"}
    assert called(address, "GET", "/readyz")[0] == 200
    assert called(address, "GET", "/api/v1/peers")[0] == 401
    assert called(address, "GET", "/api/v1/peers", Authorization=f"Bearer {READ}")[0] == 200
    assert called(address, "POST", "/api/v1/kick", {"client": "a"}, **bearer)[0] == 401
    file.write_text(f"write {WRITE}\n")
    os.kill(peer.pid, signal.SIGHUP)
    wait_until(lambda: called(address, "POST", "/api/v1/kick", {"client": "a"}, **bearer)[0] == 200)
    assert called(address, "GET", "/api/v1/peers", Authorization=f"Bearer {READ}")[0] == 401
    file.write_text("nonsense\n")
    os.kill(peer.pid, signal.SIGHUP)
    wait_until(lambda: "keeping the old tokens" in peer.err)
    assert called(address, "GET", "/api/v1/peers", **bearer)[0] == 200


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (
            ["--http", "0.0.0.0:0"],
            "http_tokens: missing, but http 0.0.0.0:0 is not on loopback: name the file of tokens",
        ),
        (["--http-tokens", "x"], "http_tokens: x has no effect without http"),
        (["--http", "nowhere"], "--http must be HOST:PORT, such as 127.0.0.1:8880, got 'nowhere'"),
        (["--http", "127.0.0.1:0", "--http-tokens", "missing"], "cannot read missing: No such file or directory"),
    ],
)
def test_wrong_settings_are_one_line(ringmq: Start, options: list[str], fault: str) -> None:
    done = ringmq("peer", "--overlay", "127.0.0.1:0", "--no-discovery", *options)
    assert done.popen.returncode in (1, 2)
    assert done.err.splitlines()[-1] == f"ringmq: {fault}"
    assert "active" not in done.out


def test_a_port_in_use_is_one_line(ringmq: Start) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        done = ringmq("peer", "--overlay", "127.0.0.1:0", "--no-discovery", "--http", address)
    assert done.popen.returncode == 1
    assert done.err.splitlines()[-1] == f"ringmq: cannot serve HTTP on {address}: Address already in use"


def test_a_ring_with_identity_is_asked_too(start: Start, ringmq: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    line = ("--overlay", "127.0.0.1:0", "--no-discovery", "--identity", "required", "--data", str(data))
    peer = start("peer", *line, "--mqtt", "127.0.0.1:0", "--http", "127.0.0.1:0")
    peer.says("active: ")
    address = address_in(peer, "serving HTTP")
    wait_until(lambda: called(address, "GET", "/readyz")[0] == 200)
    status, peers = called(address, "GET", "/api/v1/peers")
    assert (status, [row["state"] for row in peers["rows"]]) == (200, ["active"])
    # The peer asks itself and others by its certificate.
    status, topic = called(address, "GET", "/api/v1/topic?topic=hall%2F7")
    assert (status, topic["topic"]) == (200, "hall/7")
    assert {partition["coordinator"]["id"] for partition in topic["partitions"]} == {peers["rows"][0]["peer"]}
    assert json.loads(ringmq("peers", "--data", str(data), "--json").out)["well"]
    stranger = ringmq("peers", "--via", peers["rows"][0]["address"])
    assert stranger.popen.returncode == 1
    assert stranger.out == ""
