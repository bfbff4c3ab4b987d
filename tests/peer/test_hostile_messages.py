"""Well-formed messages with any contents, one at a time and in storms: no core fails, and the honest go on."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringmq.peer.engines.scribe.config import LAN as SCRIBE_LAN
from ringmq.peer.engines.scribe.config import TreeConfig
from tests.peer.hostile_member import ROLES, SCRIBE_ROLES, Forger, HostileWorld, Kinds

QUIET_S = 90.0
"""All leases are over, and tombstones forgotten."""


def storms(kinds: Kinds) -> st.SearchStrategy[list[tuple[type, int, float]]]:
    """Messages of any kinds, each with the seed of its contents and the pause after it."""
    pause_s = st.sampled_from((0.0, 0.0, 0.0, 0.3, 2.0))
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 1 << 32), pause_s), min_size=1, max_size=60)


def endure(folder: Path, trees: TreeConfig | None, storm: list[tuple[type, int, float]], victim_dies: bool) -> None:
    world = HostileWorld(folder, trees)
    forger = Forger(world)
    for node in world.honest:
        world.asks_for(node, "a", "a/b", *(() if trees else ("a/#", "$share/g/c")))
        world.says(node, "kept", b"x", retain=True)
    world.run(world.now + 3.0)
    assert world.is_whole(), "before the storm"
    if victim_dies:
        # A takeover is under way.
        world.crash(world.honest.pop())
    for kind, seed, pause_s in storm:
        world.strike(*forger.make(kind, seed))
        if pause_s:
            world.run(world.now + pause_s)
    # What the member coordinates is in its hands as long as it is there.
    world.crash(world.hostile)
    world.run(world.now + QUIET_S)
    assert world.is_whole()
    if trees is None:
        world.restart_all()
        assert world.is_whole(), "after restarts of all"
    world.close()


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(storm=storms(ROLES), victim_dies=st.booleans())
def test_storms_of_false_messages_end_no_core_and_stop_nobody(
    storm: list[tuple[type, int, float]], victim_dies: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        endure(Path(folder), None, storm, victim_dies)


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(storm=storms(SCRIBE_ROLES), victim_dies=st.booleans())
def test_storms_of_false_messages_end_no_tree(storm: list[tuple[type, int, float]], victim_dies: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        endure(Path(folder), SCRIBE_LAN, storm, victim_dies)
