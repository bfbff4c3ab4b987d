"""The stages of a filter of the clients here, and the table of their transitions.

    ASKING ── granted ──▶ FETCHING ── fetched ──▶ IN_FORCE
    IN_FORCE ── changed ──▶ CHANGING ── granted ──▶ IN_FORCE
    any of these ── lapsed ──▶ ASKING
    any of these ── removed ──▶ LEAVING ── ended, replaced ──▶ GONE
    ASKING ── refused ──▶ REFUSED ── retried ──▶ ASKING, or removed ──▶ GONE

The table is the protocol: an event that it does not have for a stage is a defect, and raises KeyError. Knows neither
messages nor timers; `subscriber.py` turns them into events. Stages and events are integers, since the hash of another
Enum is computed by Python code, and each filter of a crowd looks several of them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, auto
from types import MappingProxyType
from typing import Final


class FilterStage(IntEnum):
    ASKING = auto()
    """The coordinator has not granted the subscription yet."""
    FETCHING = auto()
    """Publications arrive; retained messages are missing."""
    IN_FORCE = auto()
    """The clients have their SUBACK; the lease is renewed."""
    REFUSED = auto()
    """The coordinator has no room for the filter, and knows nothing of it."""
    CHANGING = auto()
    """It is in force, and the coordinator has not granted yet that it is lasting, or is so no more."""
    LEAVING = auto()
    """No client wants the filter any more; the coordinator has not confirmed the end yet."""
    GONE = auto()


class FilterEvent(IntEnum):
    GRANTED = auto()
    """The coordinator has the subscription, and so have its shadows and all publishers."""
    FETCHED = auto()
    """All retained messages are here."""
    LAPSED = auto()
    """The coordinator knows an end of the subscription: it was not renewed in time, or belongs to an earlier boot."""
    REFUSED = auto()
    """Quota exceeded: the partition is full."""
    RETRIED = auto()
    """A client wants the filter once more, some time has passed, or there is another coordinator."""
    CHANGED = auto()
    """The subscription is lasting from now on, or is so no more: an entry with a higher number replaces its present
    one, which counts until then."""
    REMOVED = auto()
    """No client here wants the filter any more."""
    ENDED = auto()
    """The coordinator has confirmed the end."""
    REPLACED = auto()
    """A client wants the filter again before the end was confirmed: a new subscription with a higher number begins."""


FINAL: Final = frozenset({FilterStage.GONE})

TRANSITIONS: Final[Mapping[FilterStage, Mapping[FilterEvent, FilterStage]]] = MappingProxyType(
    {
        FilterStage.ASKING: {
            FilterEvent.GRANTED: FilterStage.FETCHING,
            FilterEvent.LAPSED: FilterStage.ASKING,
            FilterEvent.REFUSED: FilterStage.REFUSED,
            FilterEvent.CHANGED: FilterStage.ASKING,
            FilterEvent.REMOVED: FilterStage.LEAVING,
        },
        FilterStage.FETCHING: {
            FilterEvent.FETCHED: FilterStage.IN_FORCE,
            FilterEvent.LAPSED: FilterStage.ASKING,
            FilterEvent.CHANGED: FilterStage.ASKING,
            FilterEvent.REMOVED: FilterStage.LEAVING,
        },
        FilterStage.IN_FORCE: {
            FilterEvent.LAPSED: FilterStage.ASKING,
            FilterEvent.CHANGED: FilterStage.CHANGING,
            FilterEvent.REMOVED: FilterStage.LEAVING,
        },
        FilterStage.CHANGING: {
            FilterEvent.GRANTED: FilterStage.IN_FORCE,
            FilterEvent.LAPSED: FilterStage.ASKING,
            FilterEvent.CHANGED: FilterStage.CHANGING,
            FilterEvent.REFUSED: FilterStage.REFUSED,
            FilterEvent.REMOVED: FilterStage.LEAVING,
        },
        FilterStage.REFUSED: {
            FilterEvent.RETRIED: FilterStage.ASKING,
            FilterEvent.REMOVED: FilterStage.GONE,
        },
        FilterStage.LEAVING: {
            FilterEvent.ENDED: FilterStage.GONE,
            FilterEvent.REPLACED: FilterStage.GONE,
        },
        FilterStage.GONE: {},
    }
)
