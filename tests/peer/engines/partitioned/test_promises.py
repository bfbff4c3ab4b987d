"""All roles of some peers together: the promises to clients, the time, and what disks keep."""

from __future__ import annotations

from math import inf
from pathlib import Path
from random import Random

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.body import encode_body, remaining_of
from ringmq.peer.messaging.config import LAN, PubSubConfig
from ringmq.peer.messaging.messages import Control, Held
from ringmq.peer.messaging.publication import Publication, encode
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.replication.record import RecordKind, SharedRecord
from tests.peer.conftest import Member, Net


def test_what_nobody_asked_for_is_not_given_out(net: Net) -> None:
    publisher, one = net.others("a", "a/#", "#")[:2]
    one.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    one.core.unsubscribe("a")
    publisher.publish("a", b"late")
    net.run(0.5)
    assert one.got == [("a", b"x")]
    assert one.core.counters.unwanted == 1
    assert len(publisher.reasons) == 2


def test_acknowledgements_can_wait_for_the_disk(net: Net) -> None:
    publisher, one = net.others("a")[:2]
    one.subscribe("a")
    net.run(0.5)
    publisher.publish("a", b"before")
    net.run(0.5)
    one.core.acknowledges_later = True
    publisher.publish("a")
    net.run(0.2)
    assert one.got[1:] == [("a", b"x")]
    assert len(publisher.reasons) == 1
    assert one.core.owes
    one.core.acknowledge()
    net.run()
    assert len(publisher.reasons) == 2
    assert net.count(Held) == 2


def test_a_message_is_seen_by_who_subscribes_while_it_is_retained(net: Net) -> None:
    """As retained or as live, and never as both."""
    publisher, *others = net.others("a/b")
    publisher.publish("a/b", b"0")
    net.run(0.1)
    for number, one in enumerate(others):
        one.subscribe("a/+")
        publisher.publish("a/b", str(number).encode(), retain=True)
        net._deliver()
        last = str(number).encode()
        assert one.kept["a/b"] == last or ("a/b", last) in one.got
        assert one.got.count(("a/b", last)) <= 1


def test_time(net: Net) -> None:
    member = next(iter(net.members.values()))
    assert member.core.deadline() < inf
    member.core.clock.now = 7.0
    assert member.core.clock.now == 7.0


def test_everything_lost_for_a_while_does_no_lasting_harm(net: Net) -> None:
    publisher, *others = net.others("a")
    for one in others:
        one.subscribe("a")

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return True

    net.lost = lost
    publisher.publish("a", b"1")
    net.run(4.0)
    net.lost = lambda sender, receiver, message: False
    net.run(6.0)
    publisher.publish("a", b"2")
    net.run(1.0)
    assert all(one.got[-1] == ("a", b"2") for one in others)
    assert len(publisher.reasons) == 2


def test_the_quick_way_goes_where_the_long_one_goes(net: Net) -> None:
    members = [net.add(number << 100) for number in range(4)]
    for one in members[1:3]:
        one.subscribe("a/+")
    members[3].subscribe("$share/g/b")
    net.run()
    core = members[0].core
    assert not core.publish_fast("a/b", b"0"), "no list is here"
    members[0].publish("a/b", b"1", 0)
    members[0].publish("b", b"1", 0)
    net.run()
    for one in members:
        one.quick = True
    assert core.publish_fast("a/b", b"2")
    assert not core.publish_fast("b", b"2"), "a group is not for the quick way"
    net.run()
    members[2].quick = False
    assert core.publish_fast("a/b", b"3")
    net.run()
    members[0].publish("a/b", b"4", 0)
    net.run()
    for one in members[1:3]:
        assert one.got == [("a/b", b"%d" % number) for number in range(1, 5)]
    assert members[0].got == []
    assert core.counters.published == 5


def test_the_quick_way_ends_with_the_lease_and_with_the_plan(net: Net) -> None:
    first, second, third = [net.add(number << 100) for number in range(3)]
    second.subscribe("a")
    net.run()
    first.publish("a", b"1", 0)
    net.run()
    assert first.core.publish_fast("a", b"2")
    third.subscribe("a")
    net.run()
    assert first.core.publish_fast("a", b"3"), "by the new plan"
    net.run()
    first.core.clock.now += LAN.lease_s
    assert not first.core.publish_fast("a", b"4"), "it cannot be trusted any more"
    assert second.got == [("a", b"1"), ("a", b"2"), ("a", b"3")]
    assert third.got == [("a", b"3")]


