"""The front as the layer above has it: its listeners, admission, real clients, its settings, and its end."""

from __future__ import annotations

import asyncio
import builtins
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import paho.mqtt.client as paho
import pytest
import trustme
from paho.mqtt.enums import CallbackAPIVersion

pytest.importorskip("amqtt", reason="the extra amqtt is not installed")

from ringmq.mqtt_front.amqtt.server import MISSING, AmqttServer, settings_of
from ringmq.mqtt_front.codec.packets import Connect, Pingreq, Pingresp, Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import Listen
from tests.mqtt_front.amqtt_bench import V311, Bench, Client, access_of, until
from tests.mqtt_front.real_clients.listeners import Got, Reach
from tests.mqtt_front.real_clients.python_clients import Aiomqtt, Paho


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.close()


# Who is let in


@pytest.mark.parametrize(
    ("user_name", "password", "anonymous", "reason"),
    [
        ("ann", b"right", False, Reason.SUCCESS),
        ("ann", b"wrong", True, Reason.BAD_USER_NAME_OR_PASSWORD),
        ("ann", None, True, Reason.BAD_USER_NAME_OR_PASSWORD),
        ("bob", b"right", True, Reason.BAD_USER_NAME_OR_PASSWORD),
        (None, None, True, Reason.SUCCESS),
        (None, None, False, Reason.NOT_AUTHORIZED),
    ],
)
async def test_passwords(
    bench: Bench, user_name: str | None, password: bytes | None, anonymous: bool, reason: Reason
) -> None:
    front = await bench.start(access_of(None, ann="right"), anonymous=anonymous)
    for _ in range(2):  # the second time, a right password is remembered
        client = await bench.dial()
        assert (await client.connect(user_name=user_name, password=password)).reason is reason
        if reason is not Reason.SUCCESS:
            assert await client.closed()
    assert front.broker.counters.refused == (0 if reason is Reason.SUCCESS else 2)
    assert len(front.broker.sessions) == (reason is Reason.SUCCESS)


async def test_without_passwords_a_name_proves_nothing(bench: Bench) -> None:
    await bench.start(anonymous=False)
    refused = await (await bench.dial()).connect(user_name="ann", password=b"x")
    assert refused.reason is Reason.NOT_AUTHORIZED


@pytest.mark.parametrize("topic", ["closed", "$SYS/a"])
async def test_a_will_that_may_not_be_written_is_refused(bench: Bench, topic: str) -> None:
    front = await bench.start(access_of("topic open\ntopic $SYS/a\n"))
    refused = await (await bench.dial()).connect(will=Will(topic, b"", 0, False))
    assert refused.reason is Reason.NOT_AUTHORIZED
    assert (front.broker.counters.unauthorized, bench.ears.messages) == (1, [])


async def test_client_ids(bench: Bench) -> None:
    front = await bench.start(access_of("pattern readwrite %c\n"))
    await bench.connect("")
    second = await bench.connect("")
    first_id, second_id = front.broker.sessions
    assert first_id != second_id
    assert await second.subscribe(first_id, second_id) == (0x80, 0)
    assert (await (await bench.dial()).connect("", clean=False)).reason is Reason.CLIENT_IDENTIFIER_NOT_VALID


async def test_too_many_connections(bench: Bench) -> None:
    front = await bench.start(max_connections=1)
    await bench.connect("one")
    other = await bench.dial()
    assert await other.closed()
    assert front.broker.counters.refused == 1


async def test_slow_connect_is_closed(bench: Bench) -> None:
    await bench.start(connect_timeout_s=0.01)
    client = await bench.dial()
    client.writer.write(b"\x10")
    assert await client.closed()


async def test_the_keep_alive_is_kept(bench: Bench) -> None:
    front = await bench.start()
    silent = await bench.connect("silent", keep_alive_s=1, will=Will("gone", b"", 0, False))
    other = await bench.connect("other")
    async with asyncio.timeout(8):
        assert await silent.closed()
    assert await bench.told(1) == [b""]
    assert await other.quiet()
    assert front.broker.counters.keep_alive_timeouts == 1


