"""The role goes with the ring: to newcomers, from the dead, and together again."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import SPACE
from ringmq.peer.engines.coordinated.messages import Kind, Record, StateReply, StateRequest, TakeOver
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.partitions import key_of_place
from ringmq.peer.messaging.publication import decode, encode_control
from ringmq.peer.replication.replica import Replica
from tests.peer.conftest import Net


def test_a_newcomer_takes_over_with_all_that_was_acknowledged(net: Net) -> None:
    done = net.others("a")[0].subscribe("a")
    net.run(0.5)
    assert done == ["a"]
    before = net.holders("a")
    newcomer = net.add(key_of_place("a") + 1)
    net.run(3.0)
    replica = newcomer.core.replicas.get("a")
    assert replica is not None
    assert replica.coordinates
    assert net.holders("a")[0] is newcomer
    assert len({member.core.replicas.get("a").present() for member in net.holders("a")}) == 1  # type: ignore[union-attr]
    assert before[-1].core.replicas.get("a") is None, "who has no part in it any more forgets it"
    assert before[-1].core.counters.handed_over == 1


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_shadow_takes_over(net: Net, deaths: int) -> None:
    one, publisher, late = net.others("a", "a/#", "#")[:3]
    one.subscribe("a")
    publisher.publish("a")
    net.run(0.5)
    for victim in net.holders("a")[:deaths]:
        net.crash(victim)
    done = late.subscribe("a")
    net.run(0.1)
    assert done == ["a"]
    publisher.publish("a", b"after")
    net.run(0.5)
    assert ("a", b"after") in one.got
    assert ("a", b"after") in late.got


def test_who_is_asked_before_it_is_told_that_it_owns_a_key_serves_it(net: Net) -> None:
    """Told of thousands of keys, a peer is told of some of them late; what it routes comes to itself by then."""
    reader = net.others("a")[0]
    reader.subscribe("a")
    net.others("a")[1].publish("a", b"before", retain=True)
    net.run(0.5)
    first, second, *_ = net.holders("a")
    net.late = True
    net.crash(first)
    second.publish("a", b"after", retain=True)
    net.run(1.0)
    assert second.reasons == [Reason.SUCCESS]
    assert ("a", b"after") in reader.got


def test_a_place_is_looked_at_with_the_owners_of_then(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    old, heir = net.holders("a")[:2]
    net.late = True
    net.crash(old)
    net.run(net.config.idle_look_s + 1.0)
    replica = heir.core.replicas.get("a")
    assert replica is not None
    assert replica.coordinates


def test_the_newest_of_several_newcomers_coordinates(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    for step in (9, 7, 5, 3):
        net.add((key_of_place("a") + step) % SPACE)
    net.run(3.0)
    replica = net.holders("a")[0].core.replicas.get("a")
    assert replica is not None
    assert [record.name for record in replica.book if not record.gone] == ["a"]
    holders = [member for member in net.members.values() if member.core.replicas.get("a") is not None]
    assert len(holders) == net.config.shadows + 1


def test_nobody_reigns_before_all_have_answered(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    silent = net.holders("a")[1].me
    net.lost = lambda sender, receiver, message: receiver == silent and isinstance(message, StateRequest)
    newcomer = net.add(key_of_place("a") + 1)
    net.run(3.0)
    replica = newcomer.core.replicas.get("a")
    assert replica is not None
    assert not replica.coordinates
    net.crash(net.members[silent.id])
    net.run(2.0)
    assert replica.coordinates


def test_nudges_do_not_make_it_ask_more(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    shadow = net.holders("a")[1]
    silent = shadow.me
    net.lost = lambda sender, receiver, message: receiver == silent and isinstance(message, StateRequest)
    newcomer = net.add(key_of_place("a") + 1)
    net.seen.clear()
    for _ in range(100):
        newcomer.core.receive(silent, encode_control(TakeOver("a")))
        net.run(0.1)
    asked = sum(isinstance(message, StateRequest) for _, receiver, message in net.seen if receiver != silent)
    assert asked <= len(net.members)
    assert sum(isinstance(message, TakeOver) for _, _, message in net.seen) < 100
    net.lost = lambda sender, receiver, message: False
    net.run(net.config.slow_retry_s)
    replica = newcomer.core.replicas.get("a")
    assert replica is not None
    assert replica.coordinates


def test_who_cannot_take_over_is_reminded_more_and_more_seldom(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    newcomer = net.add(key_of_place("a") + 1)
    newcomer.active = False
    net.seen.clear()
    net.run(60.0)
    reminders = sum(isinstance(message, TakeOver) for _, receiver, message in net.seen if receiver == newcomer.me)
    assert net.config.shadows <= reminders <= 8 * (net.config.shadows + 1)


def test_a_slow_answer_counts_however_often_it_is_nudged(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    shadow = net.holders("a")[1].me
    net.lost = lambda sender, receiver, message: sender == shadow and isinstance(message, StateReply)
    newcomer = net.add(key_of_place("a") + 1)
    for _ in range(2):
        newcomer.core.receive(shadow, encode_control(TakeOver("a")))
        net.run(0.25)
    replica = newcomer.core.replicas.get("a")
    assert replica is not None
    assert not replica.coordinates
    newcomer.core.receive(shadow, encode_control(TakeOver("a")))
    newcomer.core.receive(shadow, encode_control(StateReply("a", 1, (), False)))
    assert replica.coordinates


def test_who_stopped_serving_gathers_again(net: Net) -> None:
    net.others("a")[0].subscribe("a")
    net.run(0.5)
    coordinator = net.holders("a")[0]
    replica = coordinator.core.replicas.get("a")
    assert replica is not None
    epoch = replica.epoch
    coordinator.active = False
    coordinator.core.activity_changed(False)
    assert not replica.coordinates
    net.run(0.1)
    coordinator.active = True
    coordinator.core.activity_changed(True)
    net.run(0.5)
    assert replica.coordinates
    assert replica.epoch > epoch


def test_what_nobody_wants_any_more_is_forgotten(net: Net) -> None:
    one = net.others("a")[0]
    one.subscribe("a")
    net.run(0.5)
    one.core.unsubscribe("a")
    net.run(net.config.tomb_s + 5)
    assert not any(len(member.core.replicas) for member in net.members.values())


def test_a_place_leaves_the_disk_once_others_have_it(lasting: Net) -> None:
    lasting.others("a")[0].publish("a", b"kept", retain=True)
    lasting.run(1.0)
    before = lasting.holders("a")
    newcomer = lasting.add(key_of_place("a") + 1)
    store, newcomer.store = newcomer.store, None
    lasting.run(3.0)
    pushed_out = before[-1]
    assert pushed_out.store is not None
    assert "a" in pushed_out.store.load().places, "the newcomer has not got it on its disk yet"
    newcomer.store = store
    lasting.run(3.0)
    assert "a" not in pushed_out.store.load().places
    assert pushed_out.core.replicas.get("a") is None
    assert store is not None
    assert "a" in store.load().places


def test_who_comes_back_hands_over_what_is_not_his_any_more(lasting: Net) -> None:
    lasting.others("a")[0].publish("a", b"kept", retain=True)
    lasting.run(1.0)
    holders = lasting.holders("a")
    lasting.crash(*holders)
    for step in (1, 2, 3):
        lasting.add((key_of_place("a") + step) % SPACE)
    lasting.run(1.0)
    (back,) = lasting.restart(holders[1])
    lasting.run(3.0)
    assert back.core.replicas.get("a") is None
    assert back.store is not None
    assert "a" not in back.store.load().places
    reader = lasting.others("a")[-1]
    reader.subscribe("a", "+")
    lasting.run(1.0)
    assert reader.kept == {"a": b"kept"}


def test_who_is_asked_knows_what_was_cleared(net: Net) -> None:
    """A new coordinator learns it, when somebody brings what was cleared."""
    publisher = net.others("a", "a/#", "#")[0]
    publisher.publish("a", b"", retain=True)
    net.run(net.config.idle_s + 2 * net.config.tomb_s)
    assert net.holders("a")[0].core.replicas.get("a") is None
    net.add(key_of_place("a"))
    stale = Record(Kind.RETAINED, "a", None, (0, 1), False, body=b"stale")
    old = net.others("a")[0]
    old.core.replicas.open("a").take(stale, net.now, net.config)
    net.run(2.0)
    assert old.core.replicas.get("a") is None
    reader = net.others("a")[1]
    reader.subscribe("a")
    net.run(1.0)
    assert not reader.kept.get("a")
    assert net.holders("a")[0].core.cleared.of("a") is not None


@pytest.mark.parametrize("held", [False, True])
def test_who_is_asked_tells_what_was_cleared(net: Net, held: bool) -> None:
    """Whether anything else of the place is held here or not."""
    one, asker = net.others("a")[:2]
    clearing = Record(Kind.RETAINED, "a", None, (5, 5), True)
    one.core.cleared.heard(clearing)
    if held:
        one.core.replicas.open("a").take(Record(Kind.ENTRY, "a", asker.me, (1, 1), False), net.now, net.config)
    net.queue.append((asker.me, one.me, encode_control(StateRequest("a"))))
    net.step()
    answer = decode(net.queue.pop()[2])
    assert isinstance(answer, StateReply)
    assert answer.records[-1] == clearing
    assert len(answer.records) == 1 + held


def test_those_who_take_a_place_over_know_when_it_expires(net: Net) -> None:
    net.others("a")[0].publish("a", encode_body(Message("a", b"x", expires_at=100), 0.0), retain=True)
    net.run(50.0)
    for point in (member.me.id for member in net.holders("a")[:2]):
        for step in (-1, 1):
            net.add((point + step) % SPACE)
    net.run(5.0)
    for holder in net.holders("a"):
        replica = holder.core.replicas.get("a")
        assert replica is not None
        assert 99.0 <= replica.ends_at <= 101.0


def test_a_place_that_was_left_is_let_go_of(net: Net) -> None:
    """Whatever had been planned for it: an agenda holds on to what it is to look at."""
    publisher = net.others("a")[0]
    publisher.publish("a", encode_body(Message("a", b"x", expires_at=86_400), 0.0), retain=True)
    net.run(1.0)
    publisher.publish("a", b"", retain=True)
    net.run(net.config.tomb_s + 3 * net.config.idle_look_s)
    agendas = [member.core._state.timers for member in net.members.values()]
    assert not [subject for timers in agendas for *_, subject in timers._due if isinstance(subject, Replica)]


def test_what_a_dead_coordinator_wanted_lapses(net: Net) -> None:
    """Its heir looks after the leases that it has taken over."""
    coordinator, _, third = net.holders("a")
    coordinator.subscribe("a")
    net.run(60.0)
    third.publish("a")
    net.run(1.0)
    net.crash(coordinator)
    third.publish("a")
    net.run(net.config.entry_s + 2 * net.config.look_s)
    assert len(third.reasons) == 2, "the second is acknowledged too"
