"""Random histories of clients, crashes and splits: when all is quiet, one home has each client id, and no claim is
lost."""

from __future__ import annotations

import random

import pytest

from ringmq.peer.messaging.config import PubSubConfig
from tests.peer.conftest import Net, eight
from tests.peer.engines.partitioned.enrolling.model_fronts import MemberFront, fronts_of, homes_of

SEEDS = 3
STEPS = 40
QUIET_S = 60.0
"""Longer than homes take to repeat what is unanswered."""
CLIENTS = ("a", "b", "c", "d")


class History:
    """One random history. The seed gives it again."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.net: Net = eight(PubSubConfig())
        self.fronts = fronts_of(self.net)
        self.cut = False

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.6:
            self.random.choice(self.fronts).connect(self.random.choice(CLIENTS), kept=self.random.random() < 0.5)
        elif kind < 0.75:
            self._leave()
        elif kind < 0.85:
            self._restart()
        elif self.cut:
            self.net.split()
            self.cut = False
        else:
            half = self.random.sample(self.fronts, 4)
            others = [front for front in self.fronts if front not in half]
            self.net.split([front.member for front in half], [front.member for front in others])
            self.cut = True
        self.net.run(self.random.choice((0.0, 0.001, 0.05, 1.0, 6.0)))

    def _leave(self) -> None:
        front = self.random.choice(self.fronts)
        if front.connected:
            front.leave(self.random.choice(sorted(front.connected)))

    def _restart(self) -> None:
        front = self.random.choice(self.fronts)
        self.fronts.remove(front)
        (member,) = self.net.restart(front.member)
        self.fronts.append(MemberFront(member))
        if self.cut:
            # A member that starts again is on no side: all are together again.
            self.net.split()
            self.cut = False

    def end(self) -> None:
        self.net.split()
        self.net.run(QUIET_S)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_when_all_is_quiet_each_client_id_has_one_home_and_the_registry_knows_it(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.end()
    for client_id in CLIENTS:
        homes = homes_of(history.fronts, client_id)
        assert len(homes) <= 1, (client_id, [front.member.me.id for front in homes])
        # Whoever has the client has the claim, so that the next home finds it.
        for front in homes:
            assert client_id in front.member.core.enrolments
    for front in history.fronts:
        assert front.waiting == {}
        assert front.member.core.enrolments.unanswered == 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_client_that_connects_last_stays(seed: int) -> None:
    history = History(seed + 1000)
    for _ in range(STEPS):
        history.step()
    history.net.split()
    history.net.run(60.0)
    for client_id in CLIENTS:
        front = history.random.choice(history.fronts)
        front.connect(client_id)
        history.net.run(30.0)
        assert homes_of(history.fronts, client_id) == [front]
