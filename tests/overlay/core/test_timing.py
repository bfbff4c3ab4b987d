"""The presets keep the formulas that their fields promise."""

import dataclasses

import pytest

from ringmq.overlay.core.timing import LAN, LOCAL, PRESETS, WAN, Timing


def test_the_presets_are_named() -> None:
    assert PRESETS == {"local": LOCAL, "lan": LAN, "wan": WAN}


@pytest.mark.parametrize("timing", PRESETS.values(), ids=PRESETS)
def test_presets_keep_the_formulas_of_their_fields(timing: Timing) -> None:
    assert all(value > 0 for value in dataclasses.asdict(timing).values())
    assert timing.heartbeat_s < timing.fence_s < timing.fastest_verdict_s
    assert timing.silence_s > 2 * timing.heartbeat_s
    assert timing.verdict_s >= 2 * timing.probe_s or timing.verdict_s >= 1.0
    assert timing.grant_s > timing.join_s
    assert timing.hop_s < timing.receipt_s
    assert timing.fastest_verdict_s < timing.receipt_s * timing.receipt_tries, "a death is found before giving up"


def test_the_fastest_verdict_takes_all_tries_and_the_timeout() -> None:
    assert dataclasses.replace(LAN, probe_s=0.5, probe_tries=3, verdict_s=1.0).fastest_verdict_s == 2.5


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("fence_s", LAN.heartbeat_s, r"fence_s must be .*, got 0\.5$"),
        ("fence_s", LAN.fastest_verdict_s, r"fence_s must be .*, got 1\.6$"),
        ("verdict_s", 0.1, r"fence_s must be .*, got 1\.2$"),
        ("silence_s", 0.99, r"silence_s must be .*, got 0\.99$"),
    ],
)
def test_a_wrong_value_is_named(field: str, value: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(LAN, **{field: value})  # type: ignore[arg-type]
