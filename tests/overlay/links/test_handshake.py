"""The handshake: the accepted strangers, and which of two connections stays."""

import itertools

import pytest

from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import MAX_HOST, Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.handshake import (
    HARMLESS,
    MAX_HELLO_BYTES,
    MAX_RING_CHARS,
    HandshakePolicy,
    Hello,
    LinkState,
    Reason,
    decode_goodbye,
    decode_hello,
    encode_goodbye,
    encode_hello,
)
from ringmq.overlay.links.proofs import Proof

ME = Peer(Id(1000), "me", 1, 5)
LOWER, HIGHER = Peer(Id(1), "lower", 1, 5), Peer(Id(2000), "higher", 1, 5)
JUDGE = HandshakePolicy(ME, "ring")


@pytest.mark.parametrize(
    ("hello", "verdict"),
    [
        (None, Reason.VERSION),
        (Hello("other", LOWER, True, ME.id), Reason.RING),
        (Hello("ring", LOWER, True, ME.id, "timing wan"), Reason.RING_SETTINGS),
        (Hello("ring", ME, True, ME.id), Reason.MYSELF),
        (Hello("ring", Peer(ME.id, "elsewhere", 1, 6), True, ME.id), Reason.ID_TAKEN),
        (Hello("ring", LOWER, True, HIGHER.id), Reason.NOT_ME),
        (Hello("ring", LOWER, True, ME.id), None),
        (Hello("ring", LOWER, False, None), None),
    ],
)
def test_a_stranger_is_accepted_or_refused_with_the_reason(hello: Hello | None, verdict: Reason | None) -> None:
    assert JUDGE.stranger(hello) is verdict


PROVEN = HandshakePolicy(ME, "ring", proven=True, expelled={Id(3), Id(4)})


@pytest.mark.parametrize(
    ("proof", "hello", "verdict"),
    [
        (None, Hello("ring", LOWER, True, ME.id), Reason.UNPROVEN),
        (None, None, Reason.UNPROVEN),
        (Proof(LOWER.id, "lower", None), None, Reason.VERSION),
        (Proof(HIGHER.id, "higher", None), Hello("ring", LOWER, True, ME.id), Reason.NOT_YOURS),
        (Proof(HIGHER.id, "higher", None), Hello("ring", ME, True, ME.id), Reason.NOT_YOURS),
        (Proof(Id(3), "third", None), Hello("ring", Peer(Id(3), "third", 1, 5), True, ME.id), Reason.EXPELLED),
        (Proof(LOWER.id, "lower", Id(4)), Hello("ring", LOWER, True, ME.id), Reason.EXPELLED),
        (Proof(LOWER.id, "lower", Id(5)), Hello("other", LOWER, True, ME.id), Reason.RING),
        (Proof(LOWER.id, "lower", Id(5)), Hello("ring", LOWER, True, ME.id), None),
        (Proof(LOWER.id, "lower", None), Hello("ring", LOWER, False, None), None),
    ],
)
def test_in_a_ring_with_identity_only_the_proven_id_counts(
    proof: Proof | None, hello: Hello | None, verdict: Reason | None
) -> None:
    assert PROVEN.stranger(hello, proof) is verdict


@pytest.mark.parametrize(
    ("peer", "standing", "verdict"),
    [
        (LOWER, LinkState.APART, None),
        (HIGHER, LinkState.APART, None),
        (LOWER, LinkState.CONNECTING, None),
        (HIGHER, LinkState.CONNECTING, None),
        (LOWER, LinkState.GREETED, None),
        (HIGHER, LinkState.GREETED, Reason.DUPLICATE),
        (LOWER, LinkState.LINKED_BY_US, None),
        (HIGHER, LinkState.LINKED_BY_US, Reason.DUPLICATE),
        (LOWER, LinkState.LINKED, None),
        (HIGHER, LinkState.LINKED, None),
    ],
)
def test_which_connection_stays(peer: Peer, standing: LinkState, verdict: Reason | None) -> None:
    assert JUDGE.inbound(peer, standing, peer.boot) is verdict


@pytest.mark.parametrize("standing", [LinkState.LINKED, LinkState.LINKED_BY_US])
@pytest.mark.parametrize("peer", [LOWER, HIGHER])
def test_the_boot_decides_about_an_open_link(peer: Peer, standing: LinkState) -> None:
    assert JUDGE.inbound(peer, standing, peer.boot - 1) is None
    assert JUDGE.inbound(peer, standing, peer.boot + 1) is Reason.OLD_BOOT


def test_of_two_crossing_hellos_exactly_one_is_refused() -> None:
    for first, other in itertools.permutations([ME, LOWER, HIGHER], 2):
        verdicts = [
            HandshakePolicy(first, "ring").inbound(other, LinkState.GREETED, 0),
            HandshakePolicy(other, "ring").inbound(first, LinkState.GREETED, 0),
        ]
        assert verdicts.count(None) == 1


def test_the_largest_hello_fits() -> None:
    hello = Hello(
        "\U0001f600" * MAX_RING_CHARS,
        Peer(Id(SPACE - 1), "h" * MAX_HOST, 65535, 2**62),
        True,
        Id(1),
        "t" * MAX_RING_CHARS,
    )
    assert len(encode_hello(hello)) < MAX_HELLO_BYTES
    assert decode_hello(encode_hello(hello)) == hello


def test_hellos_of_other_versions_and_none() -> None:
    assert decode_hello(b"\x01anything") is None
    with pytest.raises(ProtocolError):
        decode_hello(b"")
    with pytest.raises(ProtocolError):
        decode_hello(b"\x02\xc0")


@pytest.mark.parametrize("reason", Reason)
def test_goodbyes(reason: Reason) -> None:
    assert decode_goodbye(encode_goodbye(reason)) == (reason, str(reason))
    assert decode_goodbye(encode_goodbye(reason, "some: detail")) == (reason, f"{reason}: some: detail")


def test_an_unknown_goodbye_is_not_harmless() -> None:
    reason, text = decode_goodbye(b"\xff\nso long" + b"!" * 10_000)
    assert reason not in HARMLESS
    assert text.isprintable()
    assert len(text) <= 120