async def test_rubbish_and_an_early_end(bench: Bench) -> None:
    front = await bench.start()
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"", b"\x10\x0a\0\x04MQ"):
        client = await bench.dial()
        client.writer.write(data)
        client.writer.write_eof()
        assert await client.closed()
    await until(lambda: not front._connections)


# Real clients


@pytest.mark.parametrize("websocket", [False, True], ids=["tcp", "websocket"])
@pytest.mark.parametrize("kind", [Paho, Aiomqtt])
async def test_real_clients(bench: Bench, kind: Any, websocket: bool) -> None:
    front = await bench.start()
    address = await front.listen(Listen(host="127.0.0.1", port=0, websocket=websocket))
    reach = Reach(port=address[1], version=4, websocket=websocket)

    def talk() -> None:
        subscriber, publisher = kind(reach), kind(reach, will=Got("real/will", b"gone", 1))
        subscriber.subscribe("real/#", 2)
        for qos in (0, 1, 2):
            publisher.publish("real/a", b"%d" % qos, qos, retain=qos == 1)
            assert subscriber.take() == Got("real/a", b"%d" % qos, qos)
        late = kind(reach)
        late.subscribe("real/+", 1)
        assert late.take() == Got("real/a", b"1", 1, True)
        publisher.vanish()
        for client in (subscriber, late):
            assert client.take() == Got("real/will", b"gone", 1)
        for client in (subscriber, publisher, late):
            client.close()

    await asyncio.to_thread(talk)
    await until(lambda: len(bench.ears.filters) == 4)
    assert bench.ears.payloads == [b"0", b"1", b"2", b"gone"]
    assert bench.ears.filters == ["+real/#", "+real/+", *bench.ears.filters[2:]]
    assert sorted(bench.ears.filters[2:]) == ["-real/#", "-real/+"]


async def test_client_of_5_is_refused_by_version(bench: Bench) -> None:
    await bench.start()

    def dial() -> str:
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5, reconnect_on_failure=False)
        told: list[str] = []
        client.on_connect = lambda *fields: told.append(str(fields[3]))
        client.connect(*bench.address)
        client.loop_forever()
        return told[0]

    assert await asyncio.to_thread(dial) == "Unsupported protocol version"


async def test_tls(bench: Bench) -> None:
    ca, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert("localhost").configure_cert(context)
    front = await bench.start()
    address = await front.listen(Listen(host="127.0.0.1", port=0, tls=context))
    trusting = ssl.create_default_context()
    ca.configure_trust(trusting)
    client = Client(*await asyncio.open_connection(*address, ssl=trusting, server_hostname="localhost"))
    assert (await client.connect()).reason is Reason.SUCCESS
    session, _ = front.broker.sessions["c"]
    assert isinstance(session.ssl_object, ssl.SSLObject)
    client.writer.close()


# Settings


@pytest.mark.parametrize("text", ["", "plugins:", "plugins: {}", "listeners: {default: {bind: '0.0.0.0:1'}}"])
async def test_empty_settings_are_accepted(bench: Bench, text: str) -> None:
    front = await bench.start(settings=text)
    assert front.broker.plugins_manager.plugins == []
    await bench.connect()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.getcwd []", "is not YAML"),
        ("- a", "must be a mapping"),
        ("auth: {allow-anonymous: true}", "section auth"),
        ("topic-check: {enabled: true}", "section topic-check"),
        ("wrong: 1", "wrong"),
        ("plugins: {no.such.Plugin: {}}", "no.such.Plugin"),
        ("plugins: {amqtt.session.Session: {}}", "amqtt.session.Session"),
        ("plugins: {amqtt.plugins.authentication.AnonymousAuthPlugin: {wrong: 1}}", "wrong"),
        ("plugins: {amqtt.plugins.authentication.FileAuthPlugin: {password_file: none}}", "FileAuthPlugin"),
    ],
)
async def test_invalid_settings_are_refused(text: str, why: str) -> None:
    with pytest.raises(FrontError, match=why) as caught:
        AmqttServer(settings=text, settings_file="amqtt.yaml")
    assert "amqtt.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_settings_are_read_without_listeners() -> None:
    assert settings_of("listeners: {a: {}}\nsession_expiry_interval: 5", "f") == {
        "session_expiry_interval": 5,
        "plugins": {},
    }


