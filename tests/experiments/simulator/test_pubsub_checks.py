"""Each check finds the fault that it is for."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.pubsub import PubSubWorld
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.timing import LAN
from ringmq.peer.messaging.config import LAN as ROLES


class Scene:
    """A ring with a subscriber and a publisher."""

    def __init__(self, topic_filter: str = "a") -> None:
        self.world = PubSubWorld(1, LAN, config=ROLES)
        settled_ring(self.world, 8)
        self.subscriber, self.publisher = self.world.peers()[:2]
        self.world.subscribe(self.subscriber, topic_filter)
        self.world.run(1.0)
        self.subscription = self.subscriber.clients.filters[topic_filter]
        self.checks = self.world.pubsub_checks

    def quiet(self) -> None:
        self.checks.quiet(lossless=True)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_correct_run_passes_all_checks(scene: Scene) -> None:
    scene.world.publish(scene.publisher, "a", 1, retain=True)
    scene.world.run(2.0)
    scene.quiet()
    assert scene.checks.latest_ack_s > 0


def test_duplicate_delivery_is_found(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.0)
    scene.checks.got(scene.subscription, sent.number, live=True)
    with pytest.raises(InvariantBrokenError, match="twice"):
        scene.checks.got(scene.subscription, sent.number, live=False)


def test_delivery_to_two_members_of_a_group_is_found() -> None:
    scene = Scene("$share/g/a")
    scene.world.subscribe(scene.publisher, "$share/g/a")
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.0)
    scene.checks.got(scene.subscription, sent.number, live=True)
    with pytest.raises(InvariantBrokenError, match="group"):
        scene.checks.got(scene.publisher.clients.filters["$share/g/a"], sent.number, live=True)


def test_delivery_out_of_order_is_found(scene: Scene) -> None:
    first, second = (scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.0) for _ in range(2))
    scene.checks.got(scene.subscription, second.number, live=True)
    with pytest.raises(InvariantBrokenError, match="order"):
        scene.checks.got(scene.subscription, first.number, live=True)


def test_delivery_without_a_subscription_is_found(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "b", 1, False, 1.0)
    with pytest.raises(InvariantBrokenError, match="without"):
        scene.checks.got(scene.subscription, sent.number, live=True)


def test_message_done_before_its_delivery_is_found(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.5)
    with pytest.raises(InvariantBrokenError, match="not held"):
        scene.checks.done(sent, Reason.SUCCESS, 1.6)


def test_message_done_twice_is_found(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "b", 1, False, 1.0)
    scene.checks.done(sent, Reason.SUCCESS, 1.0)
    with pytest.raises(InvariantBrokenError, match="done twice"):
        scene.checks.done(sent, Reason.SUCCESS, 1.0)


def test_message_never_done_or_not_delivered_is_found_when_quiet(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "a", 0, False, 1.5)
    with pytest.raises(InvariantBrokenError, match="never done"):
        scene.quiet()
    scene.checks.done(sent, Reason.SUCCESS, 1.5)
    with pytest.raises(InvariantBrokenError, match="not reached"):
        scene.quiet()
    scene.checks.quiet(lossless=False)
    scene.checks.exempt(1.0, 2.0)
    scene.quiet()


@pytest.mark.parametrize(("times", "excused"), [((1.55, 2.0), True), ((1.0, 1.52), True), ((1.65, 2.0), False)])
def test_message_in_flight_in_exempt_time_is_excused(scene: Scene, times: tuple[float, float], excused: bool) -> None:
    scene.checks.exempt(*times)
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.5)
    for check in (lambda: scene.checks.done(sent, Reason.SUCCESS, 1.6), scene.quiet):
        with nullcontext() if excused else pytest.raises(InvariantBrokenError):
            check()


def test_message_of_a_dead_publisher_need_not_arrive(scene: Scene) -> None:
    scene.checks.publishing(scene.publisher.peer, "a", 1, True, 1.5)
    scene.checks.crashed(scene.publisher)
    scene.quiet()


def test_missing_retained_message_is_found(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, True, 0.0)
    scene.checks.done(sent, Reason.SUCCESS, 0.0)
    with pytest.raises(InvariantBrokenError, match="retained"):
        scene.quiet()


@pytest.mark.parametrize(("qos", "done_at", "lossless", "owed"), [
    (0, 0.0, False, True), (0, 0.1, False, False), (0, 0.1, True, True), (1, 0.1, False, True),
])  # fmt: skip
def test_retained_message_with_qos_0_may_be_lost_before_suback(
    qos: int, done_at: float, lossless: bool, owed: bool
) -> None:
    scene = Scene()
    sent = scene.checks.publishing(scene.publisher.peer, "a", qos, True, 0.0)
    scene.checks.done(sent, Reason.SUCCESS, done_at)
    with pytest.raises(InvariantBrokenError, match="retained") if owed else nullcontext():
        scene.checks.quiet(lossless)


def test_entry_without_a_subscription_is_found(scene: Scene) -> None:
    del scene.subscriber.clients.filters["a"]
    with pytest.raises(InvariantBrokenError, match="wrong entries"):
        scene.checks.settled()


def test_losses_are_counted_if_they_are_allowed(scene: Scene) -> None:
    scene.checks.lenient = True
    done = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.5)
    scene.checks.done(done, Reason.SUCCESS, 1.6)
    kept = scene.checks.publishing(scene.publisher.peer, "a", 0, True, 0.0)
    scene.checks.done(kept, Reason.SUCCESS, 0.0)
    scene.quiet()
    assert scene.checks.losses == {"done, but not held": 1, "not reached": 1, "retained and never seen": 1}


def test_second_member_may_get_a_message_after_the_first_has_died() -> None:
    scene = Scene("$share/g/a")
    scene.world.subscribe(scene.publisher, "$share/g/a")
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.0)
    scene.checks.got(scene.subscription, sent.number, live=True)
    scene.checks.crashed(scene.subscriber)
    scene.checks.got(scene.publisher.clients.filters["$share/g/a"], sent.number, live=True)


def test_group_without_a_delivery_is_found_unless_a_member_left() -> None:
    scene = Scene("$share/g/a")
    sent = scene.world.publish(scene.publisher, "a", 1)
    scene.world.run(2.0)
    scene.quiet()
    scene.checks._group_got.clear()
    with pytest.raises(InvariantBrokenError, match="no member of"):
        scene.quiet()
    assert sent.done_at is not None
    scene.subscription.removed_at = sent.done_at
    scene.checks._all_reached(lossless=True)


def test_messages_to_a_peer_that_is_exempt_may_be_missing(scene: Scene) -> None:
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, 1.5)
    scene.checks.exempt_peer(scene.publisher.peer, 1.0, 2.0)
    with pytest.raises(InvariantBrokenError, match="not held"):
        scene.checks.done(sent, Reason.SUCCESS, 1.6)
    scene.checks.exempt_peer(scene.subscriber.peer, 1.0, 2.0)
    scene.quiet()
