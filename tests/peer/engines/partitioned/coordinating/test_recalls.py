"""A coordinator and all copies die at once: no message is acknowledged that a home in force has not got."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.recalls import OpenRecall, Recalls
from ringmq.peer.engines.partitioned.messages import Presented, Recall, Recalled, Registry
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication
from tests.peer.conftest import Member, Net, parts_of

Lost = Callable[[Peer, Peer, Publication | Control], bool]
FILTERS = ("a/b", "a/#", "a/+/c/#", "$share/g/a/b")
SOON_S = 0.5


def doomed(net: Net, *filters: str) -> tuple[Member, Member]:
    """A home and a publisher, which has not published before. All peers that had the entries of the home have started
    again without them."""
    home, publisher, owners = parted(net, *filters)
    net.restart(*owners)
    return home, publisher


def parted(net: Net, *filters: str) -> tuple[Member, Member, list[Member]]:
    """The same, and the peers that have the entries of the home."""
    owners = {member.me.id: member for name in filters for member in net.owning(name)}
    home, publisher = net.others(*filters)[:2]
    home.subscribe(*filters)
    net.run(1.0)
    return home, publisher, list(owners.values())


@pytest.mark.parametrize("topic_filter", FILTERS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publisher_without_earlier_routes_waits_for_the_entries_of_all_homes(
    net: Net, topic_filter: str, qos: int
) -> None:
    home, publisher = doomed(net, topic_filter)
    publisher.publish("a/b" if "c" not in topic_filter else "a/x/c", b"m", qos)
    net.run(SOON_S)
    assert [body for _, body in home.got] == [b"m"]
    assert publisher.reasons == [Reason.SUCCESS]


def test_peers_that_are_gone_are_waited_for_as_long_as_their_entries_last(net: Net) -> None:
    home, publisher, owners = parted(net, "a/b")
    net.crash(*owners)
    publisher.publish("a/b", b"m")
    net.run(LAN.entry_s / 2)
    assert publisher.reasons == []
    net.run(LAN.entry_s / 2 + SOON_S)
    assert publisher.reasons == [Reason.SUCCESS]
    assert home.got == [("a/b", b"m")]


def test_a_home_behind_a_cut_misses_nothing(net: Net) -> None:
    """The part of the publisher has no copy of its entry, and the cut is shorter than its lease."""
    home, publisher, owners = parted(net, "a/b")
    here = [member for member in net.members.values() if member not in (home, *owners)]
    net.split([home, *owners], here)
    publisher.publish("a/b", b"m")
    net.run(5.0)
    assert publisher.reasons == []
    net.split()
    net.run(5.0)
    assert home.got == [("a/b", b"m")]
    assert publisher.reasons == [Reason.SUCCESS]


def test_a_peer_that_is_back_is_not_waited_for_as_long_as_one_that_has_just_left(net: Net) -> None:
    member, other, away = list(net.members.values())[:3]
    recalls = member.core.coordinator.recalls
    recalls._missing[away.me.id], recalls._absent[away.me.id] = net.now, away.me
    for ident, for_return in ((1, False), (2, True)):
        recalls._open[ident] = OpenRecall({ident}, net.now, for_return)
        recalls._open[ident].awaited[other.me.id] = other.me
        recalls.recalled(other.me, Recalled(ident))
    net.run(LAN.slow_retry_s + SOON_S)
    assert list(recalls._open) == [1]
    net.run(LAN.entry_s)
    assert not recalls._open


def test_in_a_ring_beyond_a_leaf_set_it_waits_for_the_lease_of_entries(net: Net) -> None:
    net.small = False
    home, publisher, owners = parted(net, "a/b")
    net.crash(*owners)
    publisher.publish("a/b", b"m")
    net.run(LAN.entry_s / 10)
    assert publisher.reasons == []
    net.run(LAN.entry_s + 1.0)
    assert publisher.reasons == [Reason.SUCCESS]
    assert home.got == [("a/b", b"m")]
    assert net.count(Recall) == 0


def test_a_publisher_with_earlier_routes_does_not_wait(net: Net) -> None:
    publisher = net.others("a/b")[1]
    publisher.publish("z")
    net.run(1.0)
    net.lost = lambda sender, receiver, message: any(isinstance(part, Recalled) for part in parts_of(message))
    home, same = doomed(net, "a/b")
    assert same is publisher
    publisher.publish("a/b", b"m")
    net.run(SOON_S)
    assert home.got == [("a/b", b"m")]
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS, Reason.SUCCESS]


def test_a_home_that_does_not_answer_is_waited_for(net: Net) -> None:
    home, publisher = doomed(net, "a/b")
    net.lost = lambda sender, receiver, message: home.me in (sender, receiver)
    publisher.publish("a/b", b"m")
    net.run(2.0)
    assert publisher.reasons == []
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert home.got == [("a/b", b"m")]
    assert publisher.reasons == [Reason.SUCCESS]


def test_a_home_that_dies_is_waited_for_as_long_as_its_entries_last(net: Net) -> None:
    home, publisher = doomed(net, "a/b")
    net.lost = lambda sender, receiver, message: home.me in (sender, receiver)
    publisher.publish("a/b", b"m")
    net.run(2.0)
    net.crash(home)
    net.run(LAN.entry_s / 2)
    assert publisher.reasons == []
    net.run(LAN.entry_s)
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]


@pytest.mark.parametrize("kind", [Recall, Recalled, Presented, Registry])
def test_a_lost_item_is_repeated(net: Net, kind: type) -> None:
    home, publisher = doomed(net, "a/b", "a/#")
    once: set[tuple[Peer, Peer]] = set()

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        if (sender, receiver) in once or not any(isinstance(part, kind) for part in parts_of(message)):
            return False
        once.add((sender, receiver))
        return True

    net.lost = lost
    publisher.publish("a/b", b"m")
    net.run(3.0)
    assert once
    assert set(home.got) == {("a/b", b"m")}
    assert publisher.reasons == [Reason.SUCCESS]


@pytest.mark.parametrize("deaths", [1, 3])
def test_in_a_large_ring_partitions_without_use_are_doubted_after_as_many_deaths_as_copies(
    net: Net, deaths: int
) -> None:
    net.small = False
    publisher = net.others("a/b")[0]
    net.crash(*net.owning("a/b")[:deaths])
    publisher.publish("a/b")
    net.run(SOON_S)
    assert len(publisher.reasons) == (1 if deaths == 1 else 0)


def test_a_publisher_that_is_back_begins_anew_once(net: Net) -> None:
    """What it was sent while it was behind a cut may come late, and is whole by the word of one part alone."""
    publisher = net.others("a/b")[1]
    publisher.publish("a/b")
    net.run(1.0)
    coordinator = net.owning("a/b")[0].core.coordinator
    holder = coordinator.holders._holders[publisher.me.id]
    term = holder.term
    coordinator.recalls._absent[publisher.me.id] = publisher.me
    net.run(LAN.lease_s)
    assert holder.term > term
    term = holder.term
    net.run(LAN.lease_s)
    assert (holder.term, holder.lost_at) == (term, 0)


def test_one_look_is_due_however_often_the_ring_changes(net: Net) -> None:
    _, publisher, owners = parted(net, "a/b")
    net.crash(*owners)
    publisher.publish("a/b", b"m")
    net.run(SOON_S)
    coordinator = net.owning("a/b")[0].core.coordinator
    assert len(coordinator.recalls) > 0
    before = len(coordinator._state.timers)
    for _ in range(100):
        coordinator.recalls.follow()
    assert len(coordinator._state.timers) == before


def test_nothing_stays_behind(net: Net) -> None:
    doomed(net, *FILTERS)
    net.run(LAN.entry_s)
    for member in net.members.values():
        coordinator = member.core.coordinator
        assert len(coordinator.recalls) == 0
        assert not any(coordinator.holders.is_incomplete(partition) for partition in range(4096))


def test_without_a_recall_the_message_would_wait_for_the_lease(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recalls, "took_over", lambda self, partitions: None)
    _, publisher = doomed(net, "a/b")
    publisher.publish("a/b", b"m")
    net.run(SOON_S)
    assert publisher.reasons == []
