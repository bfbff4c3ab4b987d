"""What the roles cannot be told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.errors import DispatchingError
from ringmq.peer.messaging.config import LAN, PRESETS


@pytest.mark.parametrize("changes", [{"shadows": -1}, {"shadows": 9}, {"lease_s": 0.0}, {"lease_s": 16.0}])
def test_wrong_values_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        replace(LAN, **changes)


def test_an_unknown_dispatching_is_refused() -> None:
    with pytest.raises(DispatchingError):
        replace(LAN, dispatch=Choice("pigeons"))
    with pytest.raises(DispatchingError):
        replace(LAN, rules=(("a/#", Choice("pigeons")),))


def test_coordinators_wait_longer_than_publishers_trust() -> None:
    assert all(config.void_s > config.lease_s for config in PRESETS.values())
