"""The status of a peer."""

import json
import os
import socket
from types import SimpleNamespace

import msgspec
import pytest

from ringmq.overlay.config import OverlayConfig, show
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import MAX_HOST, Peer
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import MAX_ABOUT_BYTES, MAX_STATUS_BYTES, ask_status
from ringmq.overlay.status import MAX_LINKS_SHOWN, describe, round_trip_ms

ME, NEXT, LAST = Peer(Id(1), "::1", 7, 3), Peer(Id(2), "next", 8, 1), Peer(Id(3), "last", 9, 1)
CONFIG = OverlayConfig(id=Id(1), boot=3, listen=("::1", 7), ring="home")


def ring_of(clockwise: tuple[Peer, ...] = (), counterclockwise: tuple[Peer, ...] = (), me: Peer = ME):
    told = SimpleNamespace(
        active=True,
        clockwise=clockwise,
        counterclockwise=counterclockwise,
        table_size=4,
        suspects=5,
        dead=6,
        counters={"hops": 7},
    )
    return SimpleNamespace(me=me, statistics=lambda: told)


class FakeLink:
    """The part of a link that a status reads; knows how much is queued only after it was asked for its room."""

    dialled = None
    transport = None
    delay_s = 0.0
    frames_in, frames_out, bytes_in, bytes_out = 1, 2, 3, 4
    queued_bytes = -1

    def __init__(self, peer: Peer | None) -> None:
        self.peer = peer

    def room(self) -> int:
        self.queued_bytes = 55
        return 0


def test_a_status_has_every_field() -> None:
    ring = ring_of((NEXT, LAST), (LAST, NEXT))
    status = describe(ring, CONFIG, iter([FakeLink(NEXT)]), {"dials": 1}, 1.23456)
    following, last = {"id": Id(2).hex(), "address": "next:8"}, {"id": Id(3).hex(), "address": "last:9"}
    assert status == {
        "id": Id(1).hex(),
        "address": "[::1]:7",
        "ring": "home",
        "boot": 3,
        "active": True,
        "uptime_s": 1.235,
        "pid": os.getpid(),
        "neighbours": {"clockwise": following, "counterclockwise": last},
        "leaves": {"clockwise": [following, last], "counterclockwise": [last, following]},
        "table_size": 4,
        "suspects": 5,
        "dead": 6,
        "links_total": 1,
        "links": [
            {
                **following,
                "dialled": False,
                "rtt_ms": None,
                "frames_in": 1,
                "frames_out": 2,
                "bytes_in": 3,
                "bytes_out": 4,
                "queued_bytes": 55,
            }
        ],
        "counters": {"dials": 1},
        "ring_counters": {"hops": 7},
    }
    assert json.loads(json.dumps(status)) == msgspec.json.decode(msgspec.json.encode(status)) == status


def test_a_peer_alone_has_no_neighbours() -> None:
    status = describe(ring_of(), CONFIG, [], {}, 0.0)
    assert status["neighbours"] == {"clockwise": None, "counterclockwise": None}
    assert status["leaves"] == {"clockwise": [], "counterclockwise": []}
    assert (status["links"], status["links_total"]) == ([], 0)


def test_the_links_shown_are_bounded_and_all_are_counted() -> None:
    links = [FakeLink(Peer(Id(number), "host", 1, 1)) for number in range(MAX_LINKS_SHOWN + 500)]
    status = describe(ring_of(), CONFIG, links, {}, 0.0)
    assert status["links_total"] == MAX_LINKS_SHOWN + 500
    assert [link["id"] for link in status["links"]] == [Id(number).hex() for number in range(MAX_LINKS_SHOWN)]


def test_a_full_status_with_long_names_can_be_asked_for() -> None:
    peer = Peer(Id(SPACE - 1), "h" * MAX_HOST, 65535, (1 << 63) - 1)
    links = [FakeLink(peer) for _ in range(2 * MAX_LINKS_SHOWN)]
    for link in links:
        link.frames_in = link.frames_out = link.bytes_in = link.bytes_out = 1 << 60
    counters = {f"{number}".zfill(30): 1 << 60 for number in range(200)}
    status = describe(ring_of((peer,) * 32, (peer,) * 32, peer), CONFIG, links, counters, 1e9)
    assert len(msgspec.json.encode(status)) < MAX_STATUS_BYTES * 0.53, "the rest is for the layers above"


# -- round trips


@pytest.mark.parametrize("found", [None, socket.socket], ids=["no socket", "not a connection"])
def test_no_round_trip_where_the_kernel_does_not_tell(found: type[socket.socket] | None) -> None:
    link = FakeLink(NEXT)
    assert round_trip_ms(link) is None
    handle = found(socket.AF_INET, socket.SOCK_DGRAM) if found else None
    link.transport = SimpleNamespace(get_extra_info=lambda name: handle)
    assert round_trip_ms(link) is None
    if handle is not None:
        handle.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="this system does not measure round trips")
async def test_a_round_trip_has_the_emulated_latency_on_both_ways(side, until) -> None:
    ours, other = await side(1000, delay_s=(0.02, 0.02)), await side(2000, delay_s=(0.02, 0.02))
    ours.links.send_bytes(other.me, 4, b"x")
    await until(other.parcels)
    assert 40.0 <= round_trip_ms(ours.link(other)) < 1000.0


# -- over the wire


async def test_a_question_about_something_is_for_the_application(start) -> None:
    node = await start(1, more_status=lambda about: {"about": about})
    assert (await ask_status(node.address))["about"] == ""
    longest = "é" * (MAX_ABOUT_BYTES // 2)
    assert (await ask_status(node.address, about=longest))["about"] == longest
    with pytest.raises(OverlayError, match=r"a frame must have 1 to 4096 bytes, got 4097"):
        await ask_status(node.address, about="a" * (MAX_ABOUT_BYTES + 1))


async def test_status_over_the_wire(start, until) -> None:
    ours, other = await start(1), await start(2)
    ours.send(other.ring.me, b"x")
    await until(lambda: other.ring.named("receive"))
    status = await ask_status(other.address)
    assert status["id"] == Id(2).hex()
    assert status["address"] == show(other.address)
    assert (status["ring"], status["boot"], status["active"], status["table_size"]) == ("ringmq", 1, True, 3)
    assert status["neighbours"] == {
        "clockwise": {"id": Id(2).hex(), "address": status["address"]},
        "counterclockwise": None,
    }
    (link,) = status["links"]
    assert (link["id"], link["address"]) == (Id(1).hex(), show(ours.address))
    assert link["frames_in"] == 2
    assert link["bytes_in"] > 0
    assert link["rtt_ms"] is None or 0 <= link["rtt_ms"] < 1000
    assert status["ring_counters"] == {"x": 1}
    assert not [link for link in other._links.open_links() if link.peer != ours.ring.me]
