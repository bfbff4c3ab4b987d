"""A ring of three real peers."""

from __future__ import annotations

import pytest

from tests.peer.rings import Eventually, Ring, Start


@pytest.fixture
def ring(start: Start, ringmq: Start, eventually: Eventually) -> Ring:
    made = Ring(start, ringmq, eventually, 3)
    eventually(lambda: all(len(told["leaves"]["clockwise"]) == 2 for told in made.statuses()), 15.0)
    return made
