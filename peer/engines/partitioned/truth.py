"""What a record of another peer must be to be believed, before anything is stored or passed on.

A record in a wrong partition is found by nobody, one with an invalid name stops whoever looks at it, and a number from
a distant future outranks for ever whatever its true writer says later.
"""

from __future__ import annotations

from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_filter, check_topic_name
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.coordinating.lasting import away_since, is_away
from ringmq.peer.engines.partitioned.enrolling.member import decode_member
from ringmq.peer.engines.partitioned.names import NameHash
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.record import Number, RecordKind, SharedRecord


class Truth:
    """One per engine. Each question counts what it refuses, in `false_records`."""

    __slots__ = ("_names", "_state")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._names = NameHash(state.config.hash_seed)

    def accepts(self, partition: int, record: SharedRecord) -> bool:
        """Whether a record can be one of this partition."""
        if record.kind is RecordKind.RETAINED:
            return self.accepts_retained(partition, record.name, record.number) and record.home is None
        home = record.home
        if home is None or self._state.is_far_boot(home.boot):
            return self._refused()
        if record.kind is RecordKind.CLIENT_ID:
            return self.accepts_client_id(partition, record.name, record.number) and self._has_member(record)
        # It would be kept for ever, and the disk has no room for a time of 64 bits.
        if is_away(record) and self._state.is_far(away_since(record) * 1_000_000):
            return self._refused()
        return self.accepts_entry(partition, record.name, record.number)

    def accepts_entry(self, partition: int, topic_filter: str, number: Number) -> bool:
        """Whether a home can have this filter in this partition."""
        far = self._state.is_far_boot(number[0])
        return self.accepts_filter(topic_filter) and (
            (not far and self._names.partition_of_filter(topic_filter) == partition) or self._refused()
        )

    def accepts_filter(self, topic_filter: str) -> bool:
        try:
            check_filter(topic_filter)
        except PacketError:
            return self._refused()
        return True

    def accepts_retained(self, partition: int, topic: str, number: Number) -> bool:
        """Whether a message for this topic can be retained there."""
        try:
            check_topic_name(topic)
        except PacketError:
            return self._refused()
        return (self._names.partition_of(topic) == partition and not self._state.is_far(number[0])) or self._refused()

    def accepts_client_id(self, partition: int, client_id: str, number: Number) -> bool:
        """Whether a client id can have an enrolment of this number there."""
        known = bool(client_id) and self._names.partition_of(client_id) == partition
        return (known and not self._state.is_far(number[0])) or self._refused()

    def _has_member(self, record: SharedRecord) -> bool:
        if record.gone:
            return True
        try:
            decode_member(record.body)
        except ProtocolError:
            return self._refused()
        return True

    def _refused(self) -> bool:
        self._state.counters.false_records += 1
        return False
