"""The word of its shadows on which a coordinator gives leases: they obey its epochs, and no higher one.

A successor that acts while the ring still lists the coordinator has the answer of a shadow first. So while all shadows
give their word, there is none. Knows neither records nor the holders of leases.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Claim
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.followers import Follower, ItemStreams
from ringmq.peer.replication.partition_store import PartitionStore
from ringmq.peer.replication.space import numbered_runs
from ringmq.peer.streams.stream_messages import Lane


class Authority:
    """One per coordinator."""

    __slots__ = ("_claims", "_confirmed", "_followed", "_shadows", "_state", "_store", "_streams")

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        store: PartitionStore,
        shadows: Mapping[Id, Follower],
        followed: Mapping[int, tuple[Follower, ...]],
        confirmed: Callable[[], None],
    ) -> None:
        """`shadows` and `followed` belong to the copies and change. `confirmed` is called when `since` may have
        grown."""
        self._state = state
        self._streams = streams
        self._store = store
        self._shadows = shadows
        self._followed = followed
        self._confirmed = confirmed
        self._claims: dict[Follower, Claim] = {}
        """What each shadow is asked to confirm."""

    @property
    def since(self) -> float:
        """The last time at which all shadows are known to have obeyed this peer."""
        return min([shadow.vouched_at for shadow in self._shadows.values()], default=self._state.clock.now)

    def changed(self) -> None:
        """Partitions have other epochs or other shadows now."""
        self._claims = {}

    def claim(self, since: float = inf, but: Callable[[Peer], bool] | None = None) -> None:
        """Have all shadows confirm that they obey this peer, but those that have done so since that time, and those
        that `but` names."""
        for shadow in self._shadows.values():
            if shadow.vouched_at < since and (but is None or not but(shadow.peer)):
                self._claim(shadow)

    def claim_of(self, peer: Peer) -> None:
        """Likewise of one peer, if it is a shadow."""
        shadow = self._shadows.get(peer.id)
        if shadow is not None:
            self._claim(shadow)

    def _claim(self, shadow: Follower) -> None:
        if shadow.ready and not shadow.claiming:
            shadow.claiming = True
            vouched = partial(self._vouched, shadow, self._state.clock.now)
            # Not behind the beginnings of large partitions.
            self._streams.send(shadow.peer, self._claim_to(shadow), vouched, Lane.LOG)

    def _claim_to(self, shadow: Follower) -> Claim:
        claim = self._claims.get(shadow)
        if claim is None:
            epoch_of = self._store.epoch
            theirs = sorted(partition for partition, followers in self._followed.items() if shadow in followers)
            numbered = [(partition, epoch_of(partition).number) for partition in theirs]
            claim = self._claims[shadow] = Claim(numbered_runs(numbered))
        return claim

    def _vouched(self, shadow: Follower, at: float) -> None:
        shadow.claiming = False
        shadow.vouched_at = max(shadow.vouched_at, at)
        if self._shadows.get(shadow.peer.id) is shadow:
            self._confirmed()
