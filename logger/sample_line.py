"""A sample as a log line for people: the few numbers that show the condition of a peer."""

from __future__ import annotations

from typing import Final

import structlog

from ringmq.logger.log_setup import LEVELS
from ringmq.logger.records import Sample

_MIB: Final = 1 << 20
_log = structlog.get_logger()


def log_sample(sample: Sample, level: str) -> None:
    """Log the sample at this level, a key of LEVELS. All numbers except clients, links and memory count from the start
    of the peer."""
    _log.log(
        LEVELS[level],
        "sample",
        uptime_s=round(sample.uptime_s),
        cpu_s=round(sample.cpu_s, 1),
        memory_mib=round(sample.memory_bytes / _MIB),
        clients=sample.clients,
        links=len(sample.links),
        messages_in=sample.mqtt.messages_in,
        messages_out=sample.mqtt.messages_out,
        from_peers=sample.overlay.messages_in,
        to_peers=sample.overlay.messages_out,
        dropped=sample.mqtt.dropped + sample.overlay.dropped,
        unrecorded=sample.unrecorded,
    )
