"""The simulation says of each node what whole cores do."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.studies.scale.cores import PEER, by_cores
from ringmq.experiments.studies.scale.multicast import GAP_S, Load, Network, Spreading
from ringmq.peer.engines.scribe.config import SCRIBE

NODES = 70
LINKS = Network(PEER, (0.001, 0.010), 5, recorded=False)
CHOICES = [Choice("direct"), Choice("guided", 3), Choice("guided", 25), Choice("guided", UNBOUNDED), Choice(SCRIBE)]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("subscribers", [tuple(range(NODES)), tuple(range(3, NODES, 4))], ids=["all", "some"])
def test_each_node_sends_and_gets_what_its_core_does(choice: Choice, subscribers: tuple[int, ...]) -> None:
    load = Load(subscribers, ("topic-1", "topic-2"), ((3, 0), (40, 1), (41, 0)), 1000)
    simulated = Spreading(FilledRing(NODES, 2), load, LINKS, choice).publish_all()
    cores = by_cores(NODES, 2, load, LINKS, choice)
    assert simulated.copies == cores.copies
    assert simulated.given == cores.given
    assert simulated.bytes == pytest.approx(cores.bytes, rel=0.02), "some addresses are shorter"
    # A root sends to its children in the order in which they joined.
    order_s = len(load.pairs) * NODES * GAP_S if choice.name == SCRIBE else 1e-6
    assert simulated.latency_s == pytest.approx(cores.latency_s, abs=order_s)
