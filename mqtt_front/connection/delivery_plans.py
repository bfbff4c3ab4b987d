"""The way of plain messages, those that are not retained and have no properties: whom each goes to, at once.

A plan is found by the topic's bytes as they stand in the packet, and holds until a subscription or a right changes.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.codec.fields import text_of
from ringmq.mqtt_front.connection.budget import NEW_TOPIC_BYTES, PLAIN_BYTES
from ringmq.mqtt_front.matching.receivers import Receivers, SharedGroup
from ringmq.mqtt_front.matching.router import Router
from ringmq.mqtt_front.sessions.session import Session

MAX_NAMES: Final = 16_384
"""Topics of which the bytes are remembered; beyond it all are forgotten and read again."""
LONGEST_TOPIC: Final = 512
"""Bytes. Longer ones are not remembered, so that the memory for them is bounded by more than their number."""


class Plan:
    """Whom a plain message to one topic goes to: just to `quick`, if it is not `slow` and there are no `groups`."""

    __slots__ = ("cost", "groups", "least_qos", "quick", "rights_turn", "slow", "topic")

    def __init__(self, topic: str, receivers: Receivers[Session], rights_turn: int) -> None:
        self.topic = topic
        self.rights_turn = rights_turn
        self.cost = PLAIN_BYTES
        """What it counts for to use it, beside the deliveries."""
        self.quick: list[Session] = []
        self.least_qos = 2
        """That one of them has subscribed with."""
        self.slow = is_of_the_log(topic)
        """Whether only the general way will do: for receivers that want something special, and for the topics of
        records, which are counted apart there."""
        self.groups: tuple[SharedGroup[Session], ...] = receivers.groups
        for receiver in receivers.each:
            if receiver.no_local or receiver.subscription_ids or receiver.session.rights is not ALL_RIGHTS:
                self.slow = True
            else:
                self.quick.append(receiver.session)
                self.least_qos = min(self.least_qos, receiver.qos)

    def made_now(self) -> Plan:
        """The same, for its first use, which counts for more."""
        first = copy(self)
        first.cost = NEW_TOPIC_BYTES
        return first


class Plans:
    """One per broker. A plan is kept with the router's answer, so that none outlives the sessions that it names."""

    def __init__(self, router: Router[Session]) -> None:
        self._router = router
        self._answers = router.answers
        self._names: dict[bytes, str] = {}
        self._rights_turn = 0

    def of(self, topic: bytes) -> Plan:
        """The plan for a topic as it stands in the packet. Raises PacketError for what is none."""
        try:
            plan: Plan | None = self._answers[self._names[topic]].plan  # type: ignore[assignment]  # set below
        except KeyError:
            return self._made(topic)
        return plan if plan is not None and plan.rights_turn == self._rights_turn else self._made(topic)

    def _made(self, topic: bytes) -> Plan:
        name = self._name_of(topic)
        receivers = self._router.receivers(name)
        plan = receivers.plan = Plan(name, receivers, self._rights_turn)
        return plan.made_now()

    def _name_of(self, topic: bytes) -> str:
        name = text_of(topic)
        if len(topic) <= LONGEST_TOPIC:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[topic] = name
        return name

    def forget_names(self) -> None:
        """They will be read anew; until then they take no room."""
        self._names.clear()

    def forget(self) -> None:
        """The rights of a session have changed."""
        self._rights_turn += 1
