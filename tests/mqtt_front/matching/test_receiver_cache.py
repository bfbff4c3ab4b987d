"""The bounds of the cache, and what it forgets."""

from __future__ import annotations

from ringmq.mqtt_front.matching.receiver_cache import ReceiverCache
from ringmq.mqtt_front.matching.receivers import Receiver, Receivers

NONE: Receivers[str] = Receivers((), ())


def test_a_filter_drops_what_it_matches() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    for topic in ("a", "a/b", "b"):
        cache.put(topic, Receivers((), ()))
    cache.drop("a/#")
    assert list(cache.answers) == ["b"]
    cache.drop("b")
    assert cache.size_bytes == 0
    assert cache.evictions == 0


def test_the_oldest_make_place() -> None:
    cache: ReceiverCache[str] = ReceiverCache(200, 10**6)
    for number in range(1000):
        cache.put(str(number), NONE)
        assert len(cache.answers) <= 200
        assert str(number) in cache.answers
    kept = list(cache.answers)
    assert len(kept) > 100, "not all at once"
    assert kept == [str(number) for number in range(1000 - len(kept), 1000)]
    assert cache.evictions == 1000 - len(kept)


def test_long_names_and_long_lists_count() -> None:
    cache: ReceiverCache[str] = ReceiverCache(10**6, 10**6)
    everyone = Receivers(tuple(Receiver(str(number), 0) for number in range(1000)), ())
    for number in range(100):
        cache.put(f"list/{number}", everyone)
        cache.put("name/" * 1000 + str(number), NONE)
        assert cache.size_bytes <= 10**6 + 10**5
    assert 2 <= len(cache.answers) < 20


def test_the_newest_stays_whatever_its_size() -> None:
    cache: ReceiverCache[str] = ReceiverCache(1, 1)
    cache.put("a", NONE)
    cache.put("b", NONE)
    assert list(cache.answers) == ["b"]
    assert cache.evictions == 1


def test_it_can_begin_anew() -> None:
    cache: ReceiverCache[str] = ReceiverCache(100, 10**6)
    answers = cache.answers
    for topic in ("a", "$SYS/b"):
        cache.put(topic, Receivers((), ()))
    cache.clear()
    assert (len(answers), cache.size_bytes, cache.evictions) == (0, 0, 0)
    cache.put("a", Receivers((), ()))
    cache.drop("a")
    assert len(answers) == 0
