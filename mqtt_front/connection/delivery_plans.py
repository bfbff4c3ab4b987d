"""Delivery plans of the fast path: the receivers of a topic, found by the topic's bytes as they stand in the packet.

Owns the plans and the names of the topics seen. A plan holds until a subscription or a right changes. As it names
sessions, it is kept with the router's answer for its topic and goes with it.
"""

from __future__ import annotations

from copy import copy
from typing import Final

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.codec.fields import text_of
from ringmq.mqtt_front.connection.budget import FAST_BYTES, NEW_TOPIC_BYTES
from ringmq.mqtt_front.matching.receivers import Receivers
from ringmq.mqtt_front.matching.router import Router
from ringmq.mqtt_front.sessions.session import Session

MAX_NAMES: Final = 16_384
"""Topics whose bytes are remembered. When there are more, all are forgotten and read again."""
LONGEST_TOPIC: Final = 512
"""Bytes. Longer topics are not remembered: 16,384 topics of 64 kB would take 1 GB."""


class Plan:
    """The receivers of one topic for messages that are not retained and have no properties."""

    __slots__ = ("cost", "fast", "least_qos", "rights_version", "sessions", "special", "topic")

    def __init__(self, topic: str, receivers: Receivers[Session], rights_version: int, serves_groups: bool) -> None:
        self.topic = topic
        self.rights_version = rights_version
        self.cost = FAST_BYTES
        """Price of using the plan, beside the deliveries."""
        self.sessions: list[Session] = []
        """All receivers, unless the plan is `special`."""
        self.least_qos = 2
        """The lowest QoS of their subscriptions."""
        self.special = is_of_the_log(topic)
        """Whether every message takes the general path: a receiver wants something special, or the messages are
        records, which the general path counts apart."""
        for receiver in receivers.each:
            if receiver.no_local or receiver.subscription_ids or receiver.session.rights is not ALL_RIGHTS:
                self.special = True
            else:
                self.sessions.append(receiver.session)
                self.least_qos = min(self.least_qos, receiver.qos)
        self.fast = not self.special and (serves_groups or not receivers.groups)
        """Whether messages of clients here may take the fast path, too: nobody here has to choose members of groups."""

    def made_now(self) -> Plan:
        """The same plan for its first use, which counts for more."""
        first = copy(self)
        first.cost = NEW_TOPIC_BYTES
        return first


class Plans:
    """The plans of one broker."""

    def __init__(self, router: Router[Session], serves_groups: bool = False) -> None:
        """`serves_groups`: the cluster chooses the members of groups (`Cluster.serves_groups`)."""
        self._router = router
        self._serves_groups = serves_groups
        self._answers = router.answers
        self._names: dict[bytes, str] = {}
        self._rights_version = 0

    def of(self, topic: bytes) -> Plan:
        """The plan for a topic as it stands in the packet. Raises PacketError if it is no topic name."""
        try:
            # The router drops an answer, and the plan with it, when a subscription changes. A table of plans alone
            # would keep ended sessions alive.
            plan: Plan | None = self._answers[self._names[topic]].plan  # type: ignore[assignment]  # set below
        except KeyError:
            return self._made(topic)
        return plan if plan is not None and plan.rights_version == self._rights_version else self._made(topic)

    def _made(self, topic: bytes) -> Plan:
        name = self._name_of(topic)
        receivers = self._router.receivers(name)
        plan = receivers.plan = Plan(name, receivers, self._rights_version, self._serves_groups)
        return plan.made_now()

    def _name_of(self, topic: bytes) -> str:
        name = text_of(topic)
        if len(topic) <= LONGEST_TOPIC:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            self._names[topic] = name
        return name

    def forget_names(self) -> None:
        """Free the memory of the names. Each is read again when its topic is published to."""
        self._names.clear()

    def forget(self) -> None:
        """The rights of a session have changed."""
        self._rights_version += 1
