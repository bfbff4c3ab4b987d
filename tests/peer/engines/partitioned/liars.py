"""Well-formed items with false contents: every field at its extremes, as a faulty member may send them."""

from __future__ import annotations

import contextlib
import random
import struct
import types
import typing
from enum import IntEnum
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Here, Item, Where
from ringmq.peer.messaging.messages import Held
from ringmq.peer.replication.space import PARTITIONS
from ringmq.peer.streams.stream_messages import BatchAck

MOST: Final = (1 << 63) - 1
NUMBERS: Final = (0, 1, 2, 5, 1 << 31, 1 << 32, 1 << 62, MOST - 1, MOST)
FLOATS: Final = (0.0, -1.0, 1e300, float("inf"), float("-inf"), float("nan"))
WIDTHS: Final = {"partitions": "<H", "fingerprints": "<Q", "shapes": "<H", "homes": "<I", "changes": "<B"}
ITEMS: Final = get_args(Item)
CONTROL: Final = (Held, BatchAck, Where, Here)


class Liar:
    """Makes up messages. `peers` and `names` are those of the ring, so that lies are about something."""

    def __init__(self, chance: random.Random, peers: list[Peer], names: list[str]) -> None:
        self._chance = chance
        self._peers = peers
        self._names = names

    def message(self, kind: type[msgspec.Struct]) -> Any:
        while True:
            # What cannot be decoded is no well-formed lie.
            with contextlib.suppress(ValueError):
                return self._message(kind)

    def _message(self, kind: type[msgspec.Struct]) -> Any:
        hints = typing.get_type_hints(kind, include_extras=True)
        rows = self._chance.randint(0, 3)
        fields = {}
        for field in kind.__struct_fields__:
            if kind.__name__ == "Routes" and field in WIDTHS:
                # Columns of different lengths are a lie too, but only now and then: they are refused as a whole.
                length = rows if self._chance.random() < 0.9 else rows + 1
                fields[field] = b"".join([struct.pack(WIDTHS[field], self._column(field)) for _ in range(length)])
            else:
                fields[field] = self._value(hints[field], field)
        return kind(**fields)

    def _column(self, field: str) -> int:
        most = 256 ** struct.calcsize(WIDTHS[field]) - 1
        return self._chance.choice((0, 0, 1, 2, 4095, most)) % (most + 1)

    def _value(self, hint: Any, field: str) -> Any:
        chance = self._chance
        origin = get_origin(hint)
        if origin is Annotated:
            base, *metas = get_args(hint)
            meta = next(each for each in metas if isinstance(each, Meta))
            if base is int:
                return self._number(meta)
            if base is float:
                low = -float("inf") if meta.ge is None else meta.ge
                return chance.choice([number for number in FLOATS if number >= low])
            value = self._value(base, field)
            return value[: meta.max_length] if isinstance(value, tuple) else value
        if origin is tuple:
            inner = get_args(hint)
            if len(inner) == 2 and inner[1] is Ellipsis:
                return tuple([self._value(inner[0], field) for _ in range(chance.choice((0, 1, 1, 2, 5)))])
            values = tuple([self._value(one, field) for one in inner])
            # Ranges are whole, empty or reversed.
            return (0, PARTITIONS - 1) if values and chance.random() < 0.2 and field in ("runs", "ended") else values
        if origin in (typing.Union, types.UnionType):
            return self._value(chance.choice(get_args(hint)), field)
        return self._plain(hint, field)

    def _plain(self, hint: Any, field: str) -> Any:
        chance = self._chance
        if hint is Peer:
            peer = chance.choice(self._peers)
            return chance.choice((peer, peer, Peer(peer.id, "nowhere", 9, chance.choice(NUMBERS)), self._stranger()))
        if hint is Id:
            return chance.choice((chance.choice(self._peers).id, Id(0), Id(SPACE - 1)))
        if hint is bool:
            return chance.random() < 0.5
        if hint is float:
            return chance.choice(FLOATS)
        if hint is int:
            return chance.choice(NUMBERS)
        if hint is str:
            return chance.choice((*self._names, "", "#", "+/x", "a/#/b", "$share/g/a", "$share/", "$SYS/x", "/" * 300))
        if hint is bytes:
            shapes = (b"", b"\x00#", b"\x00+", b"\x05+.#", b"\xff", b"\x00" * 10, b"\x01\x01" + b"\xff" * 8 + b"x")
            return chance.choice(shapes)
        if hint is type(None):
            return None
        if isinstance(hint, type) and issubclass(hint, IntEnum):
            return chance.choice(list(hint))
        return self.message(hint)

    def _number(self, meta: Meta) -> int:
        low = meta.ge if meta.ge is not None else 0
        high = meta.le if meta.le is not None else MOST if meta.lt is None else meta.lt - 1
        choices = {low, high, *[number for number in NUMBERS if low <= number <= high]}
        return int(self._chance.choice(sorted(choices)))

    def _stranger(self) -> Peer:
        return Peer(Id(self._chance.randrange(SPACE)), "nowhere", 9, self._chance.choice(NUMBERS))
