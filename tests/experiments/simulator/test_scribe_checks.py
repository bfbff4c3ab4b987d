"""Each check of trees finds the fault that it is for, and requires no more than Scribe promises."""

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


class Scene:
    """A ring in which all peers except the publisher have subscribed."""

    def __init__(self, topic_filter: str = "a", nodes: int = 12) -> None:
        self.world = PubSubWorld(1, LAN, config=ROLES, trees=TREES)
        settled_ring(self.world, nodes)
        self.world.run(0.5)
        self.publisher, *self.subscribers = self.world.peers()
        for node in self.subscribers:
            self.world.subscribe(node, topic_filter)
        self.world.run(3.0)
        self.checks = self.world.pubsub_checks

    def trees(self) -> list[tuple[PubSubNode, Tree]]:
        found = [(node, next(iter(node.core.trees), None)) for node in self.world.peers()]  # type: ignore[arg-type]
        return [(node, tree) for node, tree in found if tree is not None]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene()
    monkeypatch.setattr(scribe_checks, "PATIENCE_S", 0.0)
    return made


def test_correct_run_passes_all_checks(scene: Scene) -> None:
    assert isinstance(scene.checks, ScribeChecks)
    assert all(isinstance(node.core, ScribeEngine) for node in scene.world.all_nodes())
    sent = scene.world.publish(scene.publisher, "a", 1, retain=True)
    scene.world.run(scene.world.now + 2.0)
    assert sent.reason is Reason.SUCCESS
    scene.checks.quiet(lossless=True)
    assert scene.checks.delivered == len(scene.subscribers)


def test_suback_needs_no_shadows(scene: Scene) -> None:
    assert scene.checks.latest_ack_s > 0
    scene.checks.acknowledged(scene.subscribers[0].clients.filters["a"])


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
    ("harm", "fault"),
    [
        (an_orphan, "has no way to the root"),
        (another_root, "is its root"),
        (forgotten, "1 subscribers are not in it"),
        (disowned, "is no child of its parent"),
        (led_astray, "has a wrong path to the root"),
    ],
)
def test_broken_tree_is_found(scene: Scene, harm: Callable[[PubSubNode, Tree], None], fault: str) -> None:
    harm(*next((node, tree) for node, tree in scene.trees() if not tree.root and not tree.children))
    with pytest.raises(InvariantBrokenError, match=f"1 trees are not whole: a: .*{fault}"):
        scene.checks.settled()


def test_owner_that_is_not_root_is_found(scene: Scene) -> None:
    next(tree for _, tree in scene.trees() if tree.root).root = False
    with pytest.raises(InvariantBrokenError, match="is not its root"):
        scene.checks.settled()


def test_tree_without_its_root_is_found(scene: Scene) -> None:
    root = next(node for node, tree in scene.trees() if tree.root)
    root.clients.filters.clear()
    forgotten(root, Tree("a", 1))
    with pytest.raises(InvariantBrokenError, match="its root is not in it"):
        scene.checks.settled()


def test_tree_without_subscribers_is_found(scene: Scene) -> None:
    for node in scene.subscribers:
        node.clients.filters.clear()
    with pytest.raises(InvariantBrokenError, match="members and no subscriber"):
        scene.checks.settled()


def test_checks_wait_for_a_tree_under_repair() -> None:
    scene = Scene()
    scene.world.crash(next(node for node, tree in scene.trees() if tree.root))
    began_at = scene.world.now
    scene.checks.settled()
    assert began_at < scene.world.now < began_at + scribe_checks.PATIENCE_S


def test_wildcards_need_not_get_retained_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("+", 5)
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, True, 0.0)
    scene.checks.done(sent, Reason.SUCCESS, 0.0)
    scene.checks.quiet(lossless=True)
    exact = Scene("a", 5)
    sent = exact.checks.publishing(exact.publisher.peer, "a", 1, True, 0.0)
    exact.checks.done(sent, Reason.SUCCESS, 0.0)
    with pytest.raises(InvariantBrokenError, match="retained and never seen"):
        exact.checks.quiet(lossless=True)


def test_losses_are_counted_if_they_are_allowed(scene: Scene) -> None:
    scene.checks.lenient = True
    sent = scene.checks.publishing(scene.publisher.peer, "a", 1, False, scene.world.now)
    scene.checks.done(sent, Reason.SUCCESS, scene.world.now)
    scene.checks.quiet(lossless=True)
    assert scene.checks.losses == {"done, but not held": 11, "not reached": 11}


def test_roles_of_ringmq_have_their_own_checks() -> None:
    world = PubSubWorld(1, LAN, config=ROLES)
    assert type(world.pubsub_checks) is PubSubChecks
    assert world.serves("$share/g/a")
    assert not PubSubWorld(1, LAN, config=ROLES, trees=TREES).serves("$share/g/a")
