"""Wide filters in a ring of whole engines: nothing is missed, and what they bring is measured on both paths."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import EntryFlag
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.engines.partitioned.subscribing.fresh_parents import FRESH
from ringmq.peer.engines.partitioned.subscribing.wide_filter import ALLOWANCE
from ringmq.peer.messaging.messages import Control
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.streams.stream_messages import Batch, BatchAck
from tests.peer.conftest import Member, Net


@pytest.fixture
def requester(net: Net) -> Member:
    """A peer with a wide filter for `reply/+`, among others that publish."""
    home, *others = net.others("reply")
    for other in others:
        other.publish("elsewhere")
    for number in range(FRESH + 1):
        done = home.subscribe(f"reply/old{number}")
        net.run(0.2)
        assert done
        home.core.unsubscribe(f"reply/old{number}")
        net.run(0.2)
    net.run(1.0)
    assert home.core.subscriber.wide == 1
    return home


def others_of(net: Net, home: Member) -> list[Member]:
    return [member for member in net.members.values() if member is not home]


def test_a_reply_to_a_fresh_topic_arrives_from_every_peer(net: Net, requester: Member) -> None:
    for number, other in enumerate(others_of(net, requester)):
        done = requester.subscribe(f"reply/{number}")
        net.run(0.1)
        assert done
        other.publish(f"reply/{number}", b"answer")
        net.run(0.1)
        assert (f"reply/{number}", b"answer") in requester.got
    assert requester.core.counters.unwanted == 0


def test_a_retained_message_from_before_is_found(net: Net, requester: Member) -> None:
    others_of(net, requester)[0].publish("reply/kept", b"kept", retain=True)
    net.run(0.5)
    requester.subscribe("reply/kept")
    net.run(0.5)
    assert requester.kept["reply/kept"] == b"kept"


def test_a_retained_message_on_its_way_to_its_coordinator_is_found(net: Net, requester: Member) -> None:
    coordinator = net.owning("reply/kept")[0]
    publisher = next(other for other in others_of(net, requester) if other is not coordinator)

    def lost(sender: Peer, receiver: Peer, message: Publication | Control) -> bool:
        return sender == publisher.me and receiver == coordinator.me and isinstance(message, Batch | BatchAck)

    net.lost = lost
    publisher.publish("reply/kept", b"kept", retain=True)
    net.run(0.1)
    assert requester.core.counters.unwanted == 1
    done = requester.subscribe("reply/kept")
    net.run(0.2)
    assert done
    assert requester.kept["reply/kept"] == b"kept"


@pytest.mark.parametrize("quick", [False, True])
def test_it_is_taken_back_when_others_get_replies_below_the_same_parent(
    net: Net, requester: Member, quick: bool
) -> None:
    publisher = others_of(net, requester)[0]
    requester.quick, requester.quick_wanted = quick, False
    requester.subscribe("reply/mine")
    net.run(0.2)
    for number in range(ALLOWANCE + 1):
        publisher.publish(f"reply/other{number}", qos=0)
        net.run(0.05)
        publisher.core.clock.now = net.now
    net.run(5.0)
    assert requester.core.subscriber.wide == 0
    counters = requester.core.counters
    assert (counters.widened, counters.narrowed) == (1, 1)
    publisher.publish("reply/mine", b"answer")
    publisher.publish("reply/other", b"unwanted")
    before = counters.unwanted
    net.run(0.5)
    assert ("reply/mine", b"answer") in requester.got
    assert counters.unwanted == before


def test_the_status_says_that_no_client_has_it(net: Net, requester: Member) -> None:
    requester.subscribe("reply/mine")
    net.run(0.2)
    status = requester.core.status(net.now, {})["subscribing"]
    assert (status["total"], status["wide"], sum(status["stages"].values())) == (1, 1, 1)
    shown = {row["filter"]: (row["wide"], row["served_by"]) for row in status["filters"]}
    assert shown == {"reply/+": (True, None), "reply/mine": (False, "reply/+")}
    record = next(iter(net.owning("reply")[0].core.replicas.records(partition_of("reply")).values()))
    assert record.flags & EntryFlag.WIDE
    topic = net.owning("reply")[0].core.topic_status("reply/mine", lambda key: None)
    assert topic is not None
    subscribers = [each for part in topic["partitions"] if part["held"] for each in part["held"]["subscribers"]]
    assert [(each["filter"], each["entry"]) for each in subscribers] == [("reply/+", "wide")]


def test_it_outlives_its_coordinator(net: Net, requester: Member) -> None:
    coordinator = net.owning("reply")[0]
    assert coordinator is not requester
    requester.subscribe("reply/before")
    net.run(0.2)
    net.crash(coordinator)
    publisher = others_of(net, requester)[0]
    net.run(5.0)
    requester.subscribe("reply/after")
    net.run(1.0)
    publisher.publish("reply/before", b"1")
    publisher.publish("reply/after", b"2")
    net.run(1.0)
    assert {("reply/before", b"1"), ("reply/after", b"2")} <= set(requester.got)
    assert requester.core.subscriber.wide == 1
