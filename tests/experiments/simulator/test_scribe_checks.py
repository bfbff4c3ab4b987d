"""Each check of trees finds what it is there to find, and no more than Scribe promises is asked of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator import scribe_checks
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.experiments.simulator.pubsub_checks import PubSubChecks
from ringmq.experiments.simulator.scribe_checks import ScribeChecks
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.timing import LAN
from ringmq.peer.engines.scribe.config import LAN as TREES
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.tree import Tree
from ringmq.peer.messaging.config import LAN as ROLES


class Story:
    """A ring in which all but one have subscribed."""

    def __init__(self, topic_filter: str = "a", nodes: int = 12) -> None:
        self.world = PubSubWorld(1, LAN, config=ROLES, trees=TREES)
        settled_ring(self.world, nodes)
        self.world.run(0.5)
        self.publisher, *self.subscribers = self.world.peers()
        for node in self.subscribers:
            self.world.subscribe(node, topic_filter)
        self.world.run(3.0)
        self.told = self.world.told

    def trees(self) -> list[tuple[PubSubNode, Tree]]:
        found = [(node, next(iter(node.core.trees), None)) for node in self.world.peers()]  # type: ignore[arg-type]
        return [(node, tree) for node, tree in found if tree is not None]


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Story:
    made = Story()
    monkeypatch.setattr(scribe_checks, "PATIENCE_S", 0.0)
    return made


def test_all_is_well(story: Story) -> None:
    assert isinstance(story.told, ScribeChecks)
    assert all(isinstance(node.core, ScribeEngine) for node in story.world.all_nodes())
    sent = story.world.publish(story.publisher, "a", 1, retain=True)
    story.world.run(story.world.now + 2.0)
    assert sent.reason is Reason.SUCCESS
    story.told.quiet(lossless=True)
    assert story.told.delivered == len(story.subscribers)


def test_a_suback_needs_no_shadows(story: Story) -> None:
    assert story.told.latest_ack_s > 0
    story.told.acknowledged(story.subscribers[0].clients.filters["a"])


def an_orphan(member: PubSubNode, tree: Tree) -> None:
    tree.attached = False


def another_root(member: PubSubNode, tree: Tree) -> None:
    tree.root = True


def forgotten(member: PubSubNode, tree: Tree) -> None:
    assert isinstance(member.core, ScribeEngine)
    del member.core.trees._trees["a"]


def disowned(member: PubSubNode, tree: Tree) -> None:
    above = member.world.nodes[tree.parent.id]  # type: ignore[union-attr]
    del above.core.trees.get("a").children[member.peer.id]  # type: ignore[attr-defined]


def led_astray(member: PubSubNode, tree: Tree) -> None:
    tree.path = (*tree.path, member.peer.id)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (an_orphan, "has no way to the root"),
        (another_root, "is its root"),
        (forgotten, "1 subscribers are not in it"),
        (disowned, "is no child of its parent"),
        (led_astray, "is wrong about who is above it"),
    ],
)
def test_a_tree_that_is_not_whole(story: Story, harm: Callable[[PubSubNode, Tree], None], told: str) -> None:
    harm(*next((node, tree) for node, tree in story.trees() if not tree.root and not tree.children))
    with pytest.raises(InvariantBrokenError, match=f"1 trees are not whole: a: .*{told}"):
        story.told.settled()


def test_a_root_that_does_not_know_it(story: Story) -> None:
    next(tree for _, tree in story.trees() if tree.root).root = False
    with pytest.raises(InvariantBrokenError, match="is not its root"):
        story.told.settled()


def test_a_root_that_is_not_there(story: Story) -> None:
    root = next(node for node, tree in story.trees() if tree.root)
    root.clients.filters.clear()
    forgotten(root, Tree("a", 1))
    with pytest.raises(InvariantBrokenError, match="its root is not in it"):
        story.told.settled()


def test_a_tree_without_subscribers(story: Story) -> None:
    for node in story.subscribers:
        node.clients.filters.clear()
    with pytest.raises(InvariantBrokenError, match="members and no subscriber"):
        story.told.settled()


def test_a_tree_that_is_just_being_mended_is_waited_for() -> None:
    story = Story()
    story.world.crash(next(node for node, tree in story.trees() if tree.root))
    began_at = story.world.now
    story.told.settled()
    assert began_at < story.world.now < began_at + scribe_checks.PATIENCE_S


def test_wildcards_need_not_get_what_is_retained(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story("+", 5)
    sent = story.told.publishing(story.publisher.peer, "a", 1, True, 0.0)
    story.told.done(sent, Reason.SUCCESS, 0.0)
    story.told.quiet(lossless=True)
    exact = Story("a", 5)
    sent = exact.told.publishing(exact.publisher.peer, "a", 1, True, 0.0)
    exact.told.done(sent, Reason.SUCCESS, 0.0)
    with pytest.raises(InvariantBrokenError, match="retained and never seen"):
        exact.told.quiet(lossless=True)


def test_what_may_be_lost_is_counted(story: Story) -> None:
    story.told.lenient = True
    sent = story.told.publishing(story.publisher.peer, "a", 1, False, story.world.now)
    story.told.done(sent, Reason.SUCCESS, story.world.now)
    story.told.quiet(lossless=True)
    assert story.told.losses == {"done, but not held": 11, "not reached": 11}


def test_the_roles_of_ringmq_have_the_other_checks() -> None:
    world = PubSubWorld(1, LAN, config=ROLES)
    assert type(world.told) is PubSubChecks
    assert world.serves("$share/g/a")
    assert not PubSubWorld(1, LAN, config=ROLES, trees=TREES).serves("$share/g/a")
