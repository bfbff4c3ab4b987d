"""The way of plain messages, those of QoS 0 that are not retained and have no properties: whom each goes to, at once.

A plan is found by the topic's bytes as they stand in the packet, and holds until a subscription or a right changes.
"""

from __future__ import annotations

from typing import Final

from mqtt_front.acl import ALL_RIGHTS
from mqtt_front.fields import text_of
from mqtt_front.receivers import Receiver, Receivers, SharedGroup
from mqtt_front.router import Router
from mqtt_front.session import Session

MAX_PLANS: Final = 16_384
"""Topics for which a plan is remembered; beyond it all are forgotten and found again."""
LONGEST_TOPIC: Final = 512
"""Bytes. Longer ones are not remembered, so that the memory for plans is bounded by more than their number."""


class Plan:
    """Whom a plain message to one topic goes to: just to `quick`, if `slow` and `groups` are empty."""

    __slots__ = ("groups", "quick", "receivers", "slow", "topic")

    def __init__(self, topic: str, receivers: Receivers[Session]) -> None:
        self.topic = topic
        self.receivers = receivers
        self.quick: list[Session] = []
        self.slow: list[Receiver[Session]] = []
        self.groups: tuple[SharedGroup[Session], ...] = receivers.groups
        for receiver in receivers.each:
            if receiver.no_local or receiver.subscription_ids or receiver.session.rights is not ALL_RIGHTS:
                self.slow.append(receiver)
            else:
                self.quick.append(receiver.session)


class Plans:
    """One per broker."""

    def __init__(self, router: Router[Session]) -> None:
        self._router = router
        self._plans: dict[bytes, Plan] = {}

    def of(self, topic: bytes) -> Plan:
        """The plan for a topic as it stands in the packet. Raises PacketError for what is none."""
        plan = self._plans.get(topic)
        if plan is not None and plan.receivers is self._router.receivers(plan.topic):
            return plan
        name = text_of(topic)
        plan = Plan(name, self._router.receivers(name))
        if len(topic) <= LONGEST_TOPIC:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[topic] = plan
        return plan

    def forget(self) -> None:
        """The rights of a session have changed."""
        self._plans.clear()
