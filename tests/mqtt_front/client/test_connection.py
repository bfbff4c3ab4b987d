"""The client's side of a connection: the meaning of each packet and call, limits and resumption."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ringmq.mqtt_front.client.connection import ClientConnection, ClientPhase
from ringmq.mqtt_front.client.events import (
    Acknowledged,
    Arrived,
    Completed,
    Ended,
    Opened,
    Ponged,
    Refused,
    Subscribed,
    Unsubscribed,
)
from ringmq.mqtt_front.client.session_state import PublicationPhase, SessionState
from ringmq.mqtt_front.codec.codec import decode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason, words_of
from ringmq.mqtt_front.errors import CallError, EncodeError, ServerBreachError
from tests.mqtt_front.client.exchange import RESUMED, V3, V5, VERSIONS, Exchange, limited

# The opening


@VERSIONS
def test_a_connection_opens_with_a_connect_and_a_connack(version: Version) -> None:
    exchange = Exchange(version)
    assert exchange.opening == [Opened(False)]
    assert exchange.client.phase is ClientPhase.OPEN
    assert exchange.sent() == []


def test_the_connect_has_all_that_was_asked_for() -> None:
    will = Will("w", b"x", 1, True, Properties(will_delay_s=3))
    connect = Connect(V5, "c", False, 30, will, "u", b"p", Properties(session_expiry_s=60))
    data = ClientConnection(connect).data_to_send(0.0)
    ((first, body),) = PacketReader().feed(data)
    assert decode(V5, first, body) == connect


@pytest.mark.parametrize("version", [V3, V5])
def test_a_refusal_closes(version: Version) -> None:
    exchange = Exchange(version, Connack(False, Reason.NOT_AUTHORIZED))
    assert exchange.opening == [Refused(Reason.NOT_AUTHORIZED)]
    assert exchange.client.phase is ClientPhase.CLOSED


# Publications


@VERSIONS
def test_qos_0_is_sent_and_forgotten(version: Version) -> None:
    exchange = Exchange(version)
    assert exchange.client.publish("a", b"x") is None
    assert exchange.sent() == [Publish("a", b"x")]
    assert exchange.client.state.pending == 0


@VERSIONS
def test_qos_1_is_complete_with_its_puback(version: Version) -> None:
    exchange = Exchange(version)
    publication = exchange.client.publish("a", b"x", 1, retain=True)
    assert exchange.sent() == [Publish("a", b"x", 1, True, packet_id=1)]
    assert publication is not None
    assert exchange.serve(Puback(1)) == [Acknowledged(publication, Reason.SUCCESS), Completed(publication)]
    assert exchange.client.state.pending == 0
    assert publication.phase is PublicationPhase.COMPLETE


@VERSIONS
def test_qos_2_is_acknowledged_by_pubrec_and_complete_with_pubcomp(version: Version) -> None:
    exchange = Exchange(version)
    publication = exchange.client.publish("a", b"x", 2)
    assert publication is not None
    exchange.sent()
    assert exchange.serve(Pubrec(1)) == [Acknowledged(publication, Reason.SUCCESS)]
    assert exchange.sent() == [Pubrel(1)]
    assert exchange.serve(Pubrec(1)) == []
    assert exchange.sent() == [Pubrel(1)]
    assert exchange.serve(Pubcomp(1)) == [Completed(publication)]
    assert exchange.client.state.pending == 0


@pytest.mark.parametrize(("qos", "answer"), [(1, Puback), (2, Pubrec)])
def test_a_refused_publication_is_complete_at_once(qos: int, answer: type[Puback | Pubrec]) -> None:
    exchange = Exchange()
    publication = exchange.client.publish("a", b"x", qos)
    assert publication is not None
    exchange.sent()
    events = exchange.serve(answer(1, Reason.QUOTA_EXCEEDED))
    assert events == [Acknowledged(publication, Reason.QUOTA_EXCEEDED), Completed(publication)]
    assert exchange.sent() == []


def test_the_server_limits_publications_in_flight() -> None:
    exchange = Exchange(connack=limited(receive_maximum=2))
    client = exchange.client
    publications = [client.publish("a", b"%d" % number, 1 + number % 2) for number in range(4)]
    assert [packet.payload for packet in exchange.sent()] == [b"0", b"1"]  # type: ignore[union-attr]
    exchange.serve(Pubrec(2))
    assert exchange.sent() == [Pubrel(2)]
    exchange.serve(Puback(1))
    assert [packet.payload for packet in exchange.sent()] == [b"2"]  # type: ignore[union-attr]
    exchange.serve(Pubcomp(2))
    assert [packet.payload for packet in exchange.sent()] == [b"3"]  # type: ignore[union-attr]
    assert publications[3] is not None
    assert publications[3].phase is PublicationPhase.SENT


@pytest.mark.parametrize(
    ("connack", "reason"),
    [
        (limited(maximum_qos=0), "QOS_NOT_SUPPORTED"),
        (limited(retain_available=0), "RETAIN_NOT_SUPPORTED"),
        (limited(maximum_packet_size=10), "PACKET_TOO_LARGE"),
    ],
)
def test_what_the_server_does_not_take_is_refused_before_and_after_the_opening(connack: Connack, reason: str) -> None:
    exchange = Exchange(connack=connack)
    with pytest.raises(CallError, match=words_of(Reason[reason])):
        exchange.client.publish("a", b"0123456789", 1, retain=True)
    early = Exchange(connack=None)
    publication = early.client.publish("a", b"0123456789", 1, retain=True)
    events = early.serve(connack)
    assert events[1:] == [Acknowledged(publication, Reason[reason]), Completed(publication)]  # type: ignore[arg-type]
    assert early.sent() == []


# Resumption


@pytest.mark.parametrize("version", [V3, V5])
def test_a_resumed_session_sends_again_in_order_what_is_not_acknowledged(version: Version) -> None:
    state = SessionState()
    first = Exchange(version, state=state)
    for number in range(4):
        first.client.publish("a", b"%d" % number, 1 + number % 2)
    first.serve(Puback(1), Pubrec(2))
    again = Exchange(version, RESUMED, state)
    assert again.opening == [Opened(True)]
    assert again.sent() == [
        Pubrel(2),
        Publish("a", b"2", 1, dup=True, packet_id=3),
        Publish("a", b"3", 2, dup=True, packet_id=4),
    ]
    assert [type(event) for event in again.serve(Pubcomp(2), Puback(3))] == [Completed, Acknowledged, Completed]


def test_resending_keeps_to_the_receive_maximum() -> None:
    state = SessionState()
    first = Exchange(state=state)
    for number in range(3):
        first.client.publish("a", b"%d" % number, 1)
    again = Exchange(state=state, connack=replace(RESUMED, properties=Properties(receive_maximum=1)))
    assert again.sent() == [Publish("a", b"0", 1, dup=True, packet_id=1)]
    again.serve(Puback(1))
    assert again.sent() == [Publish("a", b"1", 1, dup=True, packet_id=2)]


def test_a_lost_session_discards_what_was_sent_and_sends_what_waits() -> None:
    state = SessionState()
    first = Exchange(state=state, connack=limited(receive_maximum=1))
    sent, waiting = first.client.publish("a", b"0", 1), first.client.publish("a", b"1", 1)
    again = Exchange(state=state)
    assert again.opening == [Opened(False, discarded=(sent,))]  # type: ignore[arg-type]
    assert again.sent() == [Publish("a", b"1", 1, packet_id=2)]
    assert waiting is not None
    assert waiting.packet_id == 2


def test_a_qos_2_message_is_delivered_once_over_two_connections() -> None:
    state = SessionState()
    first = Exchange(state=state)
    message = Publish("a", b"x", 2, packet_id=9)
    assert first.serve(message) == [Arrived("a", b"x", 2, packet_id=9)]
    assert first.sent() == [Pubrec(9)]
    again = Exchange(state=state, connack=RESUMED)
    assert again.serve(replace(message, dup=True)) == []
    assert again.sent() == [Pubrec(9)]
    again.serve(Pubrel(9))
    assert again.sent() == [Pubcomp(9)]
    assert again.serve(message) == [Arrived("a", b"x", 2, packet_id=9)]


# Arrivals


@VERSIONS
def test_arrived_messages_are_acknowledged_by_their_qos(version: Version) -> None:
    exchange = Exchange(version)
    messages = [Publish("a", b"0"), Publish("a", b"1", 1, packet_id=5), Publish("a", b"2", 2, packet_id=6)]
    assert [event.qos for event in exchange.serve(*messages)] == [0, 1, 2]  # type: ignore[union-attr]
    assert exchange.sent() == [Puback(5), Pubrec(6)]


def test_a_user_acknowledges_once_and_may_refuse() -> None:
    exchange = Exchange(automatic=False)
    zero, first, second = exchange.serve(
        Publish("a", b""), Publish("a", b"", 1, packet_id=5), Publish("a", b"", 2, packet_id=6)
    )
    assert exchange.sent() == []
    for message in (zero, first, second):
        assert isinstance(message, Arrived)
        exchange.client.acknowledge(message, Reason.NOT_AUTHORIZED)
    assert exchange.sent() == [Puback(5, Reason.NOT_AUTHORIZED), Pubrec(6, Reason.NOT_AUTHORIZED)]
    for message in (first, second):
        assert isinstance(message, Arrived)
        with pytest.raises(CallError, match="acknowledged once"):
            exchange.client.acknowledge(message)
    # Refused, so its id is free for another message.
    assert len(exchange.serve(Publish("b", b"", 2, packet_id=6))) == 1


def test_a_message_that_the_user_did_not_acknowledge_comes_again_on_the_next_connection() -> None:
    state = SessionState()
    message = Publish("a", b"", 2, packet_id=6)
    Exchange(state=state, automatic=False).serve(message)
    assert len(Exchange(state=state, connack=RESUMED, automatic=False).serve(message)) == 1


def test_topic_aliases_of_the_server_are_resolved() -> None:
    exchange = Exchange(properties=Properties(topic_alias_maximum=2))
    named = Properties(topic_alias=2)
    events = exchange.serve(Publish("a", b"0", properties=named), Publish("", b"1", properties=named))
    assert [(event.topic, event.payload) for event in events] == [("a", b"0"), ("a", b"1")]  # type: ignore[union-attr]


# Subscriptions


@VERSIONS
def test_subscribe_and_unsubscribe_get_a_reason_for_each_filter(version: Version) -> None:
    exchange = Exchange(version)
    entries = (Subscription("a/#", 1), Subscription("$share/g/b", 2))
    assert exchange.client.subscribe(*entries) == 1
    assert exchange.client.unsubscribe("c", "d") == 2
    assert exchange.sent() == [Subscribe(1, entries), Unsubscribe(2, ("c", "d"))]
    reasons = (Reason.GRANTED_QOS_1, Reason.UNSPECIFIED_ERROR)
    assert exchange.serve(Suback(1, reasons)) == [Subscribed(1, entries, reasons)]
    success = (Reason.SUCCESS, Reason.SUCCESS)
    assert exchange.serve(Unsuback(2, success)) == [Unsubscribed(2, ("c", "d"), success)]
    assert exchange.client.state.requested == set()


# Keep-alive and the end


def test_the_client_pings_when_it_has_sent_nothing_for_a_keep_alive() -> None:
    exchange = Exchange(keep_alive_s=10)
    client = exchange.client
    assert client.deadline == 10.0
    client.publish("a", b"")
    exchange.sent(4.0)
    client.check(13.9)
    assert exchange.sent(13.9) == []
    assert client.deadline == 14.0
    client.check(14.0)
    assert exchange.sent(14.0) == [Pingreq()]
    exchange.serve(Pingresp())
    assert client.deadline == 24.0
    client.check(24.0)
    exchange.sent(24.0)
    with pytest.raises(ServerBreachError, match="no PINGRESP within 10 s"):
        client.check(34.0)
    assert exchange.sent() == [Disconnect(Reason.KEEP_ALIVE_TIMEOUT)]


def test_the_server_chooses_the_keep_alive() -> None:
    assert Exchange(keep_alive_s=10, connack=limited(server_keep_alive_s=5)).client.deadline == 5.0
    assert Exchange(keep_alive_s=0).client.deadline is None


def test_a_disconnect_of_either_side_closes() -> None:
    exchange = Exchange()
    exchange.client.disconnect(Reason.DISCONNECT_WITH_WILL)
    assert exchange.sent() == [Disconnect(Reason.DISCONNECT_WITH_WILL)]
    assert exchange.serve(Publish("a", b"")) == []
    exchange = Exchange()
    assert exchange.serve(Disconnect(Reason.SERVER_SHUTTING_DOWN), Publish("a", b"")) == [
        Ended(Reason.SERVER_SHUTTING_DOWN)
    ]
    assert exchange.client.phase is ClientPhase.CLOSED


CALLS: list[tuple[str, Callable[[ClientConnection], object]]] = [
    ("QoS must be 0 to 2", lambda client: client.publish("a", b"", 3)),
    ("topic aliases", lambda client: client.publish("a", b"", properties=Properties(topic_alias=1))),
    ("wildcard", lambda client: client.publish("a/#", b"")),
    ("is empty", lambda client: client.publish("", b"", 1)),
    ("#", lambda client: client.subscribe(Subscription("#/a", 0))),
    ("at least one filter", lambda client: client.subscribe()),
    ("is empty", lambda client: client.unsubscribe("")),
    ("at least one filter", lambda client: client.unsubscribe()),
]


@pytest.mark.parametrize(("text", "call"), CALLS)
def test_a_wrong_call_raises_and_sends_nothing(text: str, call: Callable[[ClientConnection], object]) -> None:
    exchange = Exchange()
    with pytest.raises(CallError, match=text):
        call(exchange.client)
    assert exchange.sent() == []
    assert exchange.client.state.pending == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.publish("a", b""),
        lambda client: client.subscribe(Subscription("a", 0)),
        lambda client: client.unsubscribe("a"),
        lambda client: client.acknowledge(Arrived("a", b"")),
        lambda client: client.disconnect(),
    ],
)
def test_calls_need_an_open_connection(call: Callable[[ClientConnection], object]) -> None:
    with pytest.raises(CallError, match="connecting"):
        call(Exchange(connack=None).client)
    exchange = Exchange()
    exchange.client.disconnect()
    with pytest.raises(CallError, match="closed"):
        call(exchange.client)


def test_a_closed_connection_takes_no_publication_with_qos_1() -> None:
    exchange = Exchange()
    exchange.client.disconnect()
    with pytest.raises(CallError, match="closed"):
        exchange.client.publish("a", b"", 1)


def test_a_value_without_a_form_on_the_wire_is_refused_by_the_call() -> None:
    exchange = Exchange()
    with pytest.raises(EncodeError):
        exchange.client.publish("a", b"", 1, properties=Properties(content_type="x" * 70_000))
    assert exchange.client.state.pending == 0


def test_a_ping_of_the_user_is_answered_by_an_event() -> None:
    exchange = Exchange(keep_alive_s=10)
    exchange.sent(0.0)
    exchange.client.ping(1.0)
    assert exchange.sent(1.0) == [Pingreq()]
    assert exchange.serve(Pingresp()) == [Ponged()]
    assert exchange.client.deadline == 11.0


def test_a_ping_of_the_user_is_not_answered_by_the_answer_to_an_earlier_ping() -> None:
    exchange = Exchange(keep_alive_s=10)
    exchange.sent(0.0)
    exchange.client.publish("a", b"b")
    exchange.sent(0.0)
    exchange.client.check(10.0)
    exchange.client.ping(11.0)
    assert exchange.sent(11.0) == [Pingreq(), Pingreq()]
    assert exchange.serve(Pingresp()) == []
    assert exchange.serve(Pingresp()) == [Ponged()]
    assert exchange.serve(Pingresp()) == []


def test_an_unanswered_ping_of_the_user_ends_the_connection() -> None:
    exchange = Exchange(keep_alive_s=10)
    exchange.client.ping(1.0)
    with pytest.raises(ServerBreachError, match="no PINGRESP within 10 s"):
        exchange.client.check(11.0)


def test_a_message_that_the_server_does_not_take_is_refused_with_the_limit() -> None:
    small = Exchange(connack=limited(maximum_packet_size=20))
    with pytest.raises(CallError, match="of 29 bytes with its head: packet too large, at most 20 bytes"):
        small.client.publish("a", bytes(23), 0)
    plain = Exchange(connack=limited(maximum_qos=1))
    with pytest.raises(CallError, match=r"no such message: QoS not supported, at most 1$"):
        plain.client.publish("a", b"", 2)