def test_the_quick_way_counts(net: Net) -> None:
    first, second = net.add(1 << 100), net.add(2 << 100)
    second.subscribe("a")
    net.run()
    first.publish("a", b"1", 0)
    net.run()
    second.quick = True
    first.core.publish_fast("a", b"2")
    payload = net.queue[-1][2]
    net.run()
    second.core.receive(first.me, payload)
    assert second.core.counters.duplicates == 1
    second.quick_wanted = False
    first.core.publish_fast("a", b"3")
    net.run()
    assert (second.core.counters.received, second.core.counters.unwanted) == (2, 1)
    first.full = True
    assert first.core.publish_fast("a", b"4")
    assert first.core.counters.dropped == 1


def test_all_that_was_acknowledged_is_there_after_a_crash_of_all(lasting: Net) -> None:
    publisher, count = next(iter(lasting.members.values())), 20
    for number in range(2 * count):
        publisher.publish(f"t/{number % count}", b"old %d" % number, retain=True)
    lasting.run(2.0)
    for number in range(5):
        publisher.publish(f"t/{number}", b"", retain=True)
    lasting.run(0.5)
    assert len(publisher.reasons) == 2 * count + 5
    members = lasting.restart(*lasting.members.values())
    exact, wild = members[0], members[1]
    exact.subscribe(*[f"t/{number}" for number in range(count)])
    wild.subscribe("t/+")
    lasting.run(3.0)
    for member in (exact, wild):
        assert {topic: body for topic, body in member.kept.items() if body} == {
            f"t/{number}": b"old %d" % (number + count) for number in range(5, count)
        }
    lasting.run(5.0)
    for number in range(count):
        topic = f"t/{number}"
        digests = {member.core.replicas.digest(partition_of(topic)) for member in lasting.owning(topic)}
        assert len(digests) == 1


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_of_all_at_any_moment_loses_nothing_acknowledged(lasting: Net, seed: int) -> None:
    random = Random(seed)
    last: dict[str, tuple[int, int]] = {}
    """Of each topic the number of the last message, and of the last that was acknowledged; odd ones clear."""

    def done(topic: str, number: int) -> None:
        last[topic] = (last[topic][0], max(last[topic][1], number))

    publisher = next(iter(lasting.members.values()))
    for number in range(60):
        topic = random.choice(("a", "a/b", "c"))
        last[topic] = (number, last.get(topic, (0, -1))[1])
        clears = number % 2 == 1
        publisher.core.clock.now = lasting.now
        publisher.core.publish(
            topic, b"" if clears else str(number).encode(), 1, retain=True, clears=clears,
            done=lambda _, topic=topic, number=number: done(topic, number),  # type: ignore[misc]
        )  # fmt: skip
        for _ in range(random.randrange(20)):
            lasting.step()
        if random.random() < 0.1:
            lasting.run(1.0)
    lasting.queue.clear()
    members = lasting.restart(*lasting.members.values())
    reader = members[random.randrange(8)]
    reader.subscribe("#")
    lasting.run(5.0)
    for topic, (latest, acknowledged) in last.items():
        body = reader.kept.get(topic)
        if body:
            assert acknowledged <= int(body) <= latest
            assert int(body) % 2 == 0
        else:
            assert acknowledged < 0 or any(number % 2 for number in range(acknowledged, latest + 1))


def test_what_was_kept_before_there_was_a_ring_is_taken_over(lasting: Net) -> None:
    members = list(lasting.members.values())
    members[0].publish("known", b"new", retain=True)
    members[0].publish("cleared", b"", retain=True)
    lasting.run(0.5)
    lasting.crash(*members)

    def before(core: PartitionedEngine) -> None:
        for topic in ("known", "cleared", "only here"):
            core.take_over(topic, b"old", 7)

    lasting.add(members[3].me.id, 2, before)
    lasting.restart(*members[:3], *members[4:])
    lasting.run(3.0)
    reader = lasting.others("known", "cleared", "only here")[0]
    reader.subscribe("#")
    lasting.run(2.0)
    assert {topic: body for topic, body in reader.kept.items() if body} == {"known": b"new", "only here": b"old"}


