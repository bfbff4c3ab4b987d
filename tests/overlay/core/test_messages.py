"""The messages themselves; their way to bytes and back is tested with the wire."""

from typing import get_args

import msgspec
import pytest

from ringmq.overlay.core.ids import DIGITS, Id
from ringmq.overlay.core.leaf_set import HALF
from ringmq.overlay.core.messages import (
    MAX_HOPS,
    MAX_HOST,
    MAX_LEAVES,
    MAX_ROWS,
    Grant,
    Message,
    Peer,
    Probe,
    Route,
    RowRequest,
)
from ringmq.overlay.core.routing import RoutingTable

PEER = Peer(Id(0xABCDEF01 << 96), "host", 4883, 7)


def test_a_peer_is_told_by_its_id_and_address() -> None:
    assert str(PEER) == "abcdef01@host:4883"


def test_each_kind_has_its_own_number() -> None:
    tags = [kind.__struct_config__.tag for kind in get_args(Message)]
    assert len(set(tags)) == len(tags)


def test_messages_are_values() -> None:
    assert Probe((PEER,)) == Probe((Peer(PEER.id, "host", 4883, 7),))
    with pytest.raises(AttributeError, match="immutable"):
        PEER.boot = 8  # type: ignore[misc]


def _read(value: object, kind: type) -> object:
    """From plain values, with the bounds of the fields."""
    return msgspec.convert(value, kind, dec_hook=lambda _, raw: Id(raw))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Peer, [1, "h", 1, 0]),
        (Peer, [1, "h" * MAX_HOST, 65535, (1 << 63) - 1]),
        (Probe, [1 + 1, [[n, "h", 1, 0] for n in range(MAX_LEAVES)]]),
        (RowRequest, [12, DIGITS - 1]),
        (Route, [18, [1, "h", 1, 0], 0, 5, MAX_HOPS, b""]),
    ],
)
def test_what_is_within_bounds_is_read(kind: type, value: object) -> None:
    assert isinstance(_read(value, kind), kind)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Peer, [1, "", 1, 0]),
        (Peer, [1, "h" * (MAX_HOST + 1), 1, 0]),
        (Peer, [1, "h", 0, 0]),
        (Peer, [1, "h", 65536, 0]),
        (Peer, [1, "h", 1, -1]),
        (Peer, [1, "h", 1, 1 << 63]),
        (Probe, [2, [[n, "h", 1, 0] for n in range(MAX_LEAVES + 1)]]),
        (Grant, [10, [], [[n, "h", 1, 0] for n in range(MAX_ROWS + 1)]]),
        (RowRequest, [12, DIGITS]),
        (RowRequest, [12, -1]),
        (Route, [18, [1, "h", 1, 0], 0, 5, MAX_HOPS + 1, b""]),
    ],
)
def test_what_is_out_of_bounds_is_not(kind: type, value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        _read(value, kind)


def test_the_bounds_hold_what_a_peer_may_have_to_say() -> None:
    assert 2 * HALF <= MAX_LEAVES
    table = RoutingTable(Id(0))
    for row in range(DIGITS):
        for column in range(1, 16):
            table.offer(Peer(Id(column << 4 * (DIGITS - 1 - row)), "h", 1, 0))
    assert len(table.rows_for(1, 0)) + 1 <= MAX_ROWS
