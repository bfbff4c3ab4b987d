"""The stranger of `hostile`: its values are well-formed, reach each message and bound, and its frames are frames."""

from __future__ import annotations

from random import Random
from typing import Any, get_args

import pytest

from ringmq.experiments.chaos.hostile import Stranger
from ringmq.experiments.chaos.hostile_values import HostileValues
from ringmq.overlay.core import codec
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.frames import FrameReader, Kind
from ringmq.peer.engines.partitioned.item_codec import decode_item, encode_item
from ringmq.peer.engines.partitioned.messages import Item
from ringmq.peer.messaging import publication
from ringmq.peer.messaging.messages import Control

IDS = (Id(5), Id(6))
MEMBERS = [Peer(Id(5), "127.0.0.1", 4883, 1), Peer(Id(6), "127.0.0.1", 4884, 2)]


def drawn(values: HostileValues, of: Any) -> Any:
    """A value of a type; some types check more than their fields."""
    while True:
        try:
            return values.draw(of)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("of", "encode", "decode"),
    [
        (Message, codec.encode, codec.decode),
        (Control, publication.encode_control, publication.decode),
        (Item, encode_item, decode_item),
    ],
    ids=["ring", "control", "item"],
)
def test_values_of_every_message_are_decoded_as_they_were(of: Any, encode: Any, decode: Any) -> None:
    values = HostileValues(Random(1), IDS)
    kinds = set()
    refused = 0
    for _ in range(1500):
        value = drawn(values, of)
        try:
            assert decode(encode(value)) == value
            kinds.add(type(value))
        except (ProtocolError, OverflowError):  # a check of the decoder beyond the fields
            refused += 1
    assert kinds == set(get_args(of))
    assert refused < 500


def test_numbers_reach_their_bounds() -> None:
    values = HostileValues(Random(1), IDS)
    peers = [drawn(values, Peer) for _ in range(300)]
    assert {peer.boot for peer in peers} >= {0, (1 << 63) - 1}
    assert {peer.port for peer in peers} >= {1, 65535}
    assert {peer.id for peer in peers} > set(IDS)


def test_equal_seeds_draw_equal_values() -> None:
    first, second = (HostileValues(Random(7), IDS) for _ in range(2))
    assert [drawn(first, Item) for _ in range(50)] == [drawn(second, Item) for _ in range(50)]


def test_frames_are_whole_and_of_the_application_or_the_ring() -> None:
    stranger = Stranger(Random(1), MEMBERS, "timing lan")
    frames = [frame for seq in range(300) if (frame := stranger._frame(MEMBERS[0], seq)) is not None]
    kinds = {kind for frame in frames for kind, _ in FrameReader(1 << 24).feed(frame)}
    assert kinds == {Kind.CONTROL, Kind.PARCEL}
    assert len(frames) > 200
    hellos = {stranger._hello(MEMBERS[0]) for _ in range(20)}
    assert {kind for hello in hellos for kind, _ in FrameReader(1 << 16).feed(hello)} == {Kind.HELLO}
    assert len(hellos) > 10
