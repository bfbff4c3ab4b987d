"""Publications among whole peers: to all subscribers, in order, with QoS 1 and 2 done when all hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from ringmq.mqtt_front.cluster import UNDELIVERED
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Register, Retain
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.messages import Control, Held
from ringmq.peer.messaging.publication import Publication
from tests.peer.conftest import Member, Net, parts_of


def test_a_peer_with_several_matching_filters_gets_a_message_once(net: Net) -> None:
    publisher, one, two = net.others("a/b")[:3]
    one.subscribe("a/b", "a/+", "#", "+/b")
    two.subscribe("other", "a/+/c")
    net.run(0.5)
    publisher.publish("a/b", b"1", qos=0)
    publisher.publish("a/b", b"2", qos=2)
    net.run(0.5)
    assert one.got == [("a/b", b"1"), ("a/b", b"2")]
    assert two.got == []
    assert publisher.reasons == [Reason.SUCCESS, Reason.SUCCESS]


def test_a_message_without_subscribers_is_answered_so(net: Net) -> None:
    publisher = net.others("a")[0]
    publisher.publish("a")
    net.run(0.5)
    assert publisher.reasons == [Reason.NO_MATCHING_SUBSCRIBERS]
    publisher.core.publish("a", b"x", 1, matched=True, done=publisher.reasons.append)
    assert publisher.reasons[1] is Reason.SUCCESS


def test_a_message_is_done_when_all_receivers_hold_it(net: Net) -> None:
    publisher, one, two = net.others("a")[:3]
    one.subscribe("a")
    two.subscribe("a")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: sender == two.me and isinstance(message, Held)
    publisher.publish("a")
    net.run(2.0)
    assert publisher.reasons == []
    net.lost = lambda sender, receiver, message: False
    net.run(2.0)
    assert publisher.reasons == [Reason.SUCCESS]
    assert len(one.got) == len(two.got) == 1
    assert two.core.counters.duplicates > 0


def test_order_is_kept_over_retries(net: Net) -> None:
    publisher, one = net.others("a")[:2]
    one.subscribe("a")
    net.run(0.5)
    publisher.publish("a", b"0")
    net.run(0.1)
    net.lost = lambda sender, receiver, message: isinstance(message, Publication) and message.body == b"1"
    for number in range(1, 5):
        publisher.publish("a", str(number).encode())
    net.run(0.1)
    assert len(one.got) == 1
    net.lost = lambda sender, receiver, message: False
    net.run(2.0)
    assert [body for _, body in one.got] == [b"0", b"1", b"2", b"3", b"4"]


def test_one_member_of_a_group_gets_each_message(net: Net) -> None:
    publisher, *members = net.others("a")[:4]
    for member in (*members, publisher):
        member.subscribe("$share/g/a")
    members[0].subscribe("a")
    net.run(0.5)
    for number in range(8):
        publisher.publish("a", str(number).encode(), qos=number % 3)
    net.run(0.5)
    shared = [one for member in (*members, publisher) for one in member.publications if one.shared]
    assert sorted(one.body for one in shared) == sorted(str(number).encode() for number in range(8))
    assert all(one.shared == ("$share/g/a",) for one in shared)
    assert {len([one for one in member.publications if one.shared]) for member in (*members, publisher)} == {2}
    assert sum(one.unshared for one in members[0].publications) == 8
    assert not any(one.unshared for member in (*members[1:], publisher) for one in member.publications)


def test_waiting_messages_are_bounded() -> None:
    net = Net(replace(LAN, max_waiting_bytes=10))
    for number in range(8):
        net.add((number << 125) + 5)
    publisher = net.others("a")[0]
    for qos in (1, 1, 0):
        publisher.publish("a", b"123456", qos=qos)
    assert publisher.reasons == [UNDELIVERED, UNDELIVERED]
    counters = publisher.core.counters
    assert (counters.refused, counters.dropped) == (1, 1)
    net.run(1.0)
    assert publisher.reasons[2] is Reason.NO_MATCHING_SUBSCRIBERS
    publisher.publish("a", b"123456")
    assert len(publisher.reasons) == 4, "there is room again"


def test_a_message_that_waits_too_long_is_given_up(net: Net) -> None:
    publisher = net.others("a")[0]
    net.lost = lambda sender, receiver, message: sender == publisher.me
    publisher.publish("a", retain=True)
    net.run(net.config.give_up_s + 30)
    assert publisher.reasons == [UNDELIVERED]
    assert not publisher.core.publisher.unsettled


def test_a_message_without_room_is_dropped_or_sent_again(net: Net) -> None:
    publisher, one = net.others("a")[:2]
    one.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    publisher.full = True
    publisher.publish("a", b"0", qos=0)
    publisher.publish("a", b"1", qos=1)
    net.run(0.1)
    publisher.full = False
    net.run(2.0)
    assert one.got == [("a", b"x"), ("a", b"1")]
    assert publisher.core.counters.dropped == 1


def test_a_retained_message_is_sent_until_it_is_stored(net: Net) -> None:
    publisher, late = net.others("a")[:2]

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return _has(message, Retain)

    net.lost = lost
    publisher.publish("a", b"old", retain=True)
    publisher.publish("a", b"new", retain=True)
    net.run(2.0)
    assert publisher.reasons == []
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert len(publisher.reasons) == 2
    late.subscribe("a")
    net.run(1.0)
    assert late.kept == {"a": b"new"}


def test_a_subscriber_at_the_peer_of_the_publisher_gets_the_retained_message(net: Net) -> None:
    publisher = net.others("a")[0]
    publisher.publish("a", b"kept", retain=True)
    done = publisher.subscribe("a")
    net.run(1.0)
    assert done == ["a"]
    assert publisher.kept == {"a": b"kept"}
    assert publisher.got == []


def _has(message: Publication | Control, kind: type) -> bool:
    """Whether it is of this kind, or a batch with such an item."""
    return any(isinstance(part, kind) for part in parts_of(message))


def _group_of(net: Net, *members: Member) -> None:
    for member in members:
        member.subscribe("$share/g/a", "$share/h/a")
    net.run(1.0)


def _got(members: Sequence[Member]) -> list[tuple[bytes, str]]:
    """The messages that the groups got, with their groups."""
    return sorted((one.body, name) for member in members for one in member.publications for name in one.shared)


def _wanted(count: int) -> list[tuple[bytes, str]]:
    return sorted((str(number).encode(), f"$share/{group}/a") for number in range(count) for group in "gh")


def test_another_serves_the_group_of_a_peer_that_died(net: Net) -> None:
    publisher, *members = net.others("a")[:4]
    _group_of(net, *members)
    victim = members[1]
    victim.subscribe("a")
    net.run(1.0)
    net.lost = lambda sender, receiver, message: receiver == victim.me and isinstance(message, Publication)
    for number in range(9):
        publisher.publish("a", str(number).encode(), qos=1 + number % 2)
    net.run(1.0)
    assert len(publisher.reasons) == 0, "as it subscribes for itself too"
    net.crash(victim)
    net.run(net.config.entry_s + 3)
    assert publisher.reasons == [Reason.SUCCESS] * 9
    assert _got(members) == _wanted(9)
    assert not any(one.unshared for member in members for one in member.publications)
    counters = publisher.core.counters
    assert counters.passed_on > 0
    assert counters.passed_on + counters.given_up == 9


def test_each_peer_of_a_group_is_tried_once(net: Net) -> None:
    publisher, *members = net.others("a")[:4]
    _group_of(net, *members)
    net.lost = lambda sender, receiver, message: sender == publisher.me and isinstance(message, Publication)
    for number in range(3):
        publisher.publish("a", str(number).encode())
    net.run(0.5)
    net.crash(*members[:2])
    net.run(1.0)
    net.lost = lambda sender, receiver, message: False
    net.run(2 * net.config.entry_s)
    assert _got(members) == _wanted(3)
    assert len(publisher.reasons) == 3


def test_the_last_of_a_group_may_be_the_publishers_own_peer(net: Net) -> None:
    publisher, member = net.others("a")[:2]
    _group_of(net, publisher, member)
    net.lost = lambda sender, receiver, message: receiver == member.me and isinstance(message, Publication)
    for number in range(4):
        publisher.publish("a", str(number).encode())
    net.run(0.5)
    net.crash(member)
    net.run(net.config.entry_s + 3)
    assert _got([publisher]) == _wanted(4)
    assert len(publisher.reasons) == 4


def test_a_message_that_no_member_of_a_group_can_have_is_given_up(net: Net) -> None:
    publisher, member = net.others("a")[:2]
    _group_of(net, member)
    net.crash(member)
    publisher.publish("a")
    net.run(net.config.entry_s + 3)
    assert len(publisher.reasons) == 1
    assert publisher.core.counters.given_up == 1


def test_only_the_groups_of_the_peer_that_died_are_served_again(net: Net) -> None:
    """Each by another peer; and it is done when all of them have it."""
    publisher, victim, one, two, third = net.others("a")[:5]
    for member, groups in ((victim, "gh"), (one, "g"), (two, "h"), (third, "i")):
        member.subscribe(*[f"$share/{group}/a" for group in groups])
    net.run(1.0)

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return (sender == two.me and isinstance(message, Held)) or (
            receiver == victim.me and isinstance(message, Publication)
        )

    net.lost = lost
    for number in range(4):
        publisher.publish("a", str(number).encode())
    net.run(0.5)
    net.crash(victim)
    net.run(net.config.entry_s + 1)
    wanted = [(str(number).encode(), f"$share/{group}/a") for number in range(4) for group in "ghi"]
    assert _got([one, two, third]) == wanted
    assert publisher.core.counters.passed_on > 0
    assert publisher.reasons == []
    net.lost = lambda sender, receiver, message: False
    net.run(3.0)
    assert len(publisher.reasons) == 4


def test_a_group_that_never_answers_is_given_up_in_the_end(net: Net) -> None:
    publisher, *members = net.others("a")[:3]
    _group_of(net, *members)
    net.lost = lambda sender, receiver, message: receiver == publisher.me and isinstance(message, Held)
    publisher.publish("a")
    net.run(net.config.give_up_s + 10)
    assert publisher.reasons == []
    net.run(net.config.give_up_s + 10)
    assert publisher.reasons == [UNDELIVERED]
    assert (publisher.core.counters.passed_on, publisher.core.counters.given_up) == (1, 1)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_peer_that_left_by_itself_may_still_acknowledge(net: Net, leaves: bool) -> None:
    """Otherwise another member of a group would get its message too; but nobody waits for a lease that ran out."""
    publisher, member = net.others("a")[:2]
    member.subscribe("a")
    net.run(1.0)
    net.lost = lambda sender, receiver, message: sender == member.me and isinstance(message, Held)
    publisher.publish("a")
    net.run(0.1)
    assert member.got == [("a", b"x")]
    if leaves:
        member.core.unsubscribe("a")
        net.run(1.0)
        assert publisher.reasons == []
        net.lost = lambda sender, receiver, message: False
        net.run(net.config.grace_s - 1)
    else:
        net.crash(member)
        net.run(net.config.entry_s + 1.5)
    assert publisher.reasons == [Reason.SUCCESS]
    assert publisher.core.counters.given_up == (0 if leaves else 1)


def test_a_group_is_served_though_a_peer_with_a_route_has_left_it(net: Net) -> None:
    """Its coordinator has not heard yet that the client of one has gone."""
    publisher, leaver, stayer = net.others("a", "#")[:3]
    for member in (publisher, leaver, stayer):
        member.subscribe("$share/g/a")
    net.run(0.5)
    publisher.publish("a", b"warm")
    net.run(0.5)
    net.lost = lambda sender, receiver, message: _has(message, Register) and sender in (publisher.me, leaver.me)
    leaver.core.unsubscribe("$share/g/a")
    publisher.core.unsubscribe("$share/g/a")
    before = len(stayer.publications)
    for number in range(6):
        publisher.publish("a", b"%d" % number)
    net.run(0.5)
    assert sorted(one.body for one in stayer.publications[before:]) == [b"%d" % number for number in range(6)]
    assert len(publisher.reasons) == 7
