"""The simulation agrees with whole cores at each node."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.studies.scale.cores import PEER, by_cores
from ringmq.experiments.studies.scale.multicast import GAP_S, LinkModel, MulticastLoad, MulticastRun
from ringmq.peer.engines.scribe.config import SCRIBE

NODES = 70
LINKS = LinkModel(PEER, (0.001, 0.010), 5, recorded=False)
CHOICES = [Choice("direct"), Choice("guided", 3), Choice("guided", 25), Choice("guided", UNBOUNDED), Choice(SCRIBE)]


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("subscribers", [tuple(range(NODES)), tuple(range(3, NODES, 4))], ids=["all", "some"])
def test_simulated_nodes_send_and_receive_like_their_cores(choice: Choice, subscribers: tuple[int, ...]) -> None:
    load = MulticastLoad(subscribers, ("topic-1", "topic-2"), ((3, 0), (40, 1), (41, 0)), 1000)
    simulated = MulticastRun(FilledRing(NODES, 2), load, LINKS, choice).publish_all()
    cores = by_cores(NODES, 2, load, LINKS, choice)
    assert simulated.copies == cores.copies
    assert simulated.given == cores.given
    assert simulated.bytes == pytest.approx(cores.bytes, rel=0.02), "some addresses are shorter"
    # A root sends to its children in the order in which they joined.
    order_s = len(load.pairs) * NODES * GAP_S if choice.name == SCRIBE else 1e-6
    assert simulated.latency_s == pytest.approx(cores.latency_s, abs=order_s)
