"""Delivery plans of the fast path: the receivers of a topic, and the name of a topic by its bytes in the packet.

Owns the plans and the names of the topics seen. A plan holds until a subscription or a right changes. As it names
sessions, it is kept with the router's answer, which all topics with the same filters share, and goes with it.
"""

from __future__ import annotations

from copy import copy
from typing import Final

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


class TopicNames(dict[bytes, str]):
    """Topic names by their bytes. Raises PacketError for bytes that are no text."""

    def __missing__(self, topic: bytes) -> str:
        name = text_of(topic)
        if len(topic) <= LONGEST_TOPIC:
            if len(self) >= MAX_NAMES:
                self.clear()
            self[topic] = name
        return name


class Plan:
    """The receivers of some topics for messages that are not retained and have no properties."""

    __slots__ = ("cost", "fast", "first", "least_qos", "rights_version", "sessions", "special")

    def __init__(self, receivers: Receivers[Session], rights_version: int, serves_groups: bool) -> None:
        self.rights_version = rights_version
        self.cost = FAST_BYTES
        """Price of using the plan, beside the deliveries."""
        self.sessions: list[Session] = []
        """All receivers, unless the plan is `special`."""
        self.least_qos = 2
        """The lowest QoS of their subscriptions."""
        self.special = receivers.apart
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
        first = copy(self)
        first.cost = NEW_TOPIC_BYTES
        self.first = first
        """The same plan for the first message to a topic, which counts for more."""


class Plans:
    """The plans of one broker."""

    def __init__(self, router: Router[Session], serves_groups: bool = False) -> None:
        """`serves_groups`: the cluster chooses the members of groups (`Cluster.serves_groups`)."""
        self._router = router
        self._serves_groups = serves_groups
        self._answers = router.answers
        self._rights_version = 0

    def of(self, name: str) -> Plan:
        """The plan for a topic. Raises PacketError if it is no topic name."""
        try:
            # The router ends an answer, and the plan with it, when a subscription changes. A table of plans alone
            # would keep ended sessions alive.
            plan: Plan | None = self._answers[name].plan  # type: ignore[assignment]  # set below
        except KeyError:
            return self._first(name)
        return plan if plan is not None and plan.rights_version == self._rights_version else self._first(name)

    def _first(self, name: str) -> Plan:
        receivers = self._router.receivers(name)
        plan: Plan | None = receivers.plan  # type: ignore[assignment]  # set below
        if plan is None or plan.rights_version != self._rights_version:
            plan = receivers.plan = Plan(receivers, self._rights_version, self._serves_groups)
        return plan.first

    def forget(self) -> None:
        """The rights of a session have changed."""
        self._rights_version += 1
