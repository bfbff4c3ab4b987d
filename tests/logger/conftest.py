"""A sample with a value in every member, all numbers different."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ringmq.logger.records import LinkTraffic, Sample, Traffic

MakeSample = Callable[..., Sample]


@pytest.fixture(scope="session")
def make_sample() -> MakeSample:
    """Makes a new sample, with the given members changed."""

    def make(**changes: Any) -> Sample:
        sample = Sample(
            run="spring",
            peer="a" * 32,
            boot=1001,
            number=1002,
            at=1003.5,
            uptime_s=1004.5,
            address="10.0.0.1:4883",
            listeners={"mqtt": "10.0.0.1:1883", "mqtt_tls": "10.0.0.1:8883"},
            pid=1005,
            dispatching="guided",
            fanout=1006,
            cpu_s=1007.5,
            memory_bytes=300 << 20,
            clients=1008,
            subscriptions=1009,
            topics=1010,
            mqtt=Traffic(bytes_in=1011, bytes_out=1012, messages_in=1013, messages_out=1014, dropped=1015),
            overlay=Traffic(bytes_in=1016, bytes_out=1017, messages_in=1018, messages_out=1019, dropped=1020),
            log=Traffic(bytes_in=1021, bytes_out=1022, messages_in=1023, messages_out=1024, dropped=1025),
            links=[LinkTraffic(peer="b" * 32, bytes_in=1026, bytes_out=1027, queued_bytes=1028, rtt_s=0.25)],
            coordinated=1029,
            copied=1030,
            filters=1031,
            publishing=1032,
            waiting_bytes=1033,
            unacknowledged=1034,
            unrecorded=1035,
        )
        return replace(sample, **changes)

    return make
