"""The small table of what was cleared: like a dict in the order of coming, and much smaller."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

from ringmq.peer.replication.tombstone_table import FEWEST_SLOTS, TombstoneTable


def test_it_is_a_dict_in_the_order_of_coming() -> None:
    """Against a dict, through thousands of changes that make it grow and shrink."""
    rng = Random(1)
    tombs, model = TombstoneTable(), dict[str, tuple[tuple[int, int], float]]()
    for step in range(20_000):
        many = 10 if step % 4000 > 2000 else 3000
        topic = f"t/{rng.randrange(many)}"
        deed = rng.random()
        if deed < 0.6:
            number = (rng.getrandbits(62), rng.getrandbits(63))
            model.pop(topic, None)
            model[topic] = (number, float(step))
            tombs.put(topic, number, float(step))
        elif deed < 0.8:
            model.pop(topic, None)
            tombs.pop(topic)
        elif model:
            oldest = next(iter(model))
            assert tombs.oldest_at() == model[oldest][1]
            tombs.pop_oldest()
            del model[oldest]
        if step % 500 == 0:
            tombs.slim()
        known = model.get(topic)
        assert tombs.get(topic) == (known and known[0])
        assert len(tombs) == len(model)
    assert {topic: tombs.get(topic) for topic in model} == {topic: number for topic, (number, _) in model.items()}


def test_an_empty_one_has_no_oldest() -> None:
    tombs = TombstoneTable()
    assert tombs.oldest_at() is None
    tombs.put("a", (1, 2), 3.0)
    tombs.pop("a")
    assert tombs.oldest_at() is None
    assert tombs.get("a") is None


def test_it_is_small_and_gives_its_room_back() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        tombs = TombstoneTable()
        for number in range(100_000):
            tombs.put(f"some/topic/{number}", (number, 1 << 62), 0.0)
        held_bytes, _ = tracemalloc.get_traced_memory()
        for _ in range(100_000 - 1):
            tombs.pop_oldest()
        tombs.slim()
        left_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes / 100_000 < 45
    assert left_bytes < 200 * FEWEST_SLOTS
