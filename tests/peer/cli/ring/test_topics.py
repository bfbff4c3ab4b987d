"""`ringmq topics` and `ringmq retained`, from outside."""

from __future__ import annotations

import json
import time
from typing import Any

from ringmq.mqtt_front.codec.packets import Publish
from tests.peer.cli.ring.mqtt_clients import PlainClient
from tests.peer.rings import Eventually, Ring, Start


def rows_of(ringmq: Start, *words: str) -> list[dict[str, Any]]:
    done = ringmq(*words, "--json")
    assert done.err == ""
    found: list[dict[str, Any]] = json.loads(done.out)["rows"]
    return found


def test_retained_messages_of_the_ring_are_listed_once(ring: Ring, ringmq: Start, eventually: Eventually) -> None:
    clients = [PlainClient(address, f"c{number}") for number, address in enumerate(ring.mqtt)]
    before = time.time()
    for number in range(12):
        clients[number % 3].retain(f"hall/{number}/door", b"open" if number else b"\xff\x00" * 200)
    clients[0].retain("roof", b"shut")

    def listed() -> list[dict[str, Any]]:
        return rows_of(ringmq, "retained", "hall/#", "--via", ring.overlay[1])

    rows = eventually(lambda: found if len(found := listed()) >= 12 else None)
    assert sorted(row["topic"] for row in rows) == sorted(f"hall/{number}/door" for number in range(12))
    door = next(row for row in rows if row["topic"] == "hall/5/door")
    assert (door["payload"], door["size_bytes"], door["qos"], door["expires_in_s"]) == ("open", 4, 1, None)
    assert before - 1 < door["stored_at"] < time.time() + 1
    binary = next(row for row in rows if row["topic"] == "hall/0/door")
    assert binary["size_bytes"] == 400
    assert len(binary["payload"]) == 200
    assert len(rows_of(ringmq, "retained", "--via", ring.overlay[0])) == 13
    lines = ringmq("retained", "roof", "--via", ring.overlay[0]).out.splitlines()
    assert lines[1].split()[:3] == ["roof", "shut", "4"]


def test_retained_messages_are_cleared_by_filter(ring: Ring, ringmq: Start, eventually: Eventually) -> None:
    client = PlainClient(ring.mqtt[0], "c")
    watcher = PlainClient(ring.mqtt[1], "w")
    watcher.subscribe("hall/#")
    for number in range(5):
        client.retain(f"hall/{number}", b"x")
        assert isinstance(watcher.read(), Publish)
    client.retain("roof", b"x")
    eventually(lambda: len(rows_of(ringmq, "retained", "--via", ring.overlay[2])) == 6)
    done = ringmq("retained", "hall/#", "--delete", "--via", ring.overlay[2])
    assert done.out.splitlines() == [f"hall/{number}: cleared" for number in range(5)]
    assert [row["topic"] for row in rows_of(ringmq, "retained", "--via", ring.overlay[0])] == ["roof"]
    heard = [watcher.read() for _ in range(5)]
    assert {(packet.topic, bytes(packet.payload)) for packet in heard if isinstance(packet, Publish)} == {
        (f"hall/{number}", b"") for number in range(5)
    }
    again = ringmq("retained", "hall/#", "--delete", "--via", ring.overlay[2])
    assert again.out == "there are no such retained messages\n"
    for words, fault in (
        (("--delete",), "--delete needs a FILTER; # is for all topics"),
        (("a#",), "topic filter 'a#' "),
        (("#", "--delete", "--watch"), "--delete and --watch exclude each other"),
    ):
        wrong = ringmq("retained", *words)
        assert wrong.popen.returncode == 2
        assert wrong.err.startswith(f"ringmq: {fault}")


def test_topics_and_filters_of_the_ring_are_listed(ring: Ring, ringmq: Start) -> None:
    first, second = PlainClient(ring.mqtt[0], "a"), PlainClient(ring.mqtt[1], "b")
    first.subscribe("hall/+", "roof")
    second.subscribe("hall/+")
    publisher = PlainClient(ring.mqtt[2], "p")
    publisher.retain("hall/7", b"x")
    (row,) = rows_of(ringmq, "topics", "hall/#", "--via", ring.overlay[0])
    assert (row["topic"], row["peer"], row["peers"], row["dispatch"]) == ("hall/7", ring.ids[2], 2, "direct")
    assert rows_of(ringmq, "topics", "roof", "--via", ring.overlay[0]) == []
    lines = ringmq("topics", "--subscribed", "--via", ring.overlay[2]).out.splitlines()
    assert [line.split() for line in lines] == [
        ["filter", "clients", "peers"],
        ["hall/+", "2", "2"],
        ["roof", "1", "1"],
    ]
    wrong = ringmq("topics", "hall/#", "--subscribed")
    assert wrong.popen.returncode == 2
