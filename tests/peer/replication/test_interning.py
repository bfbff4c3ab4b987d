"""Equal records, and fewer objects."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record, Sub
from ringmq.peer.messaging.publication import decode, encode_control
from ringmq.peer.replication import interning
from ringmq.peer.replication.interning import Sharing


def decoded(name: str, boot: int = 1_700_000_000_000, count: int = 5, point: int = 9) -> Record:
    """As it comes from another peer: with objects of its own."""
    record = Record(Kind.ENTRY, name, Peer(Id(point), "host", 1, boot), (boot, count), False, True, b"")
    message = decode(encode_control(Sub((record,), False)))
    assert isinstance(message, Sub)
    return message.entries[0]


def test_what_is_equal_is_one_object() -> None:
    shared = Sharing()
    place = "some/place"
    one, two = (shared.of(decoded(place, count=count), place) for count in (5, 6))
    assert one == decoded(place)
    assert two == decoded(place, count=6)
    assert one.peer is two.peer
    assert one.name is two.name is place
    assert one.number[0] is two.number[0]


def test_what_differs_stays_apart() -> None:
    shared = Sharing()
    for record in (decoded("a"), decoded("a", boot=1_700_000_000_001), decoded("other"), decoded("a", point=10)):
        assert shared.of(record, "a") == record
    retained = Record(Kind.RETAINED, "a", None, (7, 8), False, body=b"x")
    assert shared.of(retained, "a") == retained


def test_peers_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interning, "MAX_PEERS", 3)
    shared = Sharing()
    for point in range(10):
        assert shared.of(decoded("a", point=point), "a") == decoded("a", point=point)
        assert len(shared._peers) <= 3
