"""The counters of a front."""

from __future__ import annotations

from mqtt_front.counters import FrontCounters


def test_all_of_them_by_name() -> None:
    counters = FrontCounters()
    counters.taken_over += 3
    found = counters.as_dict()
    assert found["taken_over"] == 3
    assert sum(found.values()) == 3
