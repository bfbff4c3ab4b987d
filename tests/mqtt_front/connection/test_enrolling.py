"""A CONNECT with a client id of its own waits until the cluster knows where else the id is connected."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.cluster import Enrolment, Settled, Standing
from ringmq.mqtt_front.codec.packets import Connack, Pingreq, Pingresp, Properties, Suback, Version, Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.phase import Phase
from ringmq.mqtt_front.sessions.rivals import PATIENT_TAKEOVERS
from tests.mqtt_front.conftest import Client, QuickPorts, World


class AskingPorts(QuickPorts):
    """A layer above that answers for a client id when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Enrolment, Settled]] = []
        self.discharged: list[str] = []

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        self.asked.append((enrolment, settled))

    def discharge(self, client_id: str) -> None:
        self.discharged.append(client_id)

    def answer(self, standing: Standing) -> None:
        self.asked.pop(0)[1](standing)


@pytest.fixture
def ports() -> AskingPorts:
    return AskingPorts()


@pytest.fixture
def asking(ports: AskingPorts) -> World:
    return World(cluster=ports)


def waiting(world: World, client_id: str = "c", version: Version = Version.V5, **fields: object) -> Client:
    client = world.client(version)
    client.connect(client_id, **fields)  # type: ignore[arg-type]
    assert client.take() == []
    assert client.connection.phase is Phase.ENROLLING
    return client


def served(world: World, ports: AskingPorts, client_id: str = "c", **fields: object) -> Client:
    client = waiting(world, client_id, **fields)
    ports.answer(Standing.CURRENT)
    world.turn()
    assert client.only(Connack).reason is Reason.SUCCESS
    return client


def test_the_connack_waits_for_the_cluster_and_packets_behind_the_connect_for_the_connack(
    asking: World, ports: AskingPorts
) -> None:
    client = waiting(asking)
    client.send_subscribe("a")
    client.send(Pingreq())
    assert client.take() == []
    assert client.connection.pausing, "what follows stays in the socket, so that it needs no memory here"
    ports.answer(Standing.CURRENT)
    asking.turn()
    assert [type(packet) for packet in client.take()] == [Connack, Suback, Pingresp]
    assert not client.connection.pausing


def test_the_cluster_is_told_what_it_must_know(asking: World, ports: AskingPorts) -> None:
    client = asking.client()
    client.connect("c", clean=False, session_expiry_s=60)
    enrolment = ports.asked[0][0]
    assert (enrolment.client_id, enrolment.clean, enrolment.kept) == ("c", False, True)
    assert enrolment.within_s == asking.broker.config.enrol_timeout_s


def test_an_id_of_the_server_needs_no_answer(asking: World, ports: AskingPorts) -> None:
    client = asking.connect("")
    assert client.connack.properties.assigned_client_id
    assert ports.asked == []
    kept = asking.connect("", session_expiry_s=60)
    assert [enrolment.client_id for enrolment, _ in ports.asked] == [kept.connack.properties.assigned_client_id]


@pytest.mark.parametrize(
    ("standing", "reason"),
    [(Standing.FOREIGN, Reason.NOT_AUTHORIZED), (Standing.SUPERSEDED, Reason.SERVER_BUSY)],
)
def test_a_client_that_may_not_have_its_id_is_refused(
    asking: World, ports: AskingPorts, standing: Standing, reason: Reason
) -> None:
    client = waiting(asking)
    ports.answer(standing)
    asking.turn()
    assert client.only(Connack).reason is reason
    assert client.closed
    assert ports.discharged == ["c"]
    assert asking.broker.sessions == {}


def test_a_client_that_goes_before_the_answer_leaves_nothing(asking: World, ports: AskingPorts) -> None:
    client = waiting(asking)
    client.drop()
    assert ports.discharged == ["c"]
    ports.answer(Standing.CURRENT)
    asking.turn()
    assert asking.broker.sessions == {}
    assert asking.broker.enrolling == {}


