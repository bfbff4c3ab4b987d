"""Plans: equal for equal seeds, and the figures that follow from them."""

from __future__ import annotations

from ringmq.experiments.studies.harness.plan import client_positions, coordinators, ids, topics
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.scribe.places import key_of_place, wild_places_of
from tests.experiments.studies.making import plan


def test_positions_and_ids_follow_from_the_seed() -> None:
    assert client_positions(1, "publishers", 50, 14) == client_positions(1, "publishers", 50, 14)
    assert client_positions(1, "publishers", 50, 14) != client_positions(2, "publishers", 50, 14)
    assert client_positions(1, "publishers", 50, 14) != client_positions(1, "subscribers", 50, 14)
    assert ids(1, 5) == ids(1, 5)
    assert not {*ids(1, 5)} & {*ids(2, 5)}


def test_higher_level_extends_the_positions_and_ids_of_a_lower() -> None:
    many = client_positions(1, "subscribers", 50, 50)
    assert sorted(many) == list(range(50))
    assert client_positions(1, "subscribers", 50, 13) == many[:13]
    assert ids(1, 20) == ids(1, 50)[:20]


def test_places_of_a_topic_are_the_topic_and_the_filter_of_everything() -> None:
    for name in topics(7):
        assert {key_of_place(place) for place in wild_places_of(name)} == {key_of_place(name), key_of_place("#")}
    assert len({*topics(7)}) == 7


def test_coordinators_are_the_nearest_peers_without_repetitions() -> None:
    peer_ids = ids(1, 50)
    found = coordinators(peer_ids, topics(7))
    for name in topics(7):
        key = key_of_place(name)
        assert peer_ids.index(min(peer_ids, key=lambda peer_id: nearness(key, peer_id))) in found
    assert len(found) == len(set(found)) <= 7
    assert coordinators([Id(1), Id(2)], ["a", "a"]) in {(0,), (1,)}


def test_rates_and_message_count_follow_from_the_plan() -> None:
    made = plan(publishers=(0, 1), subscribers=(0, 1, 2), rate_hz=2.5, warm_s=1.0, measured_s=3.0)
    assert made.published_hz == 10
    assert made.delivered_hz == 30
    assert made.messages == 40


def test_options_have_the_approach_and_the_settings_of_the_thesis() -> None:
    wanted = "--dispatch direct --shadows 3 --delay 1-10ms --delay-seed 1 --timing local"
    assert " ".join(plan().options) == wanted
