"""What is in a sample, without a ring: what a whole peer tells is in test_recording.py."""

from __future__ import annotations

from typing import Any

import pytest

from ringmq.logger.records import LinkTraffic, decode, encode
from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.node import Node
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.engines.scribe.shell.adapter import ScribeAdapter
from ringmq.peer.iteration import Iteration
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.telemetry import sampling
from ringmq.peer.telemetry.sampling import MAX_LINKS, Sampling, links_of, memory_bytes


def link(number: int, bytes_in: int = 1, rtt_ms: float | None = 2.0) -> dict[str, Any]:
    return {"id": Id(number).hex(), "bytes_in": bytes_in, "bytes_out": 3, "queued_bytes": 4, "rtt_ms": rtt_ms}


def test_links_of_a_node_are_converted() -> None:
    told = [link(1), link(2, rtt_ms=None), {name: value for name, value in link(3).items() if name != "id"}]
    assert links_of(told) == [
        LinkTraffic(peer=Id(1).hex(), bytes_in=1, bytes_out=3, queued_bytes=4, rtt_s=0.002),
        LinkTraffic(peer=Id(2).hex(), bytes_in=1, bytes_out=3, queued_bytes=4),
    ]


def test_busiest_links_are_kept() -> None:
    shown = links_of([link(number, bytes_in=number) for number in range(MAX_LINKS + 10)])
    assert {link.peer for link in shown} == {Id(number).hex() for number in range(10, MAX_LINKS + 10)}


def test_counts_are_capped_to_the_record() -> None:
    assert links_of([link(1, bytes_in=1 << 70)])[0].bytes_in == (1 << 63) - 1


def test_memory_falls_back_to_the_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    told = memory_bytes()
    monkeypatch.setattr(sampling, "_STATM", tmp_path / "none")
    assert memory_bytes() >= told / 2 > 1 << 20


@pytest.mark.parametrize("dispatch", ["direct", "scribe", "guided"])
async def test_sample_of_a_peer_without_clients(dispatch: str) -> None:
    config = PeerConfig(overlay=("127.0.0.1", 0), dispatch=dispatch)
    iteration = Iteration()
    adapter = (ScribeAdapter if dispatch == "scribe" else PartitionedAdapter)(config.roles, iteration)
    node = Node(OverlayConfig(id=Id(7), boot=3, listen=("127.0.0.1", 0), discovery=False), adapter, iteration)
    adapter.attach(node)
    await node.start()
    try:
        taken = Sampling(config, node, adapter, None)
        latest = taken.sample("r", 5.0)
        assert decode(encode(latest)) == latest
        assert (latest.run, latest.peer, latest.boot, latest.at) == ("r", Id(7).hex(), 3, 5.0)
        assert (latest.dispatching, latest.fanout) == (dispatch, 10 if dispatch == "guided" else 0)
        assert (latest.links, latest.listeners, latest.topics, latest.coordinated) == ([], {}, 0, 0)
        kind = "scribe" if dispatch == "scribe" else "pubsub"
        assert taken.counters()[f"{kind}_published"] == 0
    finally:
        adapter.stop()
        await node.stop()
