"""All places of a peer: keys are watched once, and as long as they are needed."""

from __future__ import annotations

from overlay.ids import key_of
from overlay.messages import Peer
from peer.pubsub.holding import Holding
from peer.pubsub.holdings import SPARE, Holdings
from peer.pubsub.state import State


def test_places_of_one_key_share_its_watch(state: State) -> None:
    holdings, key = Holdings(state), key_of("a")
    topic, below = holdings.open("a"), holdings.open("a/#")
    assert holdings.open("a") is topic
    assert (len(holdings), set(holdings)) == (2, {topic, below})
    assert state.overlay.watched == {key: state.config.shadows + 1 + SPARE}  # type: ignore[attr-defined]
    holdings.close(topic)
    assert state.overlay.watched  # type: ignore[attr-defined]
    holdings.close(below)
    assert not state.overlay.watched  # type: ignore[attr-defined]
    assert holdings.get("a") is None


def test_who_is_to_do_what(state: State) -> None:
    holdings = Holdings(state)
    reviewed: list[Holding] = []
    holdings.review = reviewed.append
    holding = holdings.open("a")
    others = tuple(Peer(type(state.me.id)(point), "h", 1, 0) for point in (1, 2, 3))
    assert holdings.first(holding)
    assert holdings.shadows(holding) == ()
    holdings.owners_changed(holding.key, (others[0], state.me, *others[1:]))
    assert reviewed == [holding]
    assert not holdings.first(holding)
    assert holdings.belongs(holding)
    assert holdings.shadows(holding) == (state.me, others[1])
    holdings.owners_changed(holding.key, (*others, state.me))
    assert not holdings.belongs(holding)


def test_one_look_ahead_at_a_time(state: State) -> None:
    holdings = Holdings(state)
    looks: list[Holding] = []
    holdings.look = looks.append
    holding = holdings.open("a")
    holdings.look_soon(holding, 0.1)
    state.agenda.run(10.0)
    assert looks == [holding]
    holdings.look_soon(holding, 0.1)
    holdings.close(holding)
    state.now = 20.0
    state.agenda.run(20.0)
    assert looks == [holding], "what is not held any more is not looked at"
