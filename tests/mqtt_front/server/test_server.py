"""The shell: real sockets, a clock that the test sets, and clients that do not do what they should."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.passwords import Cost, new_entry
from ringmq.mqtt_front.access.shell import password_pool
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection import admission
from ringmq.mqtt_front.connection.admission import MOST_UNANSWERED
from ringmq.mqtt_front.connection.budget import ALL_BYTES
from ringmq.mqtt_front.connection.phase import Phase
from ringmq.mqtt_front.connection.reader import WAITING_BYTES
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.server.listeners import Listen
from tests.mqtt_front.access.accesses import access_from
from tests.mqtt_front.front_bench import DEADLINE_S, Bench, Client, until

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import SlowPorts

V311, V5 = Version.V311, Version.V5


async def test_unused_topics_are_dropped_from_the_cache(bench: Bench) -> None:
    front = await bench.start()
    subscriber, publisher = await bench.connect("s"), await bench.connect("p")
    await subscriber.subscribe("t/+")
    for number in range(100):
        publisher.send(Publish(f"t/{number}", b"x"))
    await until(lambda: front.broker.counters.publish_sent == 100)
    assert len(front.broker.router.answers) >= 100
    bench.sweep(front._refresh_at)
    assert len(front.broker.router.answers) < 10
    publisher.send(Publish("t/1", b"again"))
    await until(lambda: front.broker.counters.publish_sent == 101)


# Clients that do not connect


async def test_client_without_connect_is_closed(bench: Bench) -> None:
    front = await bench.start(connect_timeout_s=10)
    silent, half, good = await bench.dial(), await bench.dial(), await bench.connect("c")
    half.feed(encode(V5, Connect(V5, "half", True, 0))[:7])
    await until(lambda: front.broker.counters.bytes_received > 20)
    bench.sweep(10.0)
    half.feed(b"\0")
    await until(lambda: len(front.clients) == 3)
    bench.sweep(10.1)
    assert await silent.closed()
    assert await half.closed()
    good.send(Pingreq())
    await good.next(Pingresp)
    await until(lambda: len(front.clients) == 1)
    assert front.broker.counters.refused == 2


async def test_connection_beyond_the_limit_is_closed_at_once(bench: Bench) -> None:
    front = await bench.start(max_connections=1)
    first = await bench.connect("c")
    assert await (await bench.dial()).closed()
    first.send(Disconnect())
    assert await first.closed()
    await until(lambda: not front.clients)
    await bench.connect("c")
    assert front.broker.counters.refused == 1


async def test_a_port_in_use_is_one_clear_line(bench: Bench) -> None:
    await bench.start()
    with pytest.raises(FrontError, match=r"cannot listen for MQTT on 127\.0\.0\.1:\d+: "):
        await bench.front.listen(Listen(host=bench.address[0], port=bench.address[1]))


# Keep-alive


# 3.1.1 [MQTT-3.1.2-24] · 5.0 [MQTT-3.1.2-22]
@pytest.mark.parametrize("version", Version)
async def test_silence_for_one_and_a_half_keep_alives(bench: Bench, version: Version) -> None:
    front = await bench.start()
    watcher = await bench.connect("watcher")
    await watcher.subscribe("will")
    client = await bench.connect("c", version, keep_alive_s=10, will=Will("will", b"gone", 0, False))
    endless = await bench.connect("endless", version)
    bench.sweep(15.0)
    client.send(Pingreq())
    await client.next(Pingresp)
    bench.sweep(30.0)
    assert front.broker.counters.keep_alive_timeouts == 0
    bench.sweep(30.1)
    if version is V5:
        assert (await client.next(Disconnect)).reason is Reason.KEEP_ALIVE_TIMEOUT
    assert await client.closed()
    assert (await watcher.next(Publish)).payload == b"gone"
    bench.sweep(1e6)
    endless.send(Pingreq())
    await endless.next(Pingresp)
    assert front.broker.counters.keep_alive_timeouts == 1


async def test_keep_alive_of_the_server_is_enforced(bench: Bench) -> None:
    await bench.start(max_keep_alive_s=20)
    client = await bench.connect("c", keep_alive_s=100)
    bench.sweep(31.0)
    assert (await client.next(Disconnect)).reason is Reason.KEEP_ALIVE_TIMEOUT


async def test_wills_and_sessions_come_due(bench: Bench) -> None:
    front = await bench.start()
    watcher = await bench.connect("watcher")
    await watcher.subscribe("will")
    will = Will("will", b"gone", 0, False, Properties(will_delay_s=10))
    client = await bench.connect("c", will=will, properties={"session_expiry_s": 20})
    client.writer.transport.abort()
    await until(lambda: len(front.clients) == 1)
    bench.sweep(10.0)
    assert (await watcher.next(Publish)).payload == b"gone"
    bench.sweep(20.0)
    assert set(front.broker.sessions) == {"watcher"}


async def test_the_sweeper_goes_on(bench: Bench) -> None:
    front = await bench.start()
    for now in (1.0, 2.0):
        before = front._sweeper
        bench.sweep(now)
        assert before.cancelled()
        assert not front._sweeper.cancelled()
    await front.stop()
    assert front._sweeper.cancelled()


# Clients that do not read


async def flood(bench: Bench, publisher: Client, count: int, qos: int) -> None:
    """Publish `count` messages of 1 kB, each of which has been given out."""
    counters = bench.front.broker.counters
    wanted = counters.publish_received + count
    for number in range(count):
        publisher.send(Publish("t", b"%06d" % number + b"x" * 1000, qos, packet_id=number + 1 if qos else 0))
        if not number % 50:
            await publisher.writer.drain()
        if qos:
            await publisher.next(Puback)
    await until(lambda: counters.publish_received == wanted)


@pytest.mark.parametrize("version", Version)
async def test_client_that_does_not_read_loses_qos_0_and_costs_no_memory(bench: Bench, version: Version) -> None:
    front = await bench.start(max_buffer_bytes=50_000)
    subscriber, publisher = await bench.connect("s", version), await bench.connect("p")
    await subscriber.subscribe("t")
    transport = bench.transport("s")
    writer = front.broker.sessions["s"].writer
    assert writer is not None
    most = 0
    for _ in range(10):
        await flood(bench, publisher, 50, 0)
        most = max(most, transport.get_write_buffer_size() + sum(map(len, writer.out)))
    assert most <= 200_000
    dropped = front.broker.counters.publish_dropped
    assert 100 < dropped < 500
    for _ in range(500 - dropped):
        await subscriber.next(Publish)
    await until(lambda: writer.fast)
    publisher.send(Publish("t", b"again"))
    assert (await subscriber.next(Publish)).payload == b"again"


async def test_client_that_does_not_read_gets_qos_1_later_and_in_order(bench: Bench) -> None:
    front = await bench.start(max_buffer_bytes=20_000, max_queued=100, max_inflight=65535)
    subscriber, publisher = await bench.connect("s"), await bench.connect("p")
    await subscriber.subscribe("t", 1)
    transport = bench.transport("s")
    await flood(bench, publisher, 400, 1)
    assert transport.get_write_buffer_size() <= 40_000
    assert len(front.broker.sessions["s"].queue) == 100
    dropped = front.broker.counters.publish_dropped
    assert 0 < dropped < 300
    numbers = []
    for _ in range(400 - dropped):
        message = await subscriber.next(Publish)
        numbers.append(int(message.payload[:6]))
        subscriber.send(Puback(message.packet_id))
    assert numbers == list(range(400 - dropped))
    await until(lambda: not front.broker.sessions["s"].inflight)


async def test_client_that_asks_without_reading_is_cut_off(bench: Bench) -> None:
    front = await bench.start(max_buffer_bytes=10_000)
    watcher, client = await bench.connect("watcher"), await bench.connect("c", will=Will("w", b"gone", 0, False))
    await watcher.subscribe("w")
    transport = bench.transport("c")
    while len(front.clients) > 1:
        client.writer.write(encode(V5, Pingreq()) * 1000)
        assert transport.get_write_buffer_size() < 600_000
        await asyncio.sleep(0)
    assert (await watcher.next(Publish)).payload == b"gone"


async def test_long_queue_is_delivered_to_a_client_that_reads(bench: Bench) -> None:
    front = await bench.start(max_buffer_bytes=20_000, max_inflight=500)
    fields = {"properties": {"session_expiry_s": 100}}
    first = await bench.connect("s", **fields)
    await first.subscribe("t", 1)
    first.send(Disconnect())
    assert await first.closed()
    await flood(bench, await bench.connect("p"), 300, 1)
    again = await bench.dial()
    again.send(Connect(V5, "s", False, 0))
    await again.next(Connack)
    numbers = [int((await again.next(Publish)).payload[:6]) for _ in range(300)]
    assert numbers == list(range(300))
    assert front.broker.counters.publish_dropped == 0


# Publishers that are too fast


async def test_a_crowd_subscribes_in_turn_and_holds_up_nobody(bench: Bench, slow_ports: SlowPorts) -> None:
    front = await bench.start(cluster=slow_ports)
    first, second, other = [await bench.connect(name, V311, keep_alive_s=10) for name in ("first", "second", "other")]
    filters = [f"{'f' * 9}/{number}" for number in range(MOST_UNANSWERED)]
    first.send(Subscribe(1, tuple(Subscription(f"1/{name}", 1) for name in filters)))
    await until(lambda: len(slow_ports.added) == MOST_UNANSWERED)
    second.send(Subscribe(1, tuple(Subscription(f"2/{name}", 1) for name in filters)))
    await until(lambda: front.broker.admission.waiting == 1)
    other.send(Publish("t", b"x", 1, packet_id=1))
    await until(lambda: slow_ports.messages)
    second.send(Pingreq())
    await second.next(Pingresp)
    assert len(slow_ports.added) == MOST_UNANSWERED
    # It goes on to send, so it is not read.
    second.send(Publish("t", bytes(WAITING_BYTES), 0))
    transport = bench.transport("second")
    await until(lambda: not transport.is_reading())
    for _, done in slow_ports.added[:]:
        done(Reason.SUCCESS)
    front.send_soon()
    await until(lambda: len(slow_ports.added) == 2 * MOST_UNANSWERED)
    await until(transport.is_reading)
    await first.next(Suback)


async def test_connects_beyond_the_work_of_an_iteration_come_in_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "CONNECT_BYTES", ALL_BYTES)
    await bench.start()
    clients = [await bench.connect(f"c{number}") for number in range(5)]
    assert len({id(client) for client in clients}) == 5


async def test_a_publisher_without_acknowledgements_is_not_read(bench: Bench, slow_ports: SlowPorts) -> None:
    front = await bench.start(cluster=slow_ports, receive_maximum=10)
    publisher = await bench.connect("p", V311, keep_alive_s=10)
    transport = bench.transport("p")
    count = 500
    publisher.send(*[Publish("t", b"x" * 1000, 1, packet_id=number + 1) for number in range(count)])
    await until(lambda: not transport.is_reading())
    taken = len(slow_ports.messages)
    assert 10 < taken < count
    bench.sweep(1000.0)  # It cannot be heard, so it has not fallen silent.
    for place in range(count):
        if place == len(slow_ports.dones):
            front.send_soon()
            await until(lambda: len(slow_ports.dones) > place)  # noqa: B023  # it is over before the next
        slow_ports.settle(place)
    front.send_soon()
    assert [(await publisher.next(Puback)).packet_id for _ in range(count)] == list(range(1, count + 1))
    await until(transport.is_reading)


# Admission


def guarded(user: str = "ann", password: bytes = b"secret") -> Access:
    return access_from(new_entry(user, password, b"s" * 16, Cost(14, 8, 1)).line + "\n", None)


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("ann", b"secret", Reason.SUCCESS),
        ("ann", b"wrong", Reason.BAD_USER_NAME_OR_PASSWORD),
        ("ann", None, Reason.BAD_USER_NAME_OR_PASSWORD),
        ("bob", b"secret", Reason.BAD_USER_NAME_OR_PASSWORD),
    ],
)
@pytest.mark.parametrize("version", [V311, V5])
async def test_passwords(bench: Bench, version: Version, user: str, password: bytes | None, reason: Reason) -> None:
    await bench.start(access=guarded())
    client = await bench.dial(version)
    client.send(Connect(version, "c", True, 0, None, user, password))
    assert (await client.next(Connack)).reason is reason
    if reason is not Reason.SUCCESS:
        assert await client.closed()


async def test_a_listener_can_keep_anonymous_clients_out(bench: Bench) -> None:
    await bench.start()
    bench.address = await bench.front.listen(Listen(host="127.0.0.1", port=0, anonymous=False))
    client = await bench.dial()
    client.send(Connect(V5, "c", True, 0))
    assert (await client.next(Connack)).reason is Reason.NOT_AUTHORIZED
    assert await client.closed()


class SlowAccess(Access):
    """Verifies once `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.threads: list[str] = []
        self.fault: Exception | None = None

    def at_once(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision | None:
        return None if user_name == "ann" else super().at_once(user_name, password, client_id, anonymous_allowed)

    def authenticate(
        self, user_name: str | None, password: bytes | None, client_id: str, anonymous_allowed: bool
    ) -> Decision:
        self.threads.append(threading.current_thread().name)
        assert self.go.wait(DEADLINE_S)
        if self.fault is not None:
            raise self.fault
        return super().at_once(None, None, client_id, True) or super().authenticate(None, None, client_id, True)


@pytest_asyncio.fixture
async def slow_access() -> AsyncIterator[SlowAccess]:
    access = SlowAccess()
    yield access
    access.go.set()


ANN = Connect(V5, "c", True, 0, None, "ann", b"secret")


async def test_passwords_are_verified_beside_the_loop(bench: Bench, slow_access: SlowAccess) -> None:
    front = await bench.start(access=slow_access)
    client, gone, other = await bench.dial(), await bench.dial(), await bench.connect("other")
    client.send(ANN, Pingreq())
    gone.send(Connect(V5, "gone", True, 0, None, "ann", b"secret"))
    await until(lambda: len(slow_access.threads) == 2)
    assert threading.main_thread().name not in slow_access.threads
    other.send(Pingreq())
    await other.next(Pingresp)
    gone.writer.transport.abort()
    await until(lambda: len(front.clients) == 2)
    slow_access.go.set()
    assert (await client.next(Connack)).reason is Reason.SUCCESS
    await client.next(Pingresp)
    assert set(front.broker.sessions) == {"other", "c"}


async def test_a_verification_that_fails_refuses(bench: Bench, slow_access: SlowAccess) -> None:
    await bench.start(access=slow_access)
    slow_access.fault = MemoryError("no room")
    slow_access.go.set()
    client = await bench.dial()
    client.send(ANN)
    assert (await client.next(Connack)).reason is Reason.UNSPECIFIED_ERROR
    assert await client.closed()


async def test_a_verification_may_not_last_for_ever(bench: Bench, slow_access: SlowAccess) -> None:
    front = await bench.start(access=slow_access)
    client = await bench.dial()
    client.send(ANN)
    await until(lambda: len(slow_access.threads) == 1)
    bench.sweep(11.0)
    assert (await client.next(Connack)).reason >= Reason.UNSPECIFIED_ERROR
    assert await client.closed()
    slow_access.go.set()
    assert front.broker.sessions == {}


async def test_new_rules_apply_to_connected_clients(bench: Bench) -> None:
    access = guarded()
    front = await bench.start(access=access)
    ann = await bench.connect("ann", user_name="ann", password=b"secret")
    other = await bench.connect("other")
    await other.subscribe("a/#")
    await ann.subscribe("a/#")
    access.reload("", "topic read b\n")
    assert front.renew_rights() == 1
    assert (await ann.next(Disconnect)).reason is Reason.NOT_AUTHORIZED
    assert await ann.closed()
    assert dict(front.broker.router.filters(front.broker.sessions["other"])) == {}


# 3.1.1 [MQTT-4.8.0-2]
async def test_a_fault_of_our_own_costs_its_client_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.start()
    other = await bench.connect("other")
    await other.subscribe("#")
    client = await bench.connect("c", V311, will=Will("will", b"gone", 0, False))
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    with monkeypatch.context() as patch:

        def fault(*_: object) -> None:
            raise MemoryError("no room")

        patch.setattr("ringmq.mqtt_front.sessions.retained.Retained.set", fault)
        client.send(Publish("t", b"x", retain=True))
        assert await client.closed()
    assert (await other.next(Publish)).payload == b"gone"
    assert [type(fault) for fault in faults] == [MemoryError]
    other.send(Pingreq())
    await other.next(Pingresp)


# The end


# 5.0 [MQTT-3.14.4-2]
async def test_stop_disconnects_clients_with_a_reason(bench: Bench, slow_access: SlowAccess) -> None:
    front = await bench.start(access=slow_access)
    new, old, deciding, silent = [await bench.dial(version) for version in (V5, V311, V5, V5)]
    await new.connect("new", properties={"session_expiry_s": 100})
    await old.connect("old")
    deciding.send(ANN)
    await until(lambda: len(slow_access.threads) == 1)
    stopping = asyncio.create_task(front.stop())
    assert (await new.next(Disconnect)).reason is Reason.SERVER_SHUTTING_DOWN
    assert (await deciding.next(Connack)).reason is Reason.SERVER_UNAVAILABLE
    assert all([await client.closed() for client in (new, old, deciding, silent)])
    await asyncio.wait_for(stopping, DEADLINE_S)
    await front.stop()
    assert front.clients == {}
    assert set(front.broker.sessions) == {"new"}
    with pytest.raises(ConnectionError):
        await bench.dial()


async def test_client_that_does_not_read_delays_the_stop_briefly(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmq.mqtt_front.server.server.LINGER_S", 0.05)
    front = await bench.start()
    subscriber, publisher = await bench.connect("s"), await bench.connect("p")
    await subscriber.subscribe("t")
    bench.transport("s")
    await flood(bench, publisher, 500, 0)
    await asyncio.wait_for(front.stop(), DEADLINE_S)
    await until(lambda: not front.clients)


async def test_a_client_that_leaves_is_closed_by_the_server(bench: Bench) -> None:
    front = await bench.start()
    client = await bench.connect("c", properties={"session_expiry_s": 100})
    (connection,) = [client.connection for client in front.clients.values()]
    client.send(Disconnect())
    assert await client.closed()
    await until(lambda: not front.clients)
    assert connection.phase is Phase.CLOSED


async def test_bursts_share_a_write(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    front = await bench.start()
    subscriber, publisher = await bench.connect("s"), await bench.connect("p")
    await subscriber.subscribe("t")
    writes: list[int] = []
    protocol = next(p for c, p in front.clients.items() if c is front.broker.sessions["s"].writer)
    transport = protocol.transport
    assert transport is not None

    class Counting:
        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

        def write(self, data: bytes) -> None:
            writes.append(len(data))
            transport.write(data)

    monkeypatch.setattr(protocol, "transport", Counting())
    publisher.send(*[Publish("t", b"x")] * 100)
    for _ in range(100):
        await subscriber.next(Publish)
    assert len(writes) < 10


async def test_full_password_queue_refuses_clients(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.start(access=guarded())
    monkeypatch.setattr(password_pool, "MAX_WAITING", 0)
    for version, reason in ((V5, Reason.SERVER_BUSY), (V311, Reason.SERVER_UNAVAILABLE)):
        client = await bench.dial(version)
        client.send(Connect(version, "c", True, 0, None, "ann", b"secret"))
        assert (await client.next(Connack)).reason is reason
        assert await client.closed()


# Sessions of users


def users(*names: str) -> str:
    return "".join(new_entry(name, b"secret", b"s" * 16, Cost(14, 8, 1)).line + "\n" for name in names)


async def log_in(bench: Bench, user: str, client_id: str = "c", **fields: object) -> Client:
    lasting = {"session_expiry_s": 1000}
    return await bench.connect(client_id, user_name=user, password=b"secret", properties=lasting, **fields)


async def test_session_belongs_to_its_user(bench: Bench) -> None:
    front = await bench.start(access=access_from(users("ann", "bob"), None))
    await log_in(bench, "ann")
    session = front.broker.sessions["c"]
    for user in (None, "bob"):
        client = await bench.dial()
        client.send(Connect(V5, "c", True, 0, None, user, None if user is None else b"secret"))
        assert (await client.next(Connack)).reason is Reason.NOT_AUTHORIZED
    assert front.broker.sessions["c"] is session
    assert session.writer is not None


async def test_removed_user_leaves_no_session(bench: Bench) -> None:
    access = access_from(users("ann", "bob"), None)
    front = await bench.start(access=access)
    watcher = await bench.connect("watcher")
    await watcher.subscribe("#")
    will = Will("will", b"gone", 0, False)
    here = await log_in(bench, "ann", "here", will=will)
    late = Will("will", b"gone", 0, False, Properties(will_delay_s=5))
    away, other = await log_in(bench, "ann", "away", will=late), await log_in(bench, "bob", "other", will=late)
    for client in (away, other):
        client.writer.transport.abort()
    await until(lambda: len(front.clients) == 2)
    access.reload(users("bob"), None)
    assert front.renew_rights() == 1
    assert (await here.next(Disconnect)).reason is Reason.NOT_AUTHORIZED
    assert sorted(front.broker.sessions) == ["other", "watcher"]
    bench.sweep(6.0)
    assert (await watcher.next(Publish)).payload == b"gone"
    watcher.send(Pingreq())
    await watcher.next(Pingresp)


async def test_rights_are_withdrawn_from_a_session_without_client(bench: Bench) -> None:
    access = access_from(None, "topic readwrite #\n")
    front = await bench.start(access=access)
    client = await bench.connect("c", properties={"session_expiry_s": 1000})
    await client.subscribe("a", 1)
    client.send(Disconnect())
    await until(lambda: not front.clients)
    access.reload(None, "topic readwrite b\n")
    front.renew_rights()
    publisher = await bench.connect("p")
    publisher.send(Publish("a", b"x", 1, packet_id=1))
    await publisher.next(Puback)
    assert not front.broker.sessions["c"].queue


async def test_session_that_returns_after_a_change_of_rules_has_lost_forbidden_subscriptions(bench: Bench) -> None:
    access = access_from(None, "topic readwrite #\n")
    front = await bench.start(access=access)
    client = await bench.connect("c", properties={"session_expiry_s": 1000})
    await client.subscribe("secret", 0)
    publisher = await bench.connect("p")
    publisher.send(Publish("secret", b"before", 0))
    assert (await client.next(Publish)).payload == b"before"
    client.send(Disconnect())
    await until(lambda: len(front.clients) == 1)
    access.reload(None, "topic readwrite b\n\nuser p\ntopic readwrite #\n")
    front.renew_rights()
    returned = await bench.dial()
    returned.send(Connect(V5, "c", False, 0, properties=Properties(session_expiry_s=1000)))
    assert (await returned.next(Connack)).session_present
    assert dict(front.broker.router.filters(front.broker.sessions["c"])) == {}
