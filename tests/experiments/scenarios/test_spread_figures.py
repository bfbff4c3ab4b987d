"""Counts of peers, summed and shown."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.broadcast_bounds import least_time_s
from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.scenarios.spread_figures import COLUMNS, SpreadTally, name_of, table
from ringmq.experiments.simulator.copies import CopiesNode, CopiesWorld
from ringmq.overlay.core.timing import WAN
from ringmq.peer.messaging.config import WAN as ROLES


def nodes_of(*counted: tuple[int, int, int]) -> list[CopiesNode]:
    """Peers with given counts: copies and bytes sent, and hops of the copy received."""
    world = CopiesWorld(1, WAN, config=ROLES)
    settled_ring(world, len(counted))
    nodes = world.members()
    for node, (copies, copy_bytes, depth) in zip(nodes, counted, strict=True):
        node.copies, node.copy_bytes, node.depth = copies, copy_bytes, depth
    return nodes


def test_tally_sums_the_counts_of_all_messages() -> None:
    nodes = nodes_of((2, 200, 0), (1, 100, 1), (0, 0, 1), (0, 0, 2))
    tally = SpreadTally(Choice("guided", 2), {node.peer.id for node in (nodes[0], nodes[1], nodes[3])})
    tally.add(nodes, 2, 3.0)
    nodes[0].copies, nodes[1].copies, nodes[1].depth = 0, 2, 0
    tally.add(nodes, 2, 5.0)
    row = tally.figures(0.5, 1.0)
    assert (row.dispatch, row.sends, row.most_sends) == ("guided 2", 5 / 4, 2)
    assert (row.senders, row.relays, row.depth, row.least_depth) == (1.5, 1.0, 2, 1)
    assert (row.time_s, row.longest_s, row.least_s) == (4.0, 5.0, least_time_s(2, 0.5, 1.0, 2))
    assert row.ratio == pytest.approx(4.0 / row.least_s)
    assert (row.sent_bytes, row.most_bytes, row.busiest) == (600 / 4, 200, 3)


def test_table_has_aligned_columns() -> None:
    nodes = nodes_of((1, 100, 0), (0, 0, 1))
    rows = []
    for choice in (Choice("direct"), Choice("guided", 25)):
        tally = SpreadTally(choice, {node.peer.id for node in nodes})
        tally.add(nodes, 1, 0.0512)
        rows.append(tally.figures(0.0, 0.05))
    head, direct, guided = table(rows)
    assert len(head) == len(direct) == len(guided)
    assert " ".join(direct.split()) == "direct 1.000 1 1 0 1 1 51.2 51.2 50.0 1.024 100 100 1"
    assert guided.startswith("guided 25 ")
    assert all(column in head for column in COLUMNS)
    assert head.index("ms") + 2 == direct.index("51.2") + 4


def test_name_of_a_choice_has_its_fanout() -> None:
    assert name_of(Choice("direct")) == "direct"
    assert name_of(Choice("guided", 7)) == "guided 7"
