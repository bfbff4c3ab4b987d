"""Filters that a full partition has refused, and when they are registered again. Knows no messages."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from ringmq.peer.engines.partitioned.subscribing.local_filter import LocalFilter
from ringmq.peer.messaging.context import MessagingContext

RETRY_S: Final = 30.0
RETRIED_AT_ONCE: Final = 1000
"""How often, and how many of the filters that were refused are registered again. Only a client's own SUBSCRIBE need not
wait for that."""


class RefusedFilters:
    """One per engine. Truth value: whether there are any."""

    __slots__ = ("_filters", "_register", "_retrying", "_state")

    def __init__(self, state: MessagingContext, register: Callable[[LocalFilter], None]) -> None:
        """`register` is called with a filter that is refused no more, as it is registered again."""
        self._state = state
        self._register = register
        self._filters: dict[LocalFilter, None] = {}
        """The longest refused first."""
        self._retrying = False

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, own: LocalFilter) -> None:
        self._filters[own] = None
        self._retry_later()

    def remove(self, own: LocalFilter) -> None:
        del self._filters[own]

    def retry(self, own: LocalFilter) -> None:
        """Register a filter once more."""
        del self._filters[own]
        self._register(own)

    def _retry_all(self) -> None:
        """Sessions of clients that are away, or that had the filter before, may find room by now."""
        self._retrying = False
        for own in list(islice(self._filters, RETRIED_AT_ONCE)):
            self.retry(own)
        self._retry_later()

    def _retry_later(self) -> None:
        # Most refused filters are removed at once, so that a timer for each would be too many.
        if self._filters and not self._retrying:
            self._retrying = True
            self._state.after(RETRY_S, self._retry_all)
