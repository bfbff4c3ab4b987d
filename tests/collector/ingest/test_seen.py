"""The records seen, compared with a plain set of numbers, and the limits of memory."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.collector.ingest import seen as module
from ringmq.collector.ingest.seen import Seen, Source, Verdict

NEW, REPEATED, TOO_LATE = Verdict.NEW, Verdict.REPEATED, Verdict.TOO_LATE
A, B = "a" * 32, "b" * 32


def verdicts(seen: Seen, *numbers: int, peer: str = A, boot: int = 1) -> list[Verdict]:
    return [seen.add(peer, boot, number) for number in numbers]


def reread(seen: Seen) -> Seen:
    """The state after a restart."""
    raw = msgspec.json.encode(seen.sources)
    return Seen(msgspec.json.decode(raw, type=list[Source]), seen.given_up)


def holes(seen: Seen) -> list[tuple[int, int]]:
    return [hole for source in seen.sources for hole in source.holes]


def test_sequence_without_gaps_is_one_mark() -> None:
    seen = Seen()
    assert set(verdicts(seen, *range(1000))) == {NEW}
    assert seen.sources == [Source(A, 1, 0, 0, 1000, [])]
    assert set(verdicts(seen, *range(1000))) == {REPEATED}
    assert (seen.missing, seen.earlier) == (0, 0)


def test_missing_numbers_are_counted_until_they_arrive() -> None:
    seen = Seen()
    verdicts(seen, 0, 5, 9)
    assert (seen.missing, holes(seen)) == (7, [(1, 5), (6, 9)])
    assert verdicts(seen, 3, 3) == [NEW, REPEATED]
    assert (seen.missing, holes(seen)) == (6, [(1, 3), (4, 5), (6, 9)])
    assert verdicts(seen, 4, 1, 2, 8, 7, 6) == [NEW] * 6
    assert (seen.missing, holes(seen)) == (0, [])


def test_numbers_before_the_first_are_earlier_and_not_missing() -> None:
    seen = Seen()
    verdicts(seen, 100)
    assert (seen.missing, seen.earlier) == (0, 100)
    assert verdicts(seen, 99) == [NEW]
    assert (seen.missing, seen.earlier) == (0, 99)
    assert verdicts(seen, 90, 95, 90) == [NEW, NEW, REPEATED]
    assert (seen.missing, seen.earlier, holes(seen)) == (7, 90, [(91, 95), (96, 99)])


def test_peers_and_starts_are_separate_sources() -> None:
    seen = Seen()
    assert verdicts(seen, 7) == verdicts(seen, 7, boot=2) == verdicts(seen, 7, peer=B) == [NEW]
    assert verdicts(seen, 7) == verdicts(seen, 7, boot=2) == verdicts(seen, 7, peer=B) == [REPEATED]
    assert len(seen.sources) == 3


@st.composite
def arrival_lists(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    return draw(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(1, 2), st.integers(0, 25)), max_size=80))


@given(arrival_lists(), st.integers(0, 80))
def test_any_order_agrees_with_a_plain_set(arrivals: list[tuple[str, int, int]], restart: int) -> None:
    seen, plain = Seen(), set[tuple[str, int, int]]()
    for index, arrival in enumerate(arrivals):
        if index == restart:
            seen = reread(seen)
        assert seen.add(*arrival) is (REPEATED if arrival in plain else NEW)
        plain.add(arrival)
    missing = 0
    earlier = 0
    for name in {arrival[:2] for arrival in arrivals}:
        numbers = {number for *other, number in plain if tuple(other) == name}
        missing += max(numbers) + 1 - min(numbers) - len(numbers)
        earlier += min(numbers)
    assert (seen.missing, seen.earlier) == (reread(seen).missing, seen.earlier) == (missing, earlier)
    for source in seen.sources:
        source.check()


@pytest.fixture
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "MAX_HOLES", 3)
    monkeypatch.setattr(module, "MAX_SOURCES", 2)
    return iter(())


@pytest.mark.usefixtures("_low_limits")
def test_lowest_hole_is_given_up_beyond_the_limit() -> None:
    seen = Seen()
    verdicts(seen, 10, 12, 14, 16, 18)
    assert holes(seen) == [(13, 14), (15, 16), (17, 18)]
    assert (seen.missing, seen.given_up) == (4, 1)
    assert verdicts(seen, 11, 10, 5, 12, 13, 15) == [TOO_LATE, TOO_LATE, TOO_LATE, REPEATED, NEW, NEW]
    assert (seen.missing, seen.given_up, seen.earlier) == (2, 1, 10)
    assert (reread(seen).missing, reread(seen).given_up) == (2, 1)
    assert verdicts(reread(seen), 11, 12, 17) == [TOO_LATE, REPEATED, NEW]


@pytest.mark.usefixtures("_low_limits")
def test_holes_are_limited_after_a_restart() -> None:
    seen = Seen()
    verdicts(seen, 0, 2, 4, 6)
    seen = reread(seen)
    verdicts(seen, 8)
    assert holes(seen) == [(3, 4), (5, 6), (7, 8)]


@pytest.mark.usefixtures("_low_limits")
def test_split_hole_counts_towards_the_limit() -> None:
    seen = Seen()
    verdicts(seen, 0, 2, 4, 10)
    assert verdicts(seen, 7) == [NEW]
    assert holes(seen) == [(3, 4), (5, 7), (8, 10)]
    assert (seen.missing, seen.given_up) == (6, 1)


@pytest.mark.usefixtures("_low_limits")
def test_holes_of_all_sources_share_the_limit() -> None:
    seen = Seen()
    verdicts(seen, 0, 2, 4, 6)
    verdicts(seen, 0, 2, peer=B)
    assert [len(source.holes) for source in seen.sources] == [3, 0]
    assert verdicts(seen, 1, peer=B) == [TOO_LATE]
    assert verdicts(seen, 1, 3) == [NEW, NEW]
    assert verdicts(seen, 3, peer=B) == [NEW]


@pytest.mark.usefixtures("_low_limits")
def test_least_recently_heard_source_is_forgotten() -> None:
    seen = Seen()
    verdicts(seen, 0, 5)
    verdicts(seen, 0, 1, boot=2)
    verdicts(seen, 6)
    verdicts(seen, 0, boot=3)
    assert [source.boot for source in seen.sources] == [1, 3]
    assert (seen.missing, seen.given_up) == (4, 0)
    verdicts(seen, 0, boot=4)
    verdicts(seen, 1, boot=3)
    assert [source.boot for source in seen.sources] == [4, 3]
    assert (seen.missing, seen.given_up) == (4, 4)
    assert verdicts(seen, 6, 8) == [NEW, NEW], "a forgotten source is new again"
    assert holes(seen) == [(7, 8)]
    verdicts(seen, 10, 12)
    assert holes(seen) == [(7, 8), (9, 10), (11, 12)], "holes of forgotten sources do not count"


@pytest.mark.usefixtures("_low_limits")
def test_highest_numbers_survive_a_restart() -> None:
    seen = Seen()
    for boot in range(6):
        assert verdicts(seen, 0, (1 << 63) - 1, boot=boot) == [NEW, NEW]
        seen = reread(seen)
    assert seen.missing > 0
    assert seen.given_up == (1 << 63) - 1


def source(started: int = 0, floor: int = 0, following: int = 9, gaps: tuple[tuple[int, int], ...] = ()) -> Source:
    return Source(A, 1, started, floor, following, list(gaps))


@pytest.mark.parametrize(
    "wrong",
    [
        source(started=1),
        source(floor=9),
        source(floor=10),
        source(gaps=((0, 2),)),
        source(gaps=((3, 3),)),
        source(gaps=((4, 3),)),
        source(gaps=((2, 4), (4, 5))),
        source(gaps=((4, 5), (2, 3))),
        source(gaps=((4, 9),)),
        source(following=(1 << 63) + 1),
    ],
)
def test_impossible_source_raises(wrong: Source) -> None:
    with pytest.raises(ValueError, match=f"peer {A}"):
        Seen([wrong])


def test_duplicate_source_raises() -> None:
    with pytest.raises(ValueError, match="occurs twice"):
        Seen([source(), source()])
    assert Seen([source(gaps=((2, 4), (5, 6)))], given_up=5).missing == 8
