"""One place: what becomes of leases when a coordinator begins and ends."""

from __future__ import annotations

from math import inf

from overlay.ids import Id, key_of
from overlay.messages import Peer
from peer.pubsub.config import LAN
from peer.pubsub.holding import Holding, Role, lease_s
from peer.pubsub.messages import Kind, Record, Reign

ME, OTHER = Id(1), Peer(Id(2), "h", 1, 0)
ENTRY = Record(Kind.ENTRY, "a", OTHER, (0, 1), False)
PUBLISHER = Record(Kind.PUBLISHER, "", OTHER, (1, 0), False)


def test_a_shadow_lets_nothing_expire() -> None:
    holding = Holding("a", ME)
    assert holding.key == key_of("a")
    assert holding.take(ENTRY, 5.0, LAN)
    assert not holding.take(ENTRY, 6.0, LAN)
    assert not holding.coordinates
    assert not holding.expires


def test_all_leases_begin_anew_with_a_reign() -> None:
    holding = Holding("a", ME)
    for record in (ENTRY, PUBLISHER, Record(Kind.NOTE, "a/b", None, (1, 0), False)):
        holding.take(record, 0.0, LAN)
    holding.begin(Reign(1, ME), 100.0, LAN)
    assert holding.expires[ENTRY.key] == 100.0 + LAN.entry_s
    assert holding.expires[Kind.NOTE, "a/b", 0] == 100.0 + LAN.note_s == 100.0 + lease_s(Kind.NOTE, LAN)
    assert holding.publishers[OTHER.id].until == 100.0 + LAN.void_s
    assert PUBLISHER.key not in holding.expires
    holding.end()
    assert holding.role is Role.HOLDER
    assert not holding.publishers
    assert len(holding.book) == 3, "what it holds it still holds"


def test_a_coordinator_follows_who_publishes() -> None:
    holding = Holding("a", ME)
    holding.begin(Reign(1, ME), 0.0, LAN)
    holding.take(PUBLISHER, 1.0, LAN)
    assert holding.publishers[OTHER.id].until < inf
    holding.take(Record(Kind.PUBLISHER, "", OTHER, (2, 0), True), 2.0, LAN)
    assert not holding.publishers


def test_what_is_gone_is_remembered_for_a_while() -> None:
    holding = Holding("a", ME)
    holding.take(ENTRY, 0.0, LAN)
    assert holding.present()
    holding.take(Record(Kind.ENTRY, "a", OTHER, (0, 2), True), 10.0, LAN)
    assert not holding.present()
    holding.forget_gone(10.0)
    assert len(holding.book) == 1
    holding.forget_gone(10.1)
    assert len(holding.book) == 0
