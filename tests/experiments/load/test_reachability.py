"""Messages that pass, are lost, or come twice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ringmq.experiments.load import reachability
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.servers import Server, running
from ringmq.mqtt_front.codec.codec import encode_publish


@pytest.fixture
def stranger() -> Iterator[Server]:
    """A front without a connection to the other."""
    with running("ringmq", min(os.sched_getaffinity(0))) as server:
        yield server


def test_messages_pass_within_a_server(ringmq_server: Server) -> None:
    reachability.check([ringmq_server.address])
    reachability.check([ringmq_server.address] * 3)


def test_unconnected_servers_are_an_error(
    ringmq_server: Server, stranger: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "PASSAGE_S", 0.05)
    monkeypatch.setattr(reachability, "ROUND_S", 0.05)
    ports = ringmq_server.address[1], stranger.address[1]
    route = f"published at 127.0.0.1:{ports[0]}, subscribed at 127.0.0.1:{ports[1]}"
    with pytest.raises(BenchError, match=f"no message came through: {route}, tried for 0.05 s"):
        reachability.check([ringmq_server.address, stranger.address])


def test_duplicates_are_an_error(ringmq_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "SURPLUS_S", 0.05)
    monkeypatch.setattr(reachability, "encode_publish", lambda *packet: 2 * encode_publish(*packet))
    with pytest.raises(BenchError, match="a message came 2 times: published at"):
        reachability.check([ringmq_server.address])
