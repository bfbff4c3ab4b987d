"""The owner of a session, and its course: takeover, resumption, wills, and rules that change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

pytest.importorskip("amqtt", reason="the extra amqtt is not installed")

from amqtt.plugins.base import BaseAuthPlugin
from amqtt.session import Session

from ringmq.mqtt_front.access.access import Access
from ringmq.mqtt_front.codec.packets import Disconnect, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Subscription, Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from tests.mqtt_front.amqtt_bench import Bench, access_of, line_of, until

WILL = Will("will", b"gone", 1, True)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


# Sessions


async def test_a_clean_session_ends_with_its_connection(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect()
    await client.subscribe("a")
    client.send(Disconnect(Reason.SUCCESS))
    assert await client.closed()
    await until(lambda: not front.broker.sessions)
    assert bench.ears.filters == ["+a", "-a"]


@pytest.mark.parametrize("goodbye", [True, False])
async def test_persistent_session_gets_queued_messages(bench: Bench, goodbye: bool) -> None:
    front = await bench.start()
    client = await bench.connect(clean=False)
    await client.subscribe("a", qos=1)
    if goodbye:
        client.send(Disconnect(Reason.SUCCESS))
    else:
        client.drop()
    await until(lambda: not front._connections)
    assert front.deliver(Message("a", b"not kept", 0)) == 1
    for number in range(3):
        assert front.deliver(Message("a", b"%d" % number, 1)) == 1
    await until(lambda: front.broker.sessions["c"][0].retained_messages.qsize() == 3)
    again = await bench.dial()
    assert (await again.connect(clean=False)).session_present
    for number in range(3):
        assert await again.message() == ("a", b"%d" % number, 1, False)
    assert await again.quiet()
    assert bench.ears.filters == ["+a"]


async def test_unacknowledged_message_is_sent_again(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect(clean=False)
    await client.subscribe("a", qos=1)
    front.deliver(Message("a", b"x", 1))
    await client.next(Publish)
    client.drop()
    await until(lambda: not front._connections)
    again = await bench.connect(clean=False)
    assert await again.message() == ("a", b"x", 1, False)


async def test_qos_2_is_ended_on_another_connection(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect(clean=False)
    client.send(Publish("a", b"x", 2, packet_id=3))
    await client.next(Pubrec)
    client.drop()
    await until(lambda: not front._connections)
    again = await bench.connect(clean=False)
    assert await again.quiet()
    for _ in range(2):  # the second time, as if the answer had been lost
        again.send(Pubrel(3))
        assert (await again.next(Pubcomp)).packet_id == 3
    assert await bench.told(1) == [b"x"]


async def test_clean_start_drops_the_old_session(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect(clean=False)
    await client.subscribe("a", qos=1)
    client.send(Disconnect(Reason.SUCCESS))
    await until(lambda: not front._connections)
    front.deliver(Message("a", b"x", 1))
    again = await bench.dial()
    assert not (await again.connect(clean=True)).session_present
    assert await again.quiet()
    assert bench.ears.filters == ["+a", "-a"]


async def test_sessions_expire(bench: Bench) -> None:
    front = await bench.start(session_expiry_3_s=0)
    client = await bench.connect(clean=False)
    await client.subscribe("a")
    client.send(Disconnect(Reason.SUCCESS))
    await until(lambda: not front.broker.sessions)
    assert bench.ears.filters == ["+a", "-a"]


async def test_sessions_have_a_bound(bench: Bench) -> None:
    front = await bench.start(max_sessions=1)
    first = await bench.connect("first", clean=False)
    assert (await (await bench.dial()).connect("second")).reason is Reason.SERVER_UNAVAILABLE
    first.drop()
    await until(lambda: not front._connections)
    await bench.connect("first", clean=False)


@pytest.mark.parametrize("clean", [True, False])
async def test_client_that_goes_before_it_is_served_leaves_nothing(bench: Bench, clean: bool) -> None:
    front = await bench.start()
    for _ in range(5):
        client = await bench.dial()
        client.send_connect(clean=clean, will=WILL)
        client.writer.close()
    await until(lambda: len(bench.ears.messages) == 5)
    await until(lambda: not front._connections)
    assert len(front.broker.sessions) == (0 if clean else 1)


# One connection a client id


@pytest.mark.parametrize("clean", [True, False])
async def test_a_newcomer_takes_the_session_over(bench: Bench, clean: bool) -> None:
    front = await bench.start()
    old = await bench.connect(clean=clean)
    await old.subscribe("a", qos=1)
    new = await bench.connect(clean=clean)
    assert await old.closed()
    assert front.broker.counters.taken_over == 1
    if clean:
        await new.subscribe("a", qos=1)
    assert front.deliver(Message("a", b"x", 1)) == 1
    assert await new.message() == ("a", b"x", 1, False)
    assert bench.ears.filters == (["+a", "-a", "+a"] if clean else ["+a"])


async def test_many_newcomers_at_once_leave_one(bench: Bench) -> None:
    front = await bench.start()
    clients = [await bench.dial() for _ in range(5)]
    answers = await asyncio.gather(*[client.connect(clean=False) for client in clients])
    assert all(answer.reason is Reason.SUCCESS for answer in answers)
    await until(lambda: len(front._connections) == 1)
    assert await clients[-1].subscribe("a") == (0,)


async def test_client_waiting_for_a_filter_can_be_taken_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.mqtt_front.amqtt.sessions.LINGER_S", 0.05)
    front = await bench.start()
    bench.ears.patient = True
    old = await bench.connect()
    old.send(Subscribe(1, (Subscription("a", 0),)))
    await until(lambda: bench.ears.waiting)
    new = await bench.connect()
    assert await new.quiet()
    assert len(front._connections) == 1
    assert bench.ears.filters == ["+a", "-a"]


async def test_session_belongs_to_one_user(bench: Bench) -> None:
    front = await bench.start(access_of(None, ann="a", bob="b"))
    ann = await bench.connect(clean=False, user_name="ann", password=b"a")
    await ann.subscribe("a", qos=1)
    ann.send(Disconnect(Reason.SUCCESS))
    await until(lambda: not front._connections)
    front.deliver(Message("a", b"for ann", 1))
    bob = await bench.dial()
    assert not (await bob.connect(clean=False, user_name="bob", password=b"b")).session_present
    assert await bob.quiet()
    assert bench.ears.filters == ["+a", "-a"]


@pytest.mark.parametrize("clean", [True, False])
async def test_refused_client_touches_no_session(bench: Bench, clean: bool) -> None:
    front = await bench.start(access_of(None, ann="a"))
    ann = await bench.connect(clean=False, user_name="ann", password=b"a")
    await ann.subscribe("a", qos=1)
    stranger = await bench.dial()
    refused = await stranger.connect(clean=clean, user_name="ann", password=b"wrong")
    assert refused.reason is Reason.BAD_USER_NAME_OR_PASSWORD
    assert await stranger.closed()
    assert front.deliver(Message("a", b"x", 1)) == 1
    assert await ann.message() == ("a", b"x", 1, False)


# Wills


async def test_will_is_published_without_a_disconnect(bench: Bench) -> None:
    await bench.start()
    heir = await bench.connect("heir")
    await heir.subscribe("will", qos=1)
    client = await bench.connect(will=WILL)
    client.drop()
    assert await heir.message() == ("will", b"gone", 1, False)
    assert bench.ears.messages == [Message("will", b"gone", 1, True, origin="c")]
    late = await bench.connect("late")
    await late.subscribe("will")
    assert await late.message() == ("will", b"gone", 0, True)


async def test_will_is_not_published_after_a_disconnect(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect(will=WILL)
    client.send(Disconnect(Reason.SUCCESS))
    await until(lambda: not front._connections)
    assert bench.ears.messages == []


async def test_takeover_publishes_the_will_of_the_old_connection(bench: Bench) -> None:
    await bench.start()
    await bench.connect(clean=False, will=WILL)
    await bench.connect(clean=False, will=Will("other", b"", 0, False))
    assert [message.topic for message in bench.ears.messages] == ["will"]


# Rules that change


async def test_rules_that_change(bench: Bench) -> None:
    access = access_of("user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\n", ann="a", bob="b")
    front = await bench.start(access)
    ann = await bench.connect("ann", user_name="ann", password=b"a")
    bob = await bench.connect("bob", user_name="bob", password=b"b", will=WILL)
    await ann.subscribe("a", "b")
    await bob.subscribe("b")
    access.reload(line_of("ann", "a"), "user ann\ntopic read b\n")
    assert front.renew_rights() == 1
    assert await bob.closed()
    await until(lambda: bench.ears.filters == ["+a", "+b", "-a"])
    await ann.publish("b", b"no", 1)
    assert front.deliver(Message("b", b"yes")) >= 1
    assert await ann.message() == ("b", b"yes", 0, False)
    assert bench.ears.messages == []


# Plugins


class Sour(BaseAuthPlugin):  # type: ignore[misc]
    """Has an opinion on some."""

    async def authenticate(self, *, session: Session) -> bool | None:
        if session.username == "broken":
            raise ValueError(session.password)
        return {"good": session.password == "pass", "bad": False}.get(session.username)


@pytest.mark.parametrize(
    ("user_name", "password", "reason"),
    [
        ("good", b"pass", Reason.SUCCESS),
        ("good", b"\xff", Reason.NOT_AUTHORIZED),
        ("bad", b"pass", Reason.NOT_AUTHORIZED),
        ("unknown", b"pass", Reason.NOT_AUTHORIZED),
        (None, None, Reason.NOT_AUTHORIZED),
    ],
)
async def test_plugins_may_refuse_clients(
    bench: Bench, user_name: str | None, password: bytes | None, reason: Reason
) -> None:
    await bench.start(settings=f"plugins:\n  {__name__}.Sour:\n")
    kept = await bench.connect(user_name="good", password=b"pass", clean=False)
    client = await bench.dial()
    assert (await client.connect("d", user_name=user_name, password=password)).reason is reason
    other = await bench.dial()
    if reason is not Reason.SUCCESS:
        assert (await other.connect("c", user_name=user_name, password=password)).reason is reason
        assert await kept.quiet()


async def test_a_plugin_that_fails_refuses(bench: Bench) -> None:
    await bench.start(settings=f"plugins:\n  {__name__}.Sour:\n")
    client = await bench.dial()
    assert (await client.connect(user_name="broken", password=b"")).reason is Reason.SERVER_UNAVAILABLE
    assert await client.closed()


async def test_plugin_cannot_admit_a_client_that_the_password_file_refuses(bench: Bench) -> None:
    access: Access = access_of(None, good="other")
    await bench.start(access, settings=f"plugins:\n  {__name__}.Sour:\n")
    refused = await (await bench.dial()).connect(user_name="good", password=b"pass")
    assert refused.reason is Reason.BAD_USER_NAME_OR_PASSWORD