@pytest.mark.filterwarnings("ignore:The 'acl' option:DeprecationWarning")
async def test_amqtts_own_plugins(bench: Bench) -> None:
    await bench.start(
        settings="""
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin: {allow_anonymous: false}
  amqtt.plugins.topic_checking.TopicAccessControlListPlugin:
    publish_acl: {ann: [a/#]}
    acl: {ann: [a/b]}
"""
    )
    assert (await (await bench.dial()).connect()).reason is Reason.NOT_AUTHORIZED
    ann = await bench.connect("ann", user_name="ann", password=b"x")
    assert await ann.subscribe("a/b", "a/c") == (0, 0x80)
    await ann.publish("b", b"no", 1)
    await ann.publish("a/b", b"yes", 1)
    assert await ann.message() == ("a/b", b"yes", 0, False)
    assert bench.ears.payloads == [b"yes"]


async def test_amqtts_own_sys_topics(bench: Bench) -> None:
    with pytest.warns(DeprecationWarning, match="psutil"):
        await bench.start(settings="plugins: {amqtt.plugins.sys.broker.BrokerSysPlugin: {sys_interval: 1}}")
    client = await bench.connect()
    await client.subscribe("$SYS/broker/version", "$SYS/broker/clients/connected")
    assert (await client.message())[0] == "$SYS/broker/version"
    assert (await client.message())[:2] == ("$SYS/broker/clients/connected", b"1")
    assert bench.ears.messages == []


def test_missing_amqtt_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ringmq.mqtt_front.amqtt.sessions":
            raise ModuleNotFoundError("No module named 'amqtt'", name="amqtt")
        return real(name, *rest)

    async def create() -> None:
        with pytest.raises(FrontError, match="pip install") as caught:
            AmqttServer()
        assert str(caught.value) == MISSING

    monkeypatch.setattr(builtins, "__import__", without)
    asyncio.run(create())


# Beginning and end


async def test_an_address_in_use(bench: Bench) -> None:
    front = await bench.start()
    with pytest.raises(FrontError, match=r"cannot listen for MQTT on 127\.0\.0\.1:\d+: "):
        await front.listen(Listen(host="127.0.0.1", port=bench.address[1]))


@pytest.mark.filterwarnings("ignore:.*psutil:DeprecationWarning")
async def test_stop_leaves_nothing(bench: Bench) -> None:
    front = await bench.start(settings="plugins: {amqtt.plugins.sys.broker.BrokerSysPlugin: {}}")
    client = await bench.connect("c", clean=False, will=Will("will", b"gone", 1, True), keep_alive_s=100)
    await client.subscribe("a", qos=1)
    front.deliver(Message("a", b"never acknowledged", 1))
    undecided = await bench.dial()
    undecided.send(Pingreq())
    await front.stop()
    await front.stop()
    assert await undecided.closed()
    assert (bench.ears.filters, bench.ears.payloads) == (["+a", "-a"], [b"gone"])
    with pytest.raises(OSError, match=r".+"), socket.create_connection(bench.address, 1):
        pass
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})
    assert not front._connections
    gc.collect()


async def test_stop_ends_clients_waiting_for_a_filter(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.mqtt_front.amqtt.server.LINGER_S", 0.05)
    front = await bench.start()
    bench.ears.patient = True
    client = await bench.connect()
    waiting = asyncio.ensure_future(client.subscribe("a"))
    await until(lambda: bench.ears.waiting)
    waiting.cancel()
    await front.stop()
    assert bench.ears.filters == ["+a", "-a"]


async def test_stop_without_a_start() -> None:
    front = AmqttServer()
    front.send_soon()
    await front.stop()


async def test_a_ping_is_answered(bench: Bench) -> None:
    await bench.start()
    client = await bench.dial()
    client.send(Connect(V311, "c", True, 0), Pingreq())
    await client.next(object)
    assert isinstance(await client.next(Pingresp), Pingresp)