def test_time_goes_on_over_a_crash_of_all(lasting: Net) -> None:
    publisher, *others = lasting.others("a", "b", "#")
    for topic, expiry_s in (("a", 60), ("b", 10)):
        publisher.publish(topic, encode_body(Message(topic, b"x", expires_at=expiry_s), 0.0), retain=True)
    lasting.run(20.0)
    lasting.restart(*lasting.members.values())
    lasting.run(5.0)
    reader = lasting.members[others[0].me.id]
    reader.subscribe("a", "b")
    lasting.run(1.0)
    assert {topic: remaining_of(body) for topic, body in reader.kept.items() if body} == {"a": 35}


def test_what_a_peer_knows_itself_is_newer_than_what_it_takes_over(tmp_path: Path) -> None:
    net = Net(PubSubConfig(), tmp_path)
    alone = net.add(5)
    alone.publish("known", b"new", retain=True)
    alone.publish("cleared", b"", retain=True)
    net.run(1.0)
    net.crash(alone)

    def before(core: PartitionedEngine) -> None:
        for topic in ("known", "cleared"):
            core.take_over(topic, b"old", 7)

    back = net.add(5, 2, before)
    back.subscribe("known", "cleared")
    net.run(1.0)
    assert {topic: body for topic, body in back.kept.items() if body} == {"known": b"new"}
    net.crash(back)


class History:
    """Of each topic what was published, and what of that was acknowledged."""

    def __init__(self) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        self.acknowledged: dict[str, int] = {}

    def publish(self, member: Member, topic: str, body: bytes) -> None:
        bodies = self.bodies.setdefault(topic, [b""])
        bodies.append(body)
        number = len(bodies) - 1

        def done(reason: Reason) -> None:
            self.acknowledged[topic] = max(number, self.acknowledged.get(topic, 0))

        member.core.clock.now = member.net.now
        member.core.publish(topic, body, 1, retain=True, clears=not body, done=done)

    def check(self, member: Member) -> None:
        """It has of each topic what was acknowledged last, or something later."""
        for topic, bodies in self.bodies.items():
            assert member.kept.get(topic, b"") in bodies[self.acknowledged.get(topic, 0) :], topic


@pytest.mark.parametrize("seed", range(4))
def test_peers_come_and_go_with_their_disks(lasting: Net, seed: int) -> None:
    """For shorter and for longer than it is remembered at each place what is gone. In the end all are back."""
    random, history = Random(seed), History()
    boots = dict.fromkeys(lasting.members, 1)
    away: list[Id] = []

    def back(point: Id) -> None:
        boots[point] += 1
        lasting.add(point, boots[point])

    for number in range(100):
        here = list(lasting.members.values())
        act = random.random()
        if act < 0.6:
            body = b"" if random.random() < 0.3 else b"%d" % number
            history.publish(random.choice(here), random.choice(("a", "a/b", "c")), body)
            for _ in range(random.randrange(30)):
                lasting.step()
        elif act < 0.75 and len(here) > 3:
            away.append(random.choice(here).me.id)
            lasting.crash(lasting.members[away[-1]])
        elif act < 0.9 and away:
            back(away.pop(random.randrange(len(away))))
        elif act < 0.95:
            lasting.crash(*here)
            for member in here:
                back(member.me.id)
        lasting.run(150.0 if act > 0.98 else random.choice((0.01, 0.3, 3.0)))
    for point in away:
        back(point)
    lasting.run(20.0)
    exact, wild = random.sample(list(lasting.members.values()), 2)
    exact.subscribe(*history.bodies)
    wild.subscribe("#")
    lasting.run(5.0)
    assert history.acknowledged
    for member in (exact, wild):
        history.check(member)


@pytest.mark.parametrize("shared", [(), ("$share/g/a",)])
def test_a_retained_message_that_was_fetched_before_still_goes_to_a_group(net: Net, shared: tuple[str, ...]) -> None:
    member, other, *_ = net.others("a")
    member.subscribe("a", "$share/g/a")
    net.run(1.0)
    member.core._retained_cache.fetched(
        SharedRecord(RecordKind.RETAINED, "a", None, stamp_of(5, other.me.id), False, body=b"x")
    )
    one = Publication(1, 1, 1, "a", b"x", True, 5, number=1, base=1, shared=shared)
    member.core.receive(other.me, encode(one))
    assert [(given.unshared, given.shared) for given in member.publications] == ([(False, shared)] if shared else [])
    assert member.core.counters.duplicates == 1


