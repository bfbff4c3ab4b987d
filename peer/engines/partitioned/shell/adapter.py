"""The shell of the partitioned engine: creates it, and owns the disk of the records that this peer keeps for others."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.cluster import Enrolment, Settled
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sessions.moving_session import Origin
from ringmq.overlay.node import Node
from ringmq.overlay.timer import Timer
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.publishing.assembly import Address
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import NO_DISK, LocalClients
from ringmq.peer.messaging.shell.adapter import EngineAdapter, clock_us
from ringmq.peer.resources.processor import waited_s

CHECKPOINT_S: Final = 1.0
"""Between two checkpoints of the store, while it has changes to move."""
CHANCE_BITS: Final = 63
"""Random bits in the number of a retained message from before this peer had a ring: they distinguish publishers."""


class PartitionedAdapter(EngineAdapter[PartitionedEngine]):
    """See `EngineAdapter`."""

    def __init__(
        self,
        config: PubSubConfig,
        iteration: Iteration,
        on_activity: Callable[[bool], None] | None = None,
        store: RecordStore | None = None,
        on_fault: Callable[[], None] | None = None,
        former: Collection[Address] = (),
    ) -> None:
        """The records that this peer keeps for others outlive it in a store, if there is one; `stop` closes it. When it
        fails, `fault` is set and `on_fault` called. `former` are the addresses of the peers that this one knew before:
        publications wait for them for a bounded time. Raises StoreError."""
        self._config = config
        self._store = store
        self._has_disk = store is not None
        self._on_fault = on_fault
        self._checkpoint_timer = Timer(self._checkpoint)
        super().__init__(iteration, on_activity)
        self.core.measure_waits(waited_s)
        if store is not None:
            self.core.restore(*store.load())
            self.core.await_ring(former)

    def _new_engine(self, clients: LocalClients) -> PartitionedEngine:
        disk = NO_DISK if self._store is None else self._store
        return PartitionedEngine(self, clients, self._config, disk, self._iteration, self._owing, clock_us)

    def attach(self, node: Node, front: MqttServer | AmqttServer | None = None) -> None:
        super().attach(node, front)
        if isinstance(front, MqttServer):
            self.core.enrolments.clients = front.broker
            self.core.enrolments.moves.sessions = front.broker.moves
            front.broker.moves.on_busy = self.core.note_origins

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        if self._early is not None:
            self._early.append(partial(self.enrol, enrolment, settled))
            return
        self._iteration.begin()
        self.core.enrol(enrolment, settled)

    def discharge(self, client_id: str) -> None:
        if self._early is not None:
            self._early.append(partial(self.discharge, client_id))
        elif client_id in self.core.enrolments:
            self._iteration.begin()
            self.core.discharge(client_id)

    def next_origin(self) -> Origin:
        return self.core.next_origin()

    def arrived(self, client_id: str) -> None:
        self._iteration.begin()
        self.core.arrived(client_id)

    def stop(self) -> None:
        if self._stopped:
            return
        # A message that was just published may wait for another role of this peer.
        self.core.join()
        self._commit()
        super().stop()
        self._checkpoint_timer.stop()
        if self._store is not None:
            self._store.close()

    def take_over(self, messages: list[Message]) -> bool:
        """If there is no store, the front keeps the messages: a restart would lose them here."""
        if self._store is None:
            return False
        for message in messages:
            body = encode_body(message, self._iteration.now)
            self.core.take_over(message.topic, body, secrets.randbits(CHANCE_BITS))
        # The front deletes its own copies if this returns True, so the messages must be on the disk by then.
        self._commit()
        return self.fault is None

    def _commit(self) -> None:
        if self._store is not None:
            self._write(self._store, self._store.commit)

    def _checkpoint(self) -> None:
        if self._store is not None:
            self._write(self._store, self._store.checkpoint)

    def _write(self, store: RecordStore, write: Callable[[], None]) -> None:
        if self.fault is None and not self._stopped:
            try:
                write()
                if store.logged:
                    self._checkpoint_timer.set(self._iteration.now + CHECKPOINT_S)
            except Exception as error:  # noqa: BLE001 - whatever failed, the changes are not on the disk
                self.fault = str(error)
                if self._on_fault is not None:
                    self._on_fault()
