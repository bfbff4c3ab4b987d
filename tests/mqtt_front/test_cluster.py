"""A front that is all there is: everything is in force at once."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.cluster import Standalone
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message


@pytest.mark.parametrize(("here", "reason"), [(0, Reason.NO_MATCHING_SUBSCRIBERS), (3, Reason.SUCCESS)])
def test_a_publication_is_done_with_the_clients_here(here: int, reason: Reason) -> None:
    told: list[Reason] = []
    Standalone().published(Message("t", b"x", 1), here, told.append)
    Standalone().published(Message("t", b"x"), here, None)
    assert told == [reason]


def test_filters_are_in_force_at_once() -> None:
    told: list[int] = []
    assert Standalone().serves("$share/g/t")
    Standalone().filter_added("t", lambda _: told.append(1))
    Standalone().filter_removed("t")
    assert told == [1]
