"""Plans: the same for the same seed, and what follows from them."""

from __future__ import annotations

from ringmq.experiments.studies.harness.plan import coordinators, ids, spread, topics
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.messaging.partitions import key_of_place, wild_places_of
from tests.experiments.studies.making import plan


def test_a_seed_gives_the_same_places_and_another_gives_others() -> None:
    assert spread(1, "publishers", 50, 14) == spread(1, "publishers", 50, 14)
    assert spread(1, "publishers", 50, 14) != spread(2, "publishers", 50, 14)
    assert spread(1, "publishers", 50, 14) != spread(1, "subscribers", 50, 14)
    assert ids(1, 5) == ids(1, 5)
    assert not {*ids(1, 5)} & {*ids(2, 5)}


def test_a_higher_level_has_the_places_of_a_lower_one() -> None:
    many = spread(1, "subscribers", 50, 50)
    assert sorted(many) == list(range(50))
    assert spread(1, "subscribers", 50, 13) == many[:13]
    assert ids(1, 20) == ids(1, 50)[:20]


def test_a_topic_has_one_coordinator_but_for_filters_of_everything() -> None:
    for name in topics(7):
        assert {key_of_place(place) for place in wild_places_of(name)} == {key_of_place(name), key_of_place("#")}
    assert len({*topics(7)}) == 7


def test_coordinators_are_the_nearest_each_once() -> None:
    points = ids(1, 50)
    found = coordinators(points, topics(7))
    for name in topics(7):
        key = key_of_place(name)
        assert points.index(min(points, key=lambda point: nearness(key, point))) in found
    assert len(found) == len(set(found)) <= 7
    assert coordinators([Id(1), Id(2)], ["a", "a"]) in {(0,), (1,)}


def test_rates_and_messages() -> None:
    made = plan(publishers=(0, 1), subscribers=(0, 1, 2), rate_hz=2.5, warm_s=1.0, measured_s=3.0)
    assert made.published_hz == 10
    assert made.delivered_hz == 30
    assert made.messages == 40


def test_options() -> None:
    wanted = "--dispatch direct --shadows 3 --delay 1-10ms --delay-seed 1 --timing local"
    assert " ".join(plan().options) == wanted
