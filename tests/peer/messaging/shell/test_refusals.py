"""The log of refusals: a line a minute of each kind at most, with what has come since the last."""

from __future__ import annotations

from structlog.testing import capture_logs

from ringmq.peer.messaging.context import Counters
from ringmq.peer.messaging.shell.refusals import EVERY_S, RefusalLog


def test_what_no_honest_peer_can_have_sent_is_logged_once_a_minute() -> None:
    counters, refusals = Counters(), RefusalLog()
    with capture_logs() as lines:
        refusals.look(counters, 0.0)
        assert lines == []
        counters.false_records = 3
        refusals.look(counters, 2.0)
        assert (lines[0]["false_records"], lines[0]["false_boots"]) == (3, 0)
        counters.false_boots = 5
        refusals.look(counters, 4.0)
        assert len(lines) == 1
        refusals.look(counters, 4.0 + EVERY_S)
        assert (lines[1]["false_records"], lines[1]["false_boots"]) == (0, 5)
        refusals.look(counters, 4.0 + 3 * EVERY_S)
        assert len(lines) == 2


def test_refusals_to_clients_are_logged_apart_from_those() -> None:
    counters, refusals = Counters(), RefusalLog()
    counters.refused_filters, counters.unreadable = 2, 1
    with capture_logs() as lines:
        refusals.look(counters, 0.0)
    assert [line.get("filters", line.get("unreadable")) for line in lines] == [1, 2]