def test_what_a_client_has_sent_counts_even_if_it_goes_before_the_answer(asking: World, ports: AskingPorts) -> None:
    client = waiting(asking)
    client.publish("a", b"fire and forget")
    client.drop()
    assert ports.messages == []
    ports.answer(Standing.CURRENT)
    asking.turn()
    assert ports.payloads == [(b"fire and forget", 0)]
    assert asking.broker.sessions == {}
    assert ports.discharged == ["c"]


def test_of_two_that_wait_the_later_one_is_served(asking: World, ports: AskingPorts) -> None:
    first, second = waiting(asking), waiting(asking)
    assert first.closed
    assert ports.discharged == [], "the second needs it"
    ports.answer(Standing.CURRENT)
    ports.answer(Standing.CURRENT)
    asking.turn()
    assert second.only(Connack).reason is Reason.SUCCESS
    assert asking.broker.sessions["c"].writer is second.connection.writer


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_a_connection_that_another_peer_has_taken_over_is_closed(
    asking: World, ports: AskingPorts, version: Version
) -> None:
    client = asking.client(version)
    client.connect("c")
    ports.answer(Standing.CURRENT)
    asking.turn()
    client.only(Connack)
    asking.broker.oust("c", Standing.SUPERSEDED)
    if version is Version.V5:
        assert client.closed_with(Reason.SESSION_TAKEN_OVER)
    assert client.closed
    assert asking.broker.counters.taken_over == 1
    assert ports.discharged == ["c"], "a session that ends with its connection needs the id no more"


def test_the_end_of_the_old_socket_says_nothing_about_a_later_connection(asking: World, ports: AskingPorts) -> None:
    first = served(asking, ports, session_expiry_s=60)
    asking.broker.oust("c", Standing.SUPERSEDED)
    second = served(asking, ports, clean=False, session_expiry_s=60)
    first.drop()
    assert asking.broker.sessions["c"].writer is second.connection.writer
    assert ports.discharged == []


def test_a_connection_that_waits_for_its_turn_is_later_than_one_that_is_ousted(
    asking: World, ports: AskingPorts
) -> None:
    for _ in range(PATIENT_TAKEOVERS + 1):
        served(asking, ports, session_expiry_s=60)
    slow = waiting(asking)
    assert ports.asked == [], "it is slowed down, and the cluster is not asked yet"
    asking.broker.oust("c", Standing.SUPERSEDED)
    assert not slow.closed
    asking.pass_time(1.0)
    ports.answer(Standing.CURRENT)
    asking.turn()
    assert slow.only(Connack).reason is Reason.SUCCESS


def test_clients_that_throw_each_other_out_are_slowed_down(asking: World, ports: AskingPorts) -> None:
    for _ in range(PATIENT_TAKEOVERS + 1):
        served(asking, ports)
    assert asking.broker.counters.slowed == 0
    slow = waiting(asking)
    assert asking.broker.counters.slowed == 1
    assert asking.broker.rivals.take_news() == ["c"]
    asking.pass_time(0.5)
    assert ports.asked == []
    asking.pass_time(0.5)
    ports.answer(Standing.CURRENT)
    asking.turn()
    assert slow.only(Connack).reason is Reason.SUCCESS


def test_a_client_id_that_turns_out_to_be_another_users_loses_its_connection(asking: World, ports: AskingPorts) -> None:
    client = served(asking, ports)
    asking.broker.oust("c", Standing.FOREIGN)
    assert client.closed_with(Reason.NOT_AUTHORIZED)


@pytest.mark.parametrize(("clean", "published"), [(True, [b"will"]), (False, [])])
def test_a_clean_start_elsewhere_publishes_a_delayed_will_and_a_session_that_goes_on_does_not(
    asking: World, ports: AskingPorts, clean: bool, published: list[bytes]
) -> None:
    """5.0 §3.1.3.2.2: a delayed will is published with the end of the session, and not if the session goes on."""
    will = Will("wills/c", b"will", 0, False, Properties(will_delay_s=30))
    served(asking, ports, session_expiry_s=60, will=will)
    moving = asking.broker.give_up("c", None, clean)
    assert (moving is None) is clean
    asking.pass_time(100.0)
    assert [message.payload for message, _ in ports.messages] == published
    assert "c" not in asking.broker.sessions
