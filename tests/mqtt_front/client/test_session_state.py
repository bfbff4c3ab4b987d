"""The session state of a client: packet ids, bounds, and what a lost session takes with it."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.client.session_state import MAX_PACKET_ID, Publication, PublicationPhase, SessionState
from ringmq.mqtt_front.errors import CallError


def test_packet_ids_in_use_are_left_out_and_start_again_at_1() -> None:
    state = SessionState()
    state.sent[2] = Publication("a", b"", 1)
    state.requested.add(3)
    assert [state.free_id(), state.free_id()] == [1, 4]
    ids = [state.free_id() for _ in range(MAX_PACKET_ID - 5)]
    assert ids[-1] == MAX_PACKET_ID - 1
    assert [state.free_id(), state.free_id()] == [MAX_PACKET_ID, 1]


def test_no_packet_id_is_free_when_all_are_in_use() -> None:
    state = SessionState()
    state.requested.update(range(1, MAX_PACKET_ID + 1))
    assert not state.has_free_id()
    with pytest.raises(CallError, match="all 65535 packet ids are in use"):
        state.free_id()


def test_waiting_publications_are_bounded() -> None:
    state = SessionState(max_waiting=1)
    state.add(Publication("a", b"", 1))
    with pytest.raises(CallError, match="at most 1 publications"):
        state.add(Publication("a", b"", 1))
    assert state.pending == 1


def test_a_lost_session_takes_sent_publications_and_received_ids_along_and_leaves_waiting_ones() -> None:
    state = SessionState()
    sent, waiting = Publication("a", b"1", 1), Publication("a", b"2", 1)
    sent.packet_id = 7
    state.sent[7] = sent
    state.add(waiting)
    state.received.add(9)
    assert state.discard() == (sent,)
    assert (sent.phase, state.sent, state.received, list(state.waiting)) == (
        PublicationPhase.COMPLETE,
        {},
        set(),
        [waiting],
    )