def test_what_was_cleared_is_forgotten_in_the_end(tmp_path: Path) -> None:
    net = Net(PubSubConfig(cleared_s=100.0), tmp_path)
    alone = net.add(5)
    alone.publish("a", b"", retain=True)
    net.run(90.0)
    assert alone.store is not None
    assert len(alone.core.cleared) == len(alone.store.load().cleared) == 1
    net.run(30.0)
    assert len(alone.core.cleared) == len(alone.store.load().cleared) == 0
    net.crash(alone)


def test_the_longest_topic(net: Net) -> None:
    """The filters below it are in the partition of a name as long."""
    topic = 65_535 * "t"
    publisher, one = net.others(topic)[:2]
    one.subscribe(topic)
    net.run(0.5)
    publisher.publish(topic)
    net.run(0.5)
    assert one.got == [(topic, b"x")]
    assert publisher.reasons == [Reason.SUCCESS]


def nobody(reason: Reason) -> None: ...


def crash_of_all(net: Net) -> tuple[Member, Member]:
    """Two members have `a`, one of them for a kept session; all crash, and all but these two start again."""
    kept, passing = net.others("a")[:2]
    kept.subscribe("a", lasting=True)
    passing.subscribe("a")
    net.run(1.0)
    members = list(net.members.values())
    net.crash(*members)
    net.queue.clear()
    net.restart(*[member for member in members if member not in (kept, passing)])
    net.run(0.5)
    return kept, passing


def test_after_a_crash_of_all_publishers_wait_for_kept_sessions(lasting: Net) -> None:
    kept, passing = crash_of_all(lasting)
    publisher = next(iter(lasting.members.values()))
    publisher.publish("a", b"early")
    lasting.run(5.0)
    assert publisher.reasons == []
    lasting.add(passing.me.id, 2)
    back = lasting.add(kept.me.id, 2, lambda core: core.subscribe("a", nobody, True))
    lasting.run(3.0)
    assert back.got == [("a", b"early")]
    assert publisher.reasons == [Reason.SUCCESS]


def test_after_a_crash_of_all_nobody_waits_longer_than_a_lease_for_who_stays_away(lasting: Net) -> None:
    crash_of_all(lasting)
    publisher = next(iter(lasting.members.values()))
    publisher.publish("a", b"early")
    lasting.run(LAN.entry_s + 3.0)
    assert len(publisher.reasons) == 1
    publisher.publish("a", b"late")
    lasting.run(0.5)
    assert len(publisher.reasons) == 2, "its home is away"
    # Nor does anybody wait after another restart, as the disks know that it is away.
    again = lasting.restart(*lasting.members.values())
    lasting.run(0.5)
    again[0].publish("a", b"later")
    lasting.run(2.0)
    assert len(again[0].reasons) == 1


def test_publications_wait_for_a_ring_that_is_not_together_yet(net: Net) -> None:
    subscriber = net.others("a", "b")[0]
    subscriber.subscribe("a", "b")
    net.run(1.0)
    former = [("elsewhere", port) for port in range(3)]
    publisher = net.add(77, 1, lambda core: core.await_ring(former))
    for body in (b"1", b"2"):
        publisher.publish("a", body, qos=1)
        publisher.publish("b", body, qos=0)
    assert not publisher.core.publish_fast("b", b"x")
    net.run(LAN.entry_s - 1.0)
    assert subscriber.got == []
    net.run(2.0)
    assert subscriber.got == [("a", b"1"), ("a", b"2"), ("b", b"1"), ("b", b"2")]
    assert len(publisher.reasons) == 4


@pytest.mark.parametrize("topic_filter", ["a", "+"])
def test_retained_message_reaches_a_restored_session_although_it_was_fetched(lasting: Net, topic_filter: str) -> None:
    """Its session is no new subscriber: a retained message is nothing to it but a message that it has missed."""
    publisher, home = lasting.others("a", topic_filter)[:2]
    home.subscribe(topic_filter, lasting=True)
    lasting.run(1.0)
    lasting.crash(home)
    publisher.publish("a", b"1", retain=True)
    publisher.publish("a", b"2", retain=True)
    lasting.run(1.0)
    back = lasting.add(home.me.id, 2, lambda core: core.subscribe(topic_filter, nobody, True, restored=True))
    lasting.run(3.0)
    assert back.got == [("a", b"1"), ("a", b"2")]
    assert back.kept["a"] == b"2", "for who subscribes later"
    assert publisher.reasons == [Reason.SUCCESS] * 2
