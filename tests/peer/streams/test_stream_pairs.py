"""Which boot of a peer counts: what it sends itself, against what others say."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.streams import stream_pairs

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
