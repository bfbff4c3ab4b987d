"""What a turn has for each and for all."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.connection.budget import ALL_BYTES, CONNECTION_BYTES, SLICE_BYTES, Work


@pytest.mark.parametrize(
    ("behind", "share"), [(0, CONNECTION_BYTES), (1, ALL_BYTES // 2), (9, ALL_BYTES // 10), (100_000, SLICE_BYTES)]
)
def test_who_is_behind_shares_with_all_who_may_come(behind: int, share: int) -> None:
    work = Work()
    work.left, work.behind = -5, behind
    work.begin(7)
    assert (work.iteration, work.left, work.share, work.behind) == (7, ALL_BYTES, share, 0)
