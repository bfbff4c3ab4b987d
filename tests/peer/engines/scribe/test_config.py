"""Periods that cannot work are refused."""

from __future__ import annotations

import pytest

from ringmq.peer.engines.scribe.config import LAN, PRESETS, TreeConfig


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"heartbeat_s": 1.0}, "silence_s must be at least 2 * heartbeat_s, got 1.6"),
        ({"child_s": 3.0}, "child_s must be at least 2 * silence_s, got 3.0"),
        ({"trust_s": 0.0}, "trust_s must be more than 0, got 0.0"),
    ],
)
def test_wrong_values_are_named(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("*", r"\*")):
        TreeConfig(**wrong)  # type: ignore[arg-type]


def test_a_root_waits_longer_than_publishers_trust_it() -> None:
    assert all(config.void_s > config.trust_s for config in PRESETS.values())
    assert PRESETS["lan"] is LAN
