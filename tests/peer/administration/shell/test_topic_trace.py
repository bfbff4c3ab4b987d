"""Who coordinates a topic: asking from peer to peer until one is the nearest."""

from __future__ import annotations

from typing import Any

import pytest

from ringmq.overlay.config import Address
from ringmq.overlay.errors import OverlayError
from ringmq.peer.administration.shell import topic_trace
from ringmq.peer.administration.shell.topic_trace import MAX_HOPS, trace


class Ring:
    """Peers that answer by their port; each partition of a topic leads from port to port."""

    def __init__(self, *ways: dict[int, int]) -> None:
        self._ways = ways
        self.asked: list[int] = []

    async def ask(self, address: Address, about: str, caller: object) -> dict[str, Any]:
        port = address[1]
        self.asked.append(port)
        partitions = [self._partition(number, way.get(port), port) for number, way in enumerate(self._ways)]
        return {"id": f"id-{port}", "address": f"here:{port}", "about": {"topic": about, "partitions": partitions}}

    def _partition(self, number: int, nearer: int | None, port: int) -> dict[str, Any]:
        towards = None if nearer is None else {"id": f"id-{nearer}", "address": f"here:{nearer}"}
        return {"partition": number, "filters": ["a"], "nearer": towards, "held": {"by": port}}


def coordinated(number: int, port: int) -> dict[str, Any]:
    coordinator = {"id": f"id-{port}", "address": f"here:{port}"}
    return {"partition": number, "filters": ["a"], "coordinator": coordinator, "held": {"by": port}}


async def test_each_partition_is_followed_to_its_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = Ring({1: 2, 2: 3}, {}, {1: 4, 4: 3})
    monkeypatch.setattr(topic_trace, "ask_status", ring.ask)
    answer = await trace(("here", 1), "a")
    assert answer == {"topic": "a", "partitions": [coordinated(0, 3), coordinated(1, 1), coordinated(2, 3)]}
    assert ring.asked == [1, 2, 3, 4], "nobody twice"


async def test_disagreeing_peers_raise_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_trace, "ask_status", Ring({1: 2, 2: 1}).ask)
    with pytest.raises(OverlayError, match=r"^the peers do not agree on the coordinator of 'a': try again$"):
        await trace(("here", 1), "a")


@pytest.mark.parametrize(("hops", "found"), [(MAX_HOPS - 1, True), (MAX_HOPS, False)])
async def test_trace_follows_a_limited_number_of_hops(monkeypatch: pytest.MonkeyPatch, hops: int, found: bool) -> None:
    monkeypatch.setattr(topic_trace, "ask_status", Ring({port: port + 1 for port in range(1, hops + 1)}).ask)
    if found:
        assert (await trace(("here", 1), "a"))["partitions"] == [coordinated(0, hops + 1)]
    else:
        with pytest.raises(OverlayError):
            await trace(("here", 1), "a")


@pytest.mark.parametrize("answer", [{"id": "x"}, {"about": None}])
async def test_peer_without_topics_raises_one_line(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    async def ask(address: Address, about: str, caller: object) -> dict[str, Any]:
        return answer

    monkeypatch.setattr(topic_trace, "ask_status", ask)
    with pytest.raises(OverlayError, match=r"^\[::1\]:7 does not answer questions about topics$"):
        await trace(("::1", 7), "a")
