"""The configuration of a front: a wrong value is one clear line."""

from __future__ import annotations

from dataclasses import fields

import pytest

from ringmq.mqtt_front.config import RANGES, FrontConfig


def test_every_number_has_its_range() -> None:
    numbers = {field.name for field in fields(FrontConfig) if field.type != "bool"}
    assert set(RANGES) == numbers


@pytest.mark.parametrize("name", RANGES)
def test_the_ends_of_a_range_will_do_and_nothing_beyond(name: str) -> None:
    least, most = RANGES[name]
    for value in (least, most):
        FrontConfig(**{name: value})  # type: ignore[arg-type]
    for value in (least - 1, most * 2):
        with pytest.raises(ValueError, match=f"{name} must be {least} to .*, got "):
            FrontConfig(**{name: value})  # type: ignore[arg-type]
