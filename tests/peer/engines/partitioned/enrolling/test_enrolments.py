"""A client id has one home in the whole ring: claims, takeovers, users, silent homes and coordinators, splits."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.cluster import Enrolment, Standing
from ringmq.peer.engines.partitioned.enrolling.client_registry import REPEAT_S
from ringmq.peer.engines.partitioned.enrolling.enrolments import YIELD_S
from ringmq.peer.engines.partitioned.enrolling.messages import (
    Enrol,
    Enrolled,
    Superseded,
    Yielded,
)
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.record import RecordKind
from ringmq.peer.replication.space import key_of_partition
from tests.peer.conftest import Member, Net, parts_of
from tests.peer.engines.partitioned.enrolling.model_fronts import WITHIN_S, MemberFront, fronts_of, homes_of


@pytest.fixture
def fronts(net: Net) -> list[MemberFront]:
    return fronts_of(net)


def coordinator_of(net: Net, client_id: str) -> Member:
    return net.members[net.owners(key_of_partition(partition_of(client_id)), 1)[0].id]


def apart_from(net: Net, fronts: list[MemberFront], client_id: str) -> list[MemberFront]:
    """Fronts of members that own nothing of the partition of the client id."""
    owners = net.owners(key_of_partition(partition_of(client_id)), net.config.shadows + 1)
    return [front for front in fronts if front.member.me not in owners]


def records_of(net: Net, client_id: str) -> list[Member]:
    """Members with a live record of a client id."""
    key, partition = (RecordKind.CLIENT_ID, client_id, 0), partition_of(client_id)
    found = [(member, member.core.replicas.get(partition, key)) for member in net.members.values()]
    return [member for member, record in found if record is not None and not record.gone]


def test_the_later_of_two_connections_stays_and_the_earlier_one_is_closed_first(
    net: Net, fronts: list[MemberFront]
) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    assert homes_of(fronts, "c") == [first]
    second.connect("c", "user", clean=False)
    net.run()
    assert homes_of(fronts, "c") == [second]
    assert second.standings == [Standing.STALE]
    assert first.given_up == [("c", "user", False)] or ("c", Standing.SUPERSEDED) in first.ousted


def test_the_earlier_connection_ends_before_the_later_one_is_served(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    second.connect("c")
    while "c" in first.connected:
        assert "c" not in second.connected
        second.member.settle()
        net.step()
        assert net.queue, "nothing is on its way any more"


def test_the_coordinator_and_its_shadows_have_the_record_of_a_kept_session_before_the_answer(
    net: Net, fronts: list[MemberFront]
) -> None:
    front = apart_from(net, fronts, "c")[0]
    front.connect("c", kept=True)
    while "c" not in front.connected:
        for member in net.members.values():
            member.settle()
        net.step()
    assert len(records_of(net, "c")) == net.config.shadows + 1


def test_a_session_that_ends_with_its_connection_is_copied_later_with_others(
    net: Net, fronts: list[MemberFront]
) -> None:
    front = apart_from(net, fronts, "c")[0]
    front.connect("c")
    net.run()
    assert "c" in front.connected
    assert records_of(net, "c") == [coordinator_of(net, "c")]
    net.run(0.1)
    assert len(records_of(net, "c")) == net.config.shadows + 1


def test_a_home_that_coordinates_the_client_id_itself_waits_for_nobody(net: Net, fronts: list[MemberFront]) -> None:
    member = coordinator_of(net, "c")
    front = next(front for front in fronts if front.member is member)
    front.connect("a client of the same peer")
    net.run()
    # The partition has a coordinator from the first client id on.
    member.core.coordinator.takeover.wake()
    net.run()
    net.lost = lambda sender, receiver, message: True
    front.connect("c")
    assert homes_of(fronts, "c") == [front]


def test_a_client_that_comes_back_to_the_same_home_asks_nobody(net: Net, fronts: list[MemberFront]) -> None:
    front = apart_from(net, fronts, "c")[0]
    front.connect("c", kept=True)
    net.run()
    asked = net.count(Enrol)
    front.connect("c", kept=True)
    assert homes_of(fronts, "c") == [front]
    net.run()
    assert net.count(Enrol) == asked


def test_the_end_of_a_session_ends_the_record(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c", "one")
    net.run()
    first.leave("c")
    net.run(1.0)
    assert records_of(net, "c") == []
    second.connect("c", "two")
    net.run()
    assert second.standings == [Standing.CURRENT], "a client id without a session is anybody's"


def test_a_client_id_of_another_user_is_refused_and_stays_where_it_is(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c", "one")
    net.run()
    second.connect("c", "two")
    net.run()
    assert second.refused == [("c", Standing.FOREIGN)]
    assert homes_of(fronts, "c") == [first]
    assert len(second.member.core.enrolments) == 0


def test_a_silent_home_is_not_waited_for_longer_than_a_second(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    net.lost = lambda sender, receiver, message: first.member.me in (sender, receiver)
    second.connect("c")
    net.run(YIELD_S / 2)
    assert "c" not in second.connected
    net.run(YIELD_S)
    assert "c" in second.connected
    net.lost = lambda sender, receiver, message: False
    net.run(10.0)
    assert homes_of(fronts, "c") == [second], "it gives the client up when it can be reached again"


def test_a_home_under_suspicion_is_not_waited_for_at_all(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    net.doubted.add(first.member.me.id)
    net.lost = lambda sender, receiver, message: first.member.me in (sender, receiver)
    second.connect("c")
    net.run()
    assert "c" in second.connected


def test_a_client_is_served_after_a_while_if_the_registry_is_silent_and_enrolled_later(
    net: Net, fronts: list[MemberFront]
) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    net.lost = lambda sender, receiver, message: second.member.me in (sender, receiver)
    second.connect("c")
    net.run(WITHIN_S / 2)
    assert "c" not in second.connected
    net.run(WITHIN_S)
    assert homes_of(fronts, "c") == [first, second], "both are served while the second is cut off"
    assert second.member.core.counters.late_enrolments == 1
    net.lost = lambda sender, receiver, message: False
    net.run(20.0)
    assert homes_of(fronts, "c") == [second]


def test_a_claim_survives_the_death_of_its_coordinator(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    net.crash(coordinator_of(net, "c"))
    net.run(5.0)
    second.connect("c")
    net.run()
    assert homes_of(fronts, "c") == [second]
    assert second.standings == [Standing.STALE]


def test_a_successor_that_is_asked_again_names_the_home_before(net: Net, fronts: list[MemberFront]) -> None:
    """The coordinator dies after its shadows have the record and before the home has the answer."""
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c")
    net.run()
    dying = coordinator_of(net, "c")
    net.lost = lambda sender, receiver, message: (
        sender == dying.me and any(isinstance(part, Enrolled | Superseded) for part in parts_of(message))
    )
    second.connect("c")
    net.run()
    assert len(records_of(net, "c")) == net.config.shadows + 1
    assert homes_of(fronts, "c") == [first]
    net.lost = lambda sender, receiver, message: False
    net.crash(dying)
    net.run(5.0)
    assert homes_of(fronts, "c") == [second]


def test_homes_enrol_again_when_all_owners_of_a_client_id_have_died(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c", "one")
    net.run(0.1)
    net.crash(*records_of(net, "c"))
    net.run(5.0)
    assert len(records_of(net, "c")) == net.config.shadows + 1
    second.connect("c", "two")
    net.run()
    assert second.refused == [("c", Standing.FOREIGN)]


def test_a_client_that_gives_up_before_it_is_served_leaves_the_id_to_the_home_before(
    net: Net, fronts: list[MemberFront]
) -> None:
    first, second, third, *_ = apart_from(net, fronts, "c")
    first.connect("c", kept=True)
    net.run()
    net.lost = lambda sender, receiver, message: any(isinstance(part, Yielded) for part in parts_of(message))
    second.connect("c", clean=False, kept=True)
    net.run()
    second.leave("c")
    net.lost = lambda sender, receiver, message: False
    net.run(1.0)
    third.connect("c", clean=False, kept=True)
    net.run()
    assert first.given_up[-1] == ("c", None, False), "its session is still the current one"
    assert third.standings == [Standing.STALE]


@pytest.mark.parametrize("later", [0, 1])
def test_after_a_split_the_later_connection_stays(net: Net, fronts: list[MemberFront], later: int) -> None:
    sides = [fronts[:4], fronts[4:]]
    net.split(*[[front.member for front in side] for side in sides])
    net.run(5.0)
    for side in (sides[1 - later], sides[later]):
        side[0].connect("c")
        net.run(5.0)
        assert homes_of(side, "c") == [side[0]]
    net.split()
    net.run(10.0)
    assert homes_of(fronts, "c") == [sides[later][0]]


def test_a_restored_session_does_not_take_a_client_back_that_has_gone_elsewhere(
    net: Net, fronts: list[MemberFront]
) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    second.connect("c", kept=True)
    net.run()
    answers: list[Standing] = []
    first.member.core.enrol(
        Enrolment("c", None, clean=False, kept=True, restored=True),
        lambda standing, moving=None: answers.append(standing),
    )
    net.run()
    assert answers == [Standing.SUPERSEDED]
    assert homes_of(fronts, "c") == [second]


def test_a_record_of_a_home_that_is_never_heard_again_ends(net: Net, fronts: list[MemberFront]) -> None:
    first, second, *_ = apart_from(net, fronts, "c")
    first.connect("c", "one")
    net.run()
    net.crash(first.member)
    net.run(20.0)
    second.connect("c", "two")
    net.run()
    assert second.refused == [("c", Standing.FOREIGN)]
    # One partition is looked at in each second.
    net.run(4 * REPEAT_S + 4096.0)
    second.connect("c", "two")
    net.run()
    assert homes_of([second], "c") == [second]
