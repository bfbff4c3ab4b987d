"""Ports that many peers can listen on."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click
import pytest

import ringmq.experiments.processes.ports as ports_module
from ringmq.experiments.processes.ports import choose_ports, is_free


@contextmanager
def taken(kind: socket.SocketKind, port: int) -> Iterator[None]:
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind(("127.0.0.1", port))
        if kind is socket.SOCK_STREAM:
            holder.listen()
        yield


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_taken_port_is_not_free(kind: socket.SocketKind) -> None:
    for _ in range(20):
        port = choose_ports(0, 1)[0]
        # Another process may take it meanwhile.
        with suppress(OSError):
            with taken(kind, port):
                assert not is_free(port)
            if is_free(port):
                return
    pytest.fail("no port was free again")


def test_port_with_a_connection_in_time_wait_is_free() -> None:
    port = choose_ports(0, 1)[0]
    with socket.create_server(("127.0.0.1", port)) as server, socket.create_connection(("127.0.0.1", port)) as client:
        accepted, _ = server.accept()
        accepted.close()  # the end that closes first is the one left in TIME_WAIT
        assert client.recv(1) == b""
    assert is_free(port)


def test_chosen_free_ports_are_consecutive() -> None:
    ports = choose_ports(0, 20)
    assert len(ports) == 20
    assert all(map(is_free, ports))
    assert choose_ports(ports[0], 20) == ports


def test_error_names_a_single_taken_port() -> None:
    ports = choose_ports(0, 5)
    with taken(socket.SOCK_STREAM, ports[3]), pytest.raises(click.ClickException) as caught:
        choose_ports(ports[0], 5)
    assert caught.value.message == f"port {ports[3]} of {ports[0]}-{ports[4]} in use: try --overlay-port 0"


def test_error_names_the_option() -> None:
    ports = choose_ports(0, 1)
    with taken(socket.SOCK_STREAM, ports[0]), pytest.raises(click.ClickException, match=r": try --mqtt-port 0$"):
        choose_ports(ports[0], 1, "--mqtt-port")
    with pytest.raises(click.UsageError, match=r"^--mqtt-port: 2 ports from 65535 on go past 65535$"):
        choose_ports(65535, 2, "--mqtt-port")


@pytest.mark.parametrize("start", [2, 3, 5, 7, 8])
def test_overlap_with_excluded_ports_is_refused(start: int) -> None:
    ports = choose_ports(0, 10)
    others = range(ports[start], ports[start] + 1)
    with pytest.raises(click.UsageError) as caught:
        choose_ports(ports[2], 7, apart_from=others)
    assert f"{ports[2]}-{ports[8]} and {others[0]}-{others[0]} overlap" in caught.value.message
    for near in (ports[1], ports[9]):
        assert choose_ports(ports[2], 7, apart_from=range(near, near + 1)) == ports[2:9]


def test_chosen_free_ports_avoid_excluded_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    first = choose_ports(0, 10)
    tried = iter([first[0] - 2, first[4], first[9], first[0] - 3])
    monkeypatch.setattr(random, "randrange", lambda start, end: next(tried))
    monkeypatch.setattr(ports_module, "is_free", lambda port: True)
    assert choose_ports(0, 3, apart_from=first) == range(first[0] - 3, first[0])


def test_too_many_ports_are_refused() -> None:
    with pytest.raises(click.UsageError, match="go past 65535"):
        choose_ports(65530, 7)
    with pytest.raises((click.ClickException, ValueError)):
        choose_ports(0, 60000)
