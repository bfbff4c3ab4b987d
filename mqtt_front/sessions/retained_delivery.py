"""Delivery of retained messages to one client after a SUBSCRIBE: some in each iteration, no more than the client takes.

Owns the filters that are not finished, and the position in the first. A server with a million retained messages must
neither stand still while one client subscribes to `#`, nor drop the messages for which its outbox has no room. Messages
that the client received live meanwhile are left out. The rest is dropped when the connection ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.connection.budget import STEP_BYTES
from ringmq.mqtt_front.matching.receivers import Receiver
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.session import Session

STEPS_A_TURN: Final = 500
"""Nodes of the topic tree visited in one iteration for one client: less than a millisecond."""
LEAST_STEPS: Final = 50
"""The same in an iteration whose budget is used up."""


class Replay:
    """`expect` filters, `add` them, then call `advance` in each iteration until it is `finished`; `end` it then."""

    __slots__ = (
        "_broker",
        "_expected",
        "_filter",
        "_live",
        "_mark",
        "_most_queued",
        "_session",
        "_waiting",
        "_walk",
        "finished",
    )

    def __init__(self, broker: Broker, session: Session) -> None:
        self._broker = broker
        self._session = session
        self._most_queued = broker.config.max_queued // 2
        """The other half of the queue is for messages published meanwhile."""
        self._live = session.note_live(broker.retained)
        self._expected = 0
        self._waiting: dict[str, int] = {}
        """Filters, each with the mark of the moment when it was put into force."""
        self._filter = ""
        """The filter being served."""
        self._mark = 0
        self._walk: Iterator[str | None] = iter(())
        self.finished = False

    def expect(self) -> int:
        """Filters are put into force now; returns the mark with which to `add` them later."""
        self._expected += 1
        self.finished = False
        return self._live.mark

    def add(self, topic_filters: list[str], mark: int) -> None:
        """Send the messages that match the expected filters, after the filters added before.

        A filter added twice before it begins is sent once. The list may be empty.
        """
        self._expected -= 1
        for topic_filter in topic_filters:
            self._waiting[topic_filter] = max(mark, self._waiting.get(topic_filter, mark))

    def end(self) -> None:
        self._session.live = None

    def drop(self, topic_filter: str) -> None:
        """The client has unsubscribed. So there are no more filters here than subscriptions."""
        self._waiting.pop(topic_filter, None)

    def advance(self) -> bool:
        """Send the messages that this iteration allows; returns whether the next iteration can go on. If it cannot, an
        acknowledgement may change that, or a client that reads again.
        """
        work = self._broker.work
        for _ in range(STEPS_A_TURN if work.left > 0 else LEAST_STEPS):
            if not self._has_room():
                return False
            if not self._step():
                self.finished = not self._expected
                return False
            work.left -= STEP_BYTES
        return True

    def _has_room(self) -> bool:
        session = self._session
        quota = session.writer.quota if session.writer is not None else 0
        if not quota:
            return False
        queued = len(session.queue)
        # Half of a queue of one message or none is no room at all: then the client's quota is the room.
        return queued < self._most_queued or (not queued and len(session.inflight) < quota)

    def _step(self) -> bool:
        """Visit one node of the topic tree and send its message, if any. False: nothing is left to send now."""
        try:
            topic = next(self._walk)
        except StopIteration:
            return self._next_filter()
        if topic is None:
            return True
        broker = self._broker
        receiver = broker.router.filters(self._session).get(self._filter)
        if receiver is None:
            return self._next_filter()
        message = broker.retained.get(topic, broker.clock.now)
        if message is not None:
            self._send(receiver, message)
        return True

    def _next_filter(self) -> bool:
        self._walk = iter(())
        if not self._waiting:
            return False
        self._filter = next(iter(self._waiting))
        self._mark = self._waiting.pop(self._filter)
        self._walk = self._broker.retained.walk(self._filter)
        return True

    def _send(self, receiver: Receiver[Session], message: Message) -> None:
        session = self._session
        if receiver.no_local and message.origin == session.client_id:  # [MQTT-3.8.3-3]
            return
        if self._live.has(message, self._mark):
            return
        if session.rights is ALL_RIGHTS or session.rights.may_read(message.topic):
            session.deliver(message, min(message.qos, receiver.qos), True, receiver.subscription_ids)
