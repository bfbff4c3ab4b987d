"""Which boot of a peer counts: what it sends itself, against what others say."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.config import LAN
from ringmq.peer.streams import stream_pairs
from ringmq.peer.streams.stream_messages import Batch, Lane
from tests.peer.streams.test_streams import A, Line

B = Peer(Id(2), "b", 1, 7)


def test_a_boot_known_from_others_ends_when_the_peer_itself_is_heard() -> None:
    pairs = stream_pairs.PairTable(lambda peer: None)
    false = Peer(B.id, "b", 1, B.boot + 99)
    assert pairs.meet(B) is not None
    assert pairs.meet(false) is not None, "it may have restarted"
    for _ in range(stream_pairs.MOST_LATE):
        assert pairs.meet(B, heard=True) is None, "a late message of a boot that is over"
    true = pairs.meet(B, heard=True)
    assert true is not None
    assert pairs.by_id[B.id] is true
    restarted = Peer(B.id, "b", 1, B.boot + 1)
    assert pairs.meet(restarted, heard=True) is not None
    for _ in range(2 * stream_pairs.MOST_LATE):
        assert pairs.meet(B, heard=True) is None, "the later boot was heard itself"


def test_a_boot_that_the_peer_has_denied_is_not_believed_again() -> None:
    lost: list[Peer] = []
    pairs = stream_pairs.PairTable(lost.append)
    false, higher = Peer(B.id, "b", 1, B.boot + 50), Peer(B.id, "b", 1, B.boot + 51)
    pairs.meet(false)
    true = pairs.deny(B)
    assert pairs.by_id[B.id] is true
    assert pairs.meet(false) is None
    assert pairs.meet(false, heard=True) is not None, "the peer itself says so"
    pairs.deny(B)
    assert pairs.meet(higher) is not None


def test_a_false_boot_ends_with_the_first_answer_of_the_peer_itself() -> None:
    line, false = Line(), Peer(B.id, "elsewhere", 1, B.boot + 50)
    for _ in range(2):
        line.a.streams.send(false, "to nobody")
        line.b.take(A, line.a.end())
        line.a.take(B, line.b.end())
        line.pass_time(LAN.retry_s + 0.01)
        line.a.streams.send(B, "x", lambda: None)
        line.exchange()
    assert line.b.handled == ["x", "x"]
    assert line.a.streams.idle(B)


def test_a_message_that_claims_to_come_from_this_peer_itself_is_dropped() -> None:
    """As a routed message can, which names its origin itself."""
    line = Line()
    line.a.streams.received(A, Batch(Lane.CONTROL, 0, 0, 0, False, False, ()))
    assert line.a.streams.counters.skipped == 1
    line.a.streams.send(A, "own")
    line.a.streams.received(A, Batch(Lane.CONTROL, 0, 0, 0, False, False, ()))
    line.exchange()
    assert line.a.handled == ["own"]


def test_a_higher_boot_that_is_gone_silences_its_peer_for_a_while_only() -> None:
    line = Line()
    line.b.streams.received(Peer(A.id, "a", 1, A.boot + 50), Batch(Lane.CONTROL, B.boot, 1, 1, True, False, ()))
    line.b.end()
    line.a.streams.send(B, "x")
    line.exchange()
    assert line.b.handled == []
    line.pass_time(LAN.entry_s + 1)
    line.exchange()
    line.pass_time(LAN.slow_retry_s)
    line.exchange()
    assert line.b.handled == ["x"]
