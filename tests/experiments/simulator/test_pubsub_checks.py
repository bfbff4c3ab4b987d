"""Each check finds what it is there to find."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.timing import LAN
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.messaging.config import LAN as ROLES
from ringmq.peer.messaging.partitions import place_of


class Story:
    """A ring in which one peer has subscribed and another publishes."""

    def __init__(self, topic_filter: str = "a") -> None:
        self.world = PubSubWorld(1, LAN, config=ROLES)
        settled_ring(self.world, 8)
        self.one, self.two = self.world.peers()[:2]
        self.world.subscribe(self.one, topic_filter)
        self.world.run(1.0)
        self.subscription = self.one.clients.filters[topic_filter]
        self.told = self.world.told

    def quiet(self) -> None:
        self.told.quiet(lossless=True)

    def holders(self) -> list[PubSubNode]:
        place = place_of(self.subscription.filter)
        return [node for node in self.world.peers() if node.core.replicas.get(place) is not None]


@pytest.fixture
def story() -> Story:
    return Story()


def test_all_is_well(story: Story) -> None:
    story.world.publish(story.two, "a", 1, retain=True)
    story.world.run(2.0)
    story.quiet()
    assert story.told.latest_ack_s > 0


def test_twice(story: Story) -> None:
    sent = story.told.publishing(story.two.peer, "a", 1, False, 1.0)
    story.told.got(story.subscription, sent.number, live=True)
    with pytest.raises(InvariantBrokenError, match="twice"):
        story.told.got(story.subscription, sent.number, live=False)


def test_twice_in_a_group() -> None:
    story = Story("$share/g/a")
    story.world.subscribe(story.two, "$share/g/a")
    sent = story.told.publishing(story.two.peer, "a", 1, False, 1.0)
    story.told.got(story.subscription, sent.number, live=True)
    with pytest.raises(InvariantBrokenError, match="group"):
        story.told.got(story.two.clients.filters["$share/g/a"], sent.number, live=True)


def test_order(story: Story) -> None:
    first, second = (story.told.publishing(story.two.peer, "a", 1, False, 1.0) for _ in range(2))
    story.told.got(story.subscription, second.number, live=True)
    with pytest.raises(InvariantBrokenError, match="order"):
        story.told.got(story.subscription, first.number, live=True)


def test_without_a_subscription(story: Story) -> None:
    sent = story.told.publishing(story.two.peer, "b", 1, False, 1.0)
    with pytest.raises(InvariantBrokenError, match="without"):
        story.told.got(story.subscription, sent.number, live=True)


def test_done_but_not_held(story: Story) -> None:
    sent = story.told.publishing(story.two.peer, "a", 1, False, 1.5)
    with pytest.raises(InvariantBrokenError, match="not held"):
        story.told.done(sent, Reason.SUCCESS, 1.6)


def test_done_twice(story: Story) -> None:
    sent = story.told.publishing(story.two.peer, "b", 1, False, 1.0)
    story.told.done(sent, Reason.SUCCESS, 1.0)
    with pytest.raises(InvariantBrokenError, match="done twice"):
        story.told.done(sent, Reason.SUCCESS, 1.0)


def test_never_done_and_not_reached(story: Story) -> None:
    sent = story.told.publishing(story.two.peer, "a", 0, False, 1.5)
    with pytest.raises(InvariantBrokenError, match="never done"):
        story.quiet()
    story.told.done(sent, Reason.SUCCESS, 1.5)
    with pytest.raises(InvariantBrokenError, match="not reached"):
        story.quiet()
    story.told.quiet(lossless=False)
    story.told.blur(1.0, 2.0)
    story.quiet()


@pytest.mark.parametrize(("blur", "excused"), [((1.55, 2.0), True), ((1.0, 1.52), True), ((1.65, 2.0), False)])
def test_what_was_on_its_way_when_not_all_could_be_reached(
    story: Story, blur: tuple[float, float], excused: bool
) -> None:
    story.told.blur(*blur)
    sent = story.told.publishing(story.two.peer, "a", 1, False, 1.5)
    for check in (lambda: story.told.done(sent, Reason.SUCCESS, 1.6), story.quiet):
        with nullcontext() if excused else pytest.raises(InvariantBrokenError):
            check()


def test_what_the_dead_published_need_not_arrive(story: Story) -> None:
    story.told.publishing(story.two.peer, "a", 1, True, 1.5)
    story.told.crashed(story.two)
    story.quiet()


def test_retained_and_never_seen(story: Story) -> None:
    sent = story.told.publishing(story.two.peer, "a", 1, True, 0.0)
    story.told.done(sent, Reason.SUCCESS, 0.0)
    with pytest.raises(InvariantBrokenError, match="retained"):
        story.quiet()


@pytest.mark.parametrize(("qos", "done_at", "lossless", "owed"), [
    (0, 0.0, False, True), (0, 0.1, False, False), (0, 0.1, True, True), (1, 0.1, False, True),
])  # fmt: skip
def test_with_qos_0_what_is_retained_may_be_lost_before_suback(
    qos: int, done_at: float, lossless: bool, owed: bool
) -> None:
    story = Story()
    sent = story.told.publishing(story.two.peer, "a", qos, True, 0.0)
    story.told.done(sent, Reason.SUCCESS, done_at)
    with pytest.raises(InvariantBrokenError, match="retained") if owed else nullcontext():
        story.told.quiet(lossless)


def test_what_is_held_is_not_what_is_wanted(story: Story) -> None:
    del story.one.clients.filters["a"]
    with pytest.raises(InvariantBrokenError, match="not what is wanted"):
        story.told.settled()


def test_a_shadow_that_differs(story: Story) -> None:
    shadow = next(node for node in story.holders() if not node.core.replicas.open("a").coordinates)
    record = Record(Kind.RETAINED, "a", None, (1, 1), False)
    shadow.core.replicas.open("a").book.put(record)
    with pytest.raises(InvariantBrokenError, match="shadow differs"):
        story.told.settled()


def test_no_coordinator(story: Story) -> None:
    coordinator = next(node for node in story.holders() if node.core.replicas.open("a").coordinates)
    coordinator.core.replicas.open("a").end()
    with pytest.raises(InvariantBrokenError, match="no coordinator"):
        story.told.settled()


def test_held_by_others(story: Story) -> None:
    other = next(node for node in story.world.peers() if node not in story.holders())
    other.core.replicas.open("a")
    with pytest.raises(InvariantBrokenError, match="held by others"):
        story.told.settled()


def test_suback_before_the_shadows_hold_it(story: Story) -> None:
    for node in story.holders()[:2]:
        replica = node.core.replicas.open("a")
        replica.book.forget((Kind.ENTRY, "a", story.one.peer.id))
    with pytest.raises(InvariantBrokenError, match="held by 1"):
        story.told.acknowledged(story.subscription)
    for node in story.holders()[:2]:
        story.told.crashed(node)
    story.told.acknowledged(story.subscription)


def test_losses_are_counted_where_they_may_happen(story: Story) -> None:
    story.told.lenient = True
    done = story.told.publishing(story.two.peer, "a", 1, False, 1.5)
    story.told.done(done, Reason.SUCCESS, 1.6)
    kept = story.told.publishing(story.two.peer, "a", 0, True, 0.0)
    story.told.done(kept, Reason.SUCCESS, 0.0)
    story.quiet()
    assert story.told.losses == {"done, but not held": 1, "not reached": 1, "retained and never seen": 1}


def test_twice_in_a_group_of_which_one_has_died() -> None:
    story = Story("$share/g/a")
    story.world.subscribe(story.two, "$share/g/a")
    sent = story.told.publishing(story.two.peer, "a", 1, False, 1.0)
    story.told.got(story.subscription, sent.number, live=True)
    story.told.crashed(story.one)
    story.told.got(story.two.clients.filters["$share/g/a"], sent.number, live=True)


def test_a_group_that_is_not_reached() -> None:
    story = Story("$share/g/a")
    sent = story.world.publish(story.two, "a", 1)
    story.world.run(2.0)
    story.quiet()
    story.told._group_got.clear()
    with pytest.raises(InvariantBrokenError, match="nobody of"):
        story.quiet()
    assert sent.done_at is not None
    story.subscription.removed_at = sent.done_at
    story.told._all_reached(lossless=True)
