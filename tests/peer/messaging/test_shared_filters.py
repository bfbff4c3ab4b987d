"""The inner filter of a shared filter decides where it lives and what it matches."""

from __future__ import annotations

from ringmq.peer.messaging.shared_filters import inner_of, is_shared


def test_a_shared_filter_has_the_inner_filter_of_a_plain_one() -> None:
    assert is_shared("$share/g/a/+")
    assert not is_shared("a/+")
    assert inner_of("$share/g/a/+") == inner_of("a/+") == "a/+"
