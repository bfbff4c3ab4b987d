"""Trees of real peers, of which some die."""

from __future__ import annotations

import time

from tests.peer.rings import LATEST_S, Client, Eventually, Ring, Start

PEERS = 6
DEAD = 2
MESSAGES = 5
REDIAL_S = 0.3
"""After so long a peer that could not be reached is dialled again."""


def test_dead_peers_in_a_tree_are_bypassed(start: Start, ringmq: Start, eventually: Eventually) -> None:
    """A chain: each passes the message on to one other. Messages come seldom, so that each finds no link, and dials."""
    ring = Ring(start, ringmq, eventually, PEERS, "--dispatch", "guided", "--fanout", "1")
    receivers = [Client(address, f"s{number}", "t") for number, address in enumerate(ring.mqtt)]
    publisher = Client(ring.mqtt[0], "p")
    for one in ring.processes[1 : 1 + DEAD]:
        one.popen.kill()
    live = [receivers[0], *receivers[1 + DEAD :]]

    def arrives(payload: bytes) -> bool:
        return all(("t", payload) in one.read() for one in live)

    def broken() -> bool:
        publisher.publish("t", b"first")
        return arrives(b"first")

    eventually(broken, LATEST_S)  # the connections to the dead may yet have taken a message
    for number in range(MESSAGES):
        begun = time.monotonic()
        eventually(lambda since=begun: time.monotonic() > since + REDIAL_S, LATEST_S)
        publisher.publish("t", b"%d" % number)
        eventually(lambda body=b"%d" % number: arrives(body), LATEST_S)
    assert all([payload for _, payload in one.read()][-MESSAGES:] == [b"0", b"1", b"2", b"3", b"4"] for one in live)
