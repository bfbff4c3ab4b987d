"""The keep-alive of a connection, and the time that a client has for its CONNECT. Knows no timers: the server checks
all connections once a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.phase import Phase
from ringmq.mqtt_front.counters import FrontCounters

if TYPE_CHECKING:
    from ringmq.mqtt_front.connection.connection import Connection

PATIENCE: Final = 1.5
"""A client may be silent for this factor of its keep-alive [MQTT-3.1.2-22]; in 3.1.1 [MQTT-3.1.2-24]."""


def keep_alive_s(connect: Connect, config: FrontConfig) -> int:
    """The keep-alive; 0 means none. Only 5.0 lets the server choose another than the client asked for."""
    asked = connect.keep_alive_s
    if connect.version is not Version.V5 or config.max_keep_alive_s == 65535:
        return asked
    return min(asked or config.max_keep_alive_s, config.max_keep_alive_s)


def check_silence(connection: Connection, now: float, config: FrontConfig, counters: FrontCounters) -> None:
    """Close a connection whose client was silent for too long. Call it once a second."""
    if connection.phase is Phase.OPEN:
        if connection.pausing:  # Its bytes are not read at the moment, so its silence proves nothing.
            connection.reader.hear()
        # A keep-alive of 0 turns the check off (§3.1.2.10).
        elif connection.keep_alive_s and now - connection.reader.heard_at > PATIENCE * connection.keep_alive_s:
            counters.keep_alive_timeouts += 1
            connection.fail(Reason.KEEP_ALIVE_TIMEOUT, "nothing received for 1.5 times the keep-alive")
    # §3.1.4: the server should close a connection on which no CONNECT arrives within a reasonable time.
    elif connection.phase is not Phase.ENROLLING and now - connection.opened_at > config.connect_timeout_s:
        connection.fail(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT received in time")
