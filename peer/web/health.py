"""The health of a peer, as probes ask for it."""

from __future__ import annotations

from typing import NamedTuple


class Health(NamedTuple):
    """For `/healthz` and `/readyz`."""

    fault: str
    """Why this peer cannot go on; empty if nothing is wrong."""
    ready: bool
    """Whether it is in its ring, and its listeners serve."""
