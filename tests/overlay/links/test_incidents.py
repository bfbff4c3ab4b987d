"""Notices: always counted, logged once."""

from structlog.testing import capture_logs

from ringmq.overlay.links.incidents import MAX_CULPRITS, MAX_REMEMBERED, MAX_TRACEBACKS, Incidents


def test_counted_always_and_logged_once_per_culprit() -> None:
    incidents = Incidents()
    with capture_logs() as lines:
        for who in ("a", "a", "b", "a"):
            incidents.warn("event", who, "why")
    assert incidents.counters["event"] == 4
    assert [(line["event"], line["peer"], line["reason"]) for line in lines] == [
        ("event", "a", "why"),
        ("event", "b", "why"),
    ]


def test_the_forgiven_is_logged_again() -> None:
    incidents = Incidents()
    with capture_logs() as lines:
        incidents.warn("event", "a", "why")
        incidents.forgive("event", "a")
        incidents.warn("event", "a", "why")
    assert len(lines) == 2


def test_neither_log_nor_memory_grows_with_the_culprits() -> None:
    incidents = Incidents()
    with capture_logs() as lines:
        for number in range(MAX_REMEMBERED + 500):
            incidents.warn("event", number, "why")
            incidents.warn(f"event {number}", "who", "why")
        for _ in range(MAX_TRACEBACKS + 50):
            incidents.failed("failure")
    assert len([line for line in lines if line["event"] == "event"]) == MAX_CULPRITS
    assert len([line for line in lines if line["event"].startswith("event")]) == MAX_REMEMBERED
    assert len([line for line in lines if line["event"] == "failure"]) == MAX_TRACEBACKS
    assert incidents.counters["event"] == MAX_REMEMBERED + 500
    assert incidents.counters["failure"] == MAX_TRACEBACKS + 50


def test_text_of_a_stranger_stays_on_one_log_line() -> None:
    with capture_logs() as lines:
        Incidents().warn("event", "a\nforged", "b\x1b[31m")
    assert (lines[0]["peer"], lines[0]["reason"]) == ("a?forged", "b?[31m")
