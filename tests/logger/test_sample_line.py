"""A sample as a log line: its numbers and its level."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from ringmq.logger.records import Sample
from ringmq.logger.sample_line import log_sample


@pytest.mark.parametrize("level", ["debug", "info"])
def test_sample_is_logged_as_one_line_at_the_level(make_sample: Callable[..., Sample], level: str) -> None:
    with capture_logs() as lines:
        log_sample(make_sample(), level)
    assert lines == [
        {
            "event": "sample",
            "log_level": level,
            "uptime_s": 1004,
            "cpu_s": 1007.5,
            "memory_mib": 300,
            "clients": 1008,
            "links": 1,
            "messages_in": 1013,
            "messages_out": 1014,
            "from_peers": 1018,
            "to_peers": 1019,
            "dropped": 1015 + 1020,
            "unrecorded": 1035,
        }
    ]
