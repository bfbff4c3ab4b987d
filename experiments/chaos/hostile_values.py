"""Well-formed values of any message type, with random and boundary values in each field. Knows no message."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from msgspec import inspect

from ringmq.overlay.core.ids import Id

BOUNDS: Final = (0, 1, 2, 255, 4095, 4096, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1)
TEXTS: Final = ("", "a", "x/1/0", "x/r", "x/#", "x/+", "a/#", "$share/x/x/+", "x" * 300, "ä/ö")
HOSTS: Final = ("127.0.0.1", "10.83.0.1", "localhost")
SIZES: Final = (0, 1, 2, 16, 1000)
MOST_ENTRIES: Final = 8
DEEPEST: Final = 5
"""Nested values below this depth are as short as they may be."""


class HostileValues:
    """Draws values of types. `ids` are offered besides random ones: of members, and the own one."""

    def __init__(self, chance: Random, ids: tuple[Id, ...]) -> None:
        self._chance = chance
        self._ids = ids
        self._infos: dict[object, inspect.Type] = {}

    def draw(self, of: object) -> Any:
        """A value of a type, such as a struct or a union of structs, that `msgspec` decodes as this type."""
        info = self._infos.get(of)
        if info is None:
            info = self._infos[of] = inspect.type_info(of)
        return self._value(info, 0)

    def _value(self, info: inspect.Type, depth: int) -> Any:  # a case for each kind of type
        chance = self._chance
        match info:
            case inspect.StructType():
                return info.cls(*(self._value(field.type, depth + 1) for field in info.fields))
            case inspect.UnionType():
                return self._value(chance.choice(info.types), depth)
            case inspect.IntType():
                return self._integer(info)
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.FloatType():
                return chance.choice((0.0, -1.0, 1e-9, 1e300, chance.random()))
            case inspect.StrType():
                return self._text(info)
            case inspect.BytesType():
                return chance.randbytes(chance.choice(SIZES))
            case inspect.VarTupleType() | inspect.ListType():
                count = info.min_length or 0
                if depth < DEEPEST:
                    count += chance.randrange(MOST_ENTRIES)
                count = min(count, count if info.max_length is None else info.max_length)
                return tuple(self._value(info.item_type, depth + 1) for _ in range(count))
            case inspect.TupleType():
                return tuple(self._value(item, depth + 1) for item in info.item_types)
            case inspect.EnumType():
                return chance.choice(list(info.cls))
            case inspect.NoneType():
                return None
            case inspect.CustomType():
                return chance.choice(self._ids) if chance.random() < 0.7 else Id(chance.getrandbits(128))
        raise TypeError(f"no values for {info}")

    def _integer(self, info: inspect.IntType) -> int:
        least = -(1 << 63) if info.ge is None else info.ge
        most = (1 << 64) - 1 if info.le is None else info.le
        if info.lt is not None:
            most = min(most, info.lt - 1)
        drawn = self._chance.choice(BOUNDS) if self._chance.random() < 0.6 else self._chance.getrandbits(63)
        return max(least, min(most, drawn))

    def _text(self, info: inspect.StrType) -> str:
        if info.pattern is not None:
            return self._chance.choice(HOSTS)
        text = self._chance.choice(TEXTS)
        if info.min_length is not None and len(text) < info.min_length:
            text = "a" * info.min_length
        return text if info.max_length is None else text[: info.max_length]
