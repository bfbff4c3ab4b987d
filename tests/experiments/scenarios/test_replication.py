"""The protocol between coordinators, shadows, homes and publishers keeps its promise under faults, and each of its
rules is needed: without it, a simulated history misses a subscription in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from ringmq.experiments.scenarios.replication import FAULTS, replication
from ringmq.experiments.simulator.replication_checks import MissedError
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.holders import HolderTable
from ringmq.peer.engines.partitioned.messages import Renewed
from ringmq.peer.replication.authority import Authority
from ringmq.peer.replication.copying import Copying
from ringmq.peer.streams.stream_messages import Lane

Mutation = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("faults", [(), *[(fault,) for fault in FAULTS], FAULTS])
def test_nothing_in_force_is_missed_and_all_settle(faults: tuple[str, ...]) -> None:
    for seed in (1, 2):
        figures = replication(seed, faults=faults)
        assert figures.missed == 0
        assert figures.unsettled == []
        assert figures.trusted > 1000
        assert figures.granted > 40


@pytest.mark.parametrize(("peers", "shadows", "loss"), [(3, 2, 0.0), (5, 1, 0.05), (8, 2, 0.05), (1, 2, 0.0)])
def test_other_sizes_and_lossy_networks(peers: int, shadows: int, loss: float) -> None:
    figures = replication(7, peers, shadows=shadows, loss=loss, faults=FAULTS if peers > 1 else ())
    assert figures.unsettled == []


def test_equal_seeds_give_equal_histories() -> None:
    assert replication(5, rounds=4) == replication(5, rounds=4)


def _renewals_overtake_routes(patch: pytest.MonkeyPatch) -> None:
    def answer(self: HolderTable, peer: Peer, asked_at: float, known: bool, lag_s: float = 0.0) -> None:
        # Only items of one lane are in order.
        self._streams.send(peer, Renewed(asked_at, known, 0, lag_s), lane=Lane.CONTROL)

    patch.setattr(HolderTable, "_answer", answer)


def _successors_know_no_holders(patch: pytest.MonkeyPatch) -> None:
    def note(self: Copying, item: object, peer: Peer | None = None) -> None: ...

    patch.setattr(Copying, "note", note)


def _successors_do_not_count_holders(patch: pytest.MonkeyPatch) -> None:
    def expect(self: HolderTable, partitions: list[int], peers: Iterable[Peer]) -> None: ...

    patch.setattr(HolderTable, "expect", expect)


def _nobody_waits_for_holders(patch: pytest.MonkeyPatch) -> None:
    wait = Copying.wait

    def without_holders(
        self: Copying,
        partition: int,
        then: Callable[[], None],
        otherwise: Callable[[], None],
        *,
        listed: bool = False,
        soon: bool = True,
    ) -> None:
        wait(self, partition, then, otherwise, listed=False, soon=soon)

    patch.setattr(Copying, "wait", without_holders)


def _leases_without_the_word_of_the_shadows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Authority, "since", property(lambda self: self._state.clock.now))


@pytest.mark.parametrize(
    ("mutation", "faults", "seed"),
    [
        (_leases_without_the_word_of_the_shadows, ("cut",), 8),
        (_renewals_overtake_routes, ("deaf",), 3),
        (_successors_know_no_holders, ("crash",), 2),
        (_successors_do_not_count_holders, ("crash",), 2),
        (_nobody_waits_for_holders, ("deaf",), 0),
    ],
)
def test_each_rule_is_needed(
    mutation: Mutation, faults: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The given seed was the first to miss a subscription. After a change of the roles it may be another."""

    def histories() -> None:
        for number in (seed, *range(30)):
            replication(number, peers=4, faults=faults, shadows=1)

    mutation(monkeypatch)
    with pytest.raises(MissedError):
        histories()
