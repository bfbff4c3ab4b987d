"""The command for the next machine, as `ringmq invite` prints it.

Knows which settings all peers of a ring must share. Changes nothing.
"""

from __future__ import annotations

import shlex
from typing import Final

from ringmq.overlay.config import show
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.settings.addresses import is_loopback
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.tokens import Token

SHARED: Final = ("ring", "timing", "hash_seed", "shadows")
"""Settings that the peers of a ring share, with the names of their options."""


def join_line(config: PeerConfig, token: Token) -> str:
    """The command for a machine like the one with these settings."""
    words = ["ringmq", "peer"]
    default = PeerConfig()
    for name in SHARED:
        value = getattr(config, name)
        if value != getattr(default, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    if config.dispatch == SCRIBE:
        words += ["--dispatch", SCRIBE]
    if config.mqtt is not None and is_loopback(config.mqtt[0]) and config.mqtt[1]:
        words += ["--mqtt", show(config.mqtt)]
    words += ["--data", str(config.data), "--join", str(token)]
    return shlex.join(words)
