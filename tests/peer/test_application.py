"""What the peer does with what the ring hands it."""

from __future__ import annotations

from overlay.ids import Id
from overlay.messages import Peer
from overlay.ring import Application
from peer.application import CountingApplication


def test_it_counts_and_lets_everything_pass() -> None:
    told: list[bool] = []
    counting = CountingApplication(told.append)
    application: Application = counting
    other = Peer(id=Id(1), host="127.0.0.1", port=1, boot=1)
    application.deliver(Id(2), b"x", other)
    application.deliver(Id(2), b"x", other)
    assert application.forward(Id(2), b"x", other) is True
    application.receive(other, b"x")
    application.undeliverable(Id(2), b"x")
    application.owners_changed(Id(2), (other,))
    application.activity_changed(True)
    application.activity_changed(False)
    assert (counting.delivered, counting.forwarded, counting.received, counting.undelivered) == (2, 1, 1, 1)
    assert told == [True, False]
