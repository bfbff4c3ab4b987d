"""Publications and subscriptions of amqtt's clients: their receivers, reports to the cluster, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

pytest.importorskip("amqtt", reason="the extra amqtt is not installed")

from amqtt.broker import BrokerContext
from amqtt.contexts import Action
from amqtt.plugins.base import BasePlugin, BaseTopicPlugin
from amqtt.session import Session

from ringmq.mqtt_front.amqtt.broker import MAX_WAITING, REFUSED
from ringmq.mqtt_front.codec.packets import Disconnect, Puback, Publish, Pubrec, Suback, Subscribe, Subscription
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from tests.mqtt_front.amqtt_bench import Bench, Client, access_of, until

ACL = """
topic readwrite open/#
topic write drop/#
topic read wide/#
topic deny wide/secret
user boss
topic readwrite #
"""


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


async def pair(bench: Bench) -> tuple[Client, Client]:
    """A publisher and a subscriber to be."""
    return await bench.connect("publisher"), await bench.connect("subscriber")


@pytest.fixture
async def guarded(bench: Bench) -> tuple[Client, Client]:
    """Two clients under an ACL: a user with all rights, and an anonymous client."""
    await bench.start(access_of(ACL, boss="secret"))
    return await bench.connect("boss", user_name="boss", password=b"secret"), await bench.connect("other")


# Messages


@pytest.mark.parametrize("published", [0, 1])
@pytest.mark.parametrize("subscribed", [0, 1])
async def test_a_message_has_the_lower_qos(bench: Bench, published: int, subscribed: int) -> None:
    await bench.start()
    publisher, subscriber = await pair(bench)
    assert await subscriber.subscribe("a/+", qos=subscribed) == (subscribed,)
    await publisher.publish("a/b", b"x", published)
    assert await subscriber.message() == ("a/b", b"x", min(published, subscribed), False)
    assert bench.ears.messages == [Message("a/b", b"x", published, origin="publisher")]
    assert bench.ears.receivers == [1]
    assert (bench.ears.dones[0] is None) == (published == 0)


async def test_each_publication_is_reported_once(bench: Bench) -> None:
    await bench.start()
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("#", "a/#", "+/b")
    for number in range(20):
        await publisher.publish("a/b", b"%d" % number, number % 2)
    await publisher.publish("nobody", b"end")
    assert await bench.told(21) == [*[b"%d" % number for number in range(20)], b"end"]
    assert bench.ears.receivers == [3] * 20 + [1]


async def test_message_of_the_cluster_is_not_reported_back(bench: Bench) -> None:
    front = await bench.start()
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("a/#", qos=1)
    await publisher.subscribe("a/#", qos=0)
    assert front.deliver(Message("a/b", b"far", 2)) == 2
    assert front.deliver(Message("z", b"far")) == 0
    assert await subscriber.message() == ("a/b", b"far", 1, False)
    assert await publisher.message() == ("a/b", b"far", 0, False)
    assert await publisher.quiet()
    assert bench.ears.messages == []


async def test_message_acknowledged_before_a_disconnect_is_published(bench: Bench) -> None:
    await bench.start()
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("a")
    publisher.send(*[Publish("a", b"%d" % n, 1, packet_id=n + 1) for n in range(50)], Disconnect(Reason.SUCCESS))
    for number in range(50):
        assert (await subscriber.message())[1] == b"%d" % number
    assert len(bench.ears.messages) == 50


async def test_more_than_can_be_worked_off_is_read_later(bench: Bench) -> None:
    await bench.start(receive_maximum=4)
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("a")
    publisher.send(*[Publish("a", b"%d" % number) for number in range(300)])
    for number in range(300):
        assert (await subscriber.message())[1] == b"%d" % number


async def test_full_queue_drops_messages_of_the_cluster(bench: Bench) -> None:
    front = await bench.start()
    _, subscriber = await pair(bench)
    await subscriber.subscribe("a")
    message = Message("a", b"x")
    assert sum([front.deliver(message) for _ in range(MAX_WAITING + 5)]) == MAX_WAITING
    assert front.broker.counters.publish_dropped == 5


@pytest.mark.parametrize("topic", ["$SYS/broker/load", "$SYS"])
async def test_clients_do_not_speak_for_the_server(bench: Bench, topic: str) -> None:
    front = await bench.start()
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("$SYS/#")
    await publisher.publish(topic, b"lie", 1)
    await publisher.publish("$other/a", b"true", 1)
    assert await bench.told(1) == [b"true"]
    assert await subscriber.quiet()
    assert front.broker.counters.unauthorized == 1


# Subscriptions


async def test_filters_are_reported_at_their_first_and_last_subscription(bench: Bench) -> None:
    front = await bench.start()
    first, other = await pair(bench)
    await first.subscribe("a/#", "b")
    await other.subscribe("a/#")
    await first.subscribe("a/#")
    assert bench.ears.filters == ["+a/#", "+b"]
    assert front.broker.subscribed == 3
    await first.unsubscribe("a/#", "never")
    await other.unsubscribe("a/#")
    assert bench.ears.filters == ["+a/#", "+b", "-a/#"]
    await other.subscribe("a/#")
    first.send(Disconnect(Reason.SUCCESS))
    await until(lambda: bench.ears.filters[3:] == ["+a/#", "-b"])
    other.drop()
    await until(lambda: bench.ears.filters[5:] == ["-a/#"])
    assert front.broker.subscriptions == {}


async def test_a_suback_waits_until_the_filter_is_in_force(bench: Bench) -> None:
    await bench.start()
    first, other = await pair(bench)
    bench.ears.patient = True
    for client in (first, other):
        client.send(Subscribe(1, (Subscription("a", 0),)))
        assert await client.quiet()
    await until(lambda: bench.ears.waiting)
    assert len(bench.ears.waiting) == 1
    bench.ears.waiting[0](Reason.SUCCESS)
    assert await first.subscribe("a") == (0,)
    assert await other.subscribe("a") == (0,)


async def test_a_filter_that_the_cluster_refuses_is_refused_and_gone(bench: Bench) -> None:
    front = await bench.start()
    first, other = await pair(bench)
    bench.ears.patient = True
    for client in (first, other):
        client.send(Subscribe(1, (Subscription("a", 0),)))
        assert await client.quiet()
    await until(lambda: bench.ears.waiting and front.broker.subscribed == 2)
    bench.ears.waiting[0](Reason.QUOTA_EXCEEDED)
    for client in (first, other):
        assert (await client.next(Suback)).reasons == (REFUSED,)
    await until(lambda: bench.ears.filters == ["+a", "-a"])
    bench.ears.patient = False
    assert await first.subscribe("a") == (0,)


async def test_another_subscription_takes_the_place_of_the_first(bench: Bench) -> None:
    await bench.start()
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("a", qos=0)
    await subscriber.subscribe("a", qos=1)
    await publisher.publish("a", b"x", 1)
    assert await subscriber.message() == ("a", b"x", 1, False)
    assert await subscriber.quiet()


@pytest.mark.parametrize("topic_filter", ["$share/g/a", "$share//a", "/".join("a" * 129)])
async def test_filters_that_cannot_be_served_are_refused(bench: Bench, topic_filter: str) -> None:
    await bench.start()
    client = await bench.connect()
    assert await client.subscribe(topic_filter, "a") == (REFUSED, 0)
    assert bench.ears.filters == ["+a"]


async def test_filters_have_a_bound(bench: Bench) -> None:
    await bench.start(max_subscriptions=2)
    first, other = await pair(bench)
    assert await first.subscribe("a", "b", "c") == (0, 0, REFUSED)
    assert await other.subscribe("b", "c") == (0, REFUSED)


# Retained messages


async def test_retained_messages_come_with_a_subscription(bench: Bench) -> None:
    await bench.start()
    publisher, subscriber = await pair(bench)
    await publisher.publish("a/b", b"kept", 1, retain=True)
    await bench.told(1)
    assert bench.ears.messages == [Message("a/b", b"kept", 1, True, origin="publisher")]
    await subscriber.subscribe("a/+", qos=0)
    assert await subscriber.message() == ("a/b", b"kept", 0, True)
    await publisher.publish("a/b", b"", 1, retain=True)
    assert await subscriber.message() == ("a/b", b"", 0, False)
    await subscriber.subscribe("a/#")
    assert await subscriber.quiet()


async def test_new_client_gets_no_retained_messages_of_other_filters(bench: Bench) -> None:
    await bench.start()
    publisher, subscriber = await pair(bench)
    await subscriber.subscribe("a")
    await publisher.publish("a", b"kept", 1, retain=True)
    assert await subscriber.message() == ("a", b"kept", 0, False)
    newcomer = await bench.connect("newcomer")
    assert await newcomer.quiet()


async def test_retained_messages_from_elsewhere(bench: Bench) -> None:
    front = await bench.start(max_retained=1)
    subscriber = await bench.connect()
    assert front.broker.retain(Message("a", b"far", 1))
    assert not front.broker.retain(Message("b", b"over"))
    assert front.broker.retain(Message("a", b"farther", 1))
    await subscriber.subscribe("#", qos=1)
    assert await subscriber.message() == ("a", b"farther", 1, True)
    assert front.broker.retain(Message("a", b""))
    await subscriber.subscribe("#")
    assert await subscriber.quiet()


async def test_retained_messages_have_a_bound(bench: Bench) -> None:
    front = await bench.start(max_retained=2)
    client = await bench.connect()
    for topic in ("a", "b", "c", "a"):
        await client.publish(topic, b"x", 1, retain=True)
    await bench.told(4)
    assert sorted(front.broker.retained_messages) == ["a", "b"]
    assert front.broker.counters.not_retained == 1


# Rights


async def test_unauthorized_publication_is_dropped(bench: Bench, guarded: tuple[Client, Client]) -> None:
    boss, other = guarded
    await boss.subscribe("#")
    await other.publish("closed", b"no", 1)
    await other.publish("closed", b"no", 1, retain=True)
    await other.publish("drop/x", b"yes", 1)
    assert await boss.message() == ("drop/x", b"yes", 0, False)
    assert bench.ears.payloads == [b"yes"]
    assert bench.front.broker.counters.unauthorized == 2
    assert not bench.front.broker.retained_messages


async def test_unauthorized_subscription_is_refused(bench: Bench, guarded: tuple[Client, Client]) -> None:
    _, other = guarded
    assert await other.subscribe("open/+", "closed", "#", "drop/#", "wide/#") == (0, REFUSED, REFUSED, REFUSED, 0)
    assert bench.ears.filters == ["+open/+", "+wide/#"]


async def test_denied_messages_of_a_subscription_are_left_out(bench: Bench, guarded: tuple[Client, Client]) -> None:
    boss, other = guarded
    await boss.publish("wide/secret", b"kept", 1, retain=True)
    await boss.publish("wide/open", b"kept", 1, retain=True)
    await bench.told(2)
    await other.subscribe("wide/#")
    assert await other.message() == ("wide/open", b"kept", 0, True)
    await boss.publish("wide/secret", b"live", 1)
    await bench.told(3)
    assert bench.front.deliver(Message("wide/secret", b"far")) == 0
    assert bench.front.deliver(Message("wide/open", b"far")) == 1
    assert await other.message() == ("wide/open", b"far", 0, False)
    assert await other.quiet()
    assert bench.ears.receivers == [0, 0, 0]


async def test_qos_2_is_reported_once(bench: Bench) -> None:
    await bench.start()
    client = await bench.connect()
    client.send(Publish("a", b"x", 2, packet_id=3))
    assert (await client.next(Pubrec)).packet_id == 3
    assert bench.ears.messages == []
    client.writer.write(b"\x62\x02\0\x03")
    await until(lambda: bench.ears.messages)
    assert bench.ears.messages == [Message("a", b"x", 2, origin="c")]


# Plugins


class Choosy(BaseTopicPlugin):  # type: ignore[misc]
    """Lets nothing through to or from `mute`, fails over `broken`, and takes its time with `slow`."""

    time: asyncio.Event

    @dataclass
    class Config:
        """The receivers of a message."""

        mute: str

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        if topic == "broken" and action == Action.RECEIVE:
            raise ValueError(topic)
        if topic == "slow" and action == Action.RECEIVE:
            await Choosy.time.wait()
        return str(topic).split("/")[0] != str(self.config.mute)


class Witness(BasePlugin[BrokerContext]):  # type: ignore[misc]
    """Records the events of a plugin."""

    seen: list[str]
    context: BrokerContext

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        Witness.seen, Witness.context = [], context

    async def on_broker_client_subscribed(self, *, client_id: str, topic: str, qos: int) -> None:
        Witness.seen.append(f"{client_id} subscribed {topic} {qos}")

    async def on_broker_client_unsubscribed(self, *, client_id: str, topic: str) -> None:
        Witness.seen.append(f"{client_id} unsubscribed {topic}")

    async def on_broker_message_received(self, *, client_id: str, message: Message) -> None:
        Witness.seen.append(f"{client_id} sent {message.topic}")

    async def on_broker_message_broadcast(self, *, client_id: str, message: Message) -> None:
        Witness.seen.append(f"{client_id} was heard on {message.topic}")


PLUGINS = f"plugins:\n  {__name__}.Choosy: {{mute: mute}}\n  {__name__}.Witness: {{}}\n"


async def test_plugins_may_forbid_more(bench: Bench) -> None:
    await bench.start(settings=PLUGINS)
    publisher, subscriber = await pair(bench)
    assert await subscriber.subscribe("mute/a", "+") == (REFUSED, 0)
    await publisher.publish("mute", b"no", 1)
    await publisher.publish("broken", b"no", 1)
    await publisher.publish("loud", b"yes", 1)
    assert await subscriber.message() == ("loud", b"yes", 0, False)
    assert bench.ears.payloads == [b"no", b"yes"]


async def test_subscriptions_may_change_while_a_message_is_given_out(bench: Bench) -> None:
    Choosy.time = asyncio.Event()
    front = await bench.start(settings=PLUGINS)
    first, other = await pair(bench)
    await first.subscribe("slow")
    await other.subscribe("+")
    assert front.deliver(Message("slow", b"x")) == 2
    await (await bench.connect("third")).subscribe("new", "newer")
    await first.unsubscribe("slow")
    Choosy.time.set()
    assert await other.message() == ("slow", b"x", 0, False)


async def test_plugins_get_events(bench: Bench) -> None:
    await bench.start(settings=PLUGINS)
    client = await bench.connect()
    await client.subscribe("a", qos=1)
    await client.publish("mute", b"", 1)
    await client.publish("a")
    await client.message()
    await client.unsubscribe("a")
    assert Witness.seen == [
        *("c subscribed a 1", "c sent mute", "c sent a", "c was heard on a", "c unsubscribed a"),
    ]


async def test_messages_of_plugins_reach_the_cluster_except_server_topics(bench: Bench) -> None:
    await bench.start(settings=PLUGINS)
    client = await bench.connect()
    await client.subscribe("#", "$SYS/#", qos=1)
    await Witness.context.broadcast_message("$SYS/load", b"1")
    await Witness.context.broadcast_message("alert", b"2", 1)
    assert await client.message() == ("$SYS/load", b"1", 0, False)
    assert await client.message() == ("alert", b"2", 1, False)
    assert bench.ears.messages == [Message("alert", b"2", 1)]


async def test_session_restored_by_a_plugin(bench: Bench) -> None:
    front = await bench.start(access_of("topic read a\n"), PLUGINS)
    for topic_filter in ("a", "b"):
        await Witness.context.add_subscription("c", topic_filter, 1)
    assert bench.ears.filters == ["+a", "+b"]
    assert front.deliver(Message("a", b"1", 1)) + front.deliver(Message("b", b"2", 1)) == 2
    await until(lambda: front.broker.sessions["c"][0].retained_messages.qsize() == 2)
    client = await bench.connect(clean=False)
    assert await client.message() == ("a", b"1", 1, False)
    assert await client.quiet()
    assert bench.ears.filters[2:] == ["-b"]


async def test_a_message_that_is_not_acknowledged_by_the_layer_above_is_counted(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect()
    await client.publish("a", b"x", 1)
    await bench.told(1)
    done = bench.ears.dones[0]
    assert done is not None
    done(Reason.QUOTA_EXCEEDED)
    assert front.broker.counters.publish_dropped == 1


async def test_acknowledged_twice(bench: Bench) -> None:
    """amqtt says it does not know it, and goes on."""
    await bench.start()
    client = await bench.connect()
    client.send(Puback(99))
    assert await client.quiet()
