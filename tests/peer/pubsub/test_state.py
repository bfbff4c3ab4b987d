"""What the roles share."""

from __future__ import annotations

from overlay.ids import Id
from overlay.messages import Peer
from peer.pubsub.messages import Fetch, Record, Taken
from peer.pubsub.state import Counters, State


def test_what_a_peer_tells_itself_needs_no_network(state: State) -> None:
    state.send(state.me, Fetch("a"))
    assert list(state.local) == [(state.me, Fetch("a"))]
    state.ask(state.me, Id(1), Fetch("b"))
    assert len(state.local) == 2


def test_the_clock_of_retained_messages_never_goes_back(state: State) -> None:
    assert [state.tick_clock(at) for at in (5, 5, 3, 100)] == [5, 6, 7, 100]
    state.clock = 1000
    assert state.tick_clock(200) == 1001


def test_what_is_due(state: State) -> None:
    done: list[str] = []
    state.after(2.0, lambda: done.append("later"))
    state.after(1.0, lambda: done.append("sooner"))
    assert state.agenda.deadline() == 1.0
    state.agenda.run(5.0)
    assert done == ["sooner", "later"]


def test_counters_by_name() -> None:
    assert Counters(dropped=3).as_dict()["dropped"] == 3


class Slow:
    """A disk that is told of changes and not yet committed."""

    pending = True

    def keep(self, place: str, record: Record) -> None: ...
    def leave(self, place: str) -> None: ...
    def forget(self, age_s: float) -> None: ...


def test_promises_wait_for_the_disk(state: State) -> None:
    sent = state.overlay.net.queue  # type: ignore[attr-defined]
    other = Peer(Id(9), "h", 1, 1)
    state.promise(other, Taken("a"))
    assert len(sent) == 1, "nothing is written, so that nothing is waited for"
    assert not state.promises
    disk = state.disk = Slow()
    state.promise(other, Taken("b"))
    state.promise(state.me, Taken("c"))
    disk.pending = False
    assert state.promises
    assert (len(sent), len(state.local)) == (1, 0)
    state.keep_promises()
    assert not state.promises
    assert (len(sent), len(state.local)) == (2, 1)
