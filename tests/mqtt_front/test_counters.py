"""The counters of a front."""

from __future__ import annotations

from ringmq.mqtt_front.counters import FrontCounters


def test_all_of_them_by_name() -> None:
    counters = FrontCounters()
    counters.taken_over += 3
    found = counters.as_dict()
    assert found["taken_over"] == 3
    assert sum(found.values()) == 3


def test_what_is_of_the_log_is_counted_apart() -> None:
    counters = FrontCounters()
    for topic in ("ringmq/log/a", "ringmq/log", "a", "ringmq/logs"):
        counters.received(topic, 3)
        counters.sent(topic, 5)
        counters.sent(topic, 5)
        counters.dropped(topic)
    assert (counters.publish_received, counters.publish_sent, counters.publish_dropped) == (2, 4, 2)
    assert (counters.log_received, counters.log_sent, counters.log_dropped) == (2, 4, 2)
    assert (counters.log_bytes_received, counters.log_bytes_sent) == (6, 20)
    assert counters.given == 12
