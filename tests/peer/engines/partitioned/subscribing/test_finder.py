"""Searches for retained messages: once for each coordinator, wherever it is by then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringmq.peer.engines.partitioned.messages import (
    Find,
    Found,
    Registered,
)
from ringmq.peer.engines.partitioned.subscribing.finder import bits_of, runs_of_bits
from ringmq.peer.replication.space import ALL, PARTITIONS, partitions_in, runs_of
from tests.peer.engines.partitioned.homes import Home, nearest


def test_wildcard_filters_of_one_iteration_search_once_and_wait_for_all_partitions() -> None:
    home = Home(3)
    home.retain("a/b", b"1")
    home.retain("a/c/d", b"2")
    home.retain("z", b"3")
    done = home.subscribe("a/+", "a/#", "$share/g/#")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    assert done == ["$share/g/#"], "shared filters get no retained messages"
    assert home.soon == []
    finds = home.items(Find)
    assert len(finds) == 3
    assert {item.filters for _, item in finds} == {("a/+", "a/#")}
    assert sorted(p for _, item in finds for p in partitions_in(item.runs)) == list(range(PARTITIONS))
    silent = home.ring[1]
    for peer in home.ring:
        if peer != silent:
            home.work(peer)
    home.run(5.0, work=False)
    home.hear()
    assert len(done) == 1
    assert len(home.items(Find)) == 3, "streams repeat what is lost"
    home.settle()
    assert sorted(done) == ["$share/g/#", "a/#", "a/+"]
    assert sorted(home.soon) == ["a/#", "a/+"]
    assert home.kept == {"a/b": b"1", "a/c/d": b"2"}


def test_a_search_goes_on_at_the_successor() -> None:
    home = Home(3)
    home.retain("a/b", b"1")
    done = home.subscribe("#")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    dead = home.ring.pop(1)
    home.run(1.0)
    assert done == []
    home.view.peers.remove(dead)
    home.subscriber.coordinators_changed()
    home.settle()
    assert done == ["#"]
    assert home.kept == {"a/b": b"1"}


def test_a_search_is_repeated_where_the_stream_broke() -> None:
    home = Home(2)
    done = home.subscribe("#")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    home.lose(home.ring[1])
    home.run(1.0)
    assert done == ["#"]


def test_a_coordinator_that_forgot_a_search_is_asked_again() -> None:
    home = Home(1)
    done = home.subscribe("#")
    home.settle()
    assert done == ["#"]
    done = home.subscribe("+")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    home.sent.clear()
    home.run(5.0)
    assert done == []
    home.run(12.0)
    assert done == ["+"]


def test_a_filter_that_was_removed_and_added_during_its_search_has_another() -> None:
    home = Home(1)
    home.subscribe("a/+")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    home.subscriber.remove("a/+")
    again = home.subscribe("a/+")
    home.work()
    home.hear()
    assert again == []
    home.settle()
    assert again == ["a/+"]


def test_a_filter_that_lapsed_during_its_search_has_another() -> None:
    home = Home(1)
    done = home.subscribe("a/+")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    first = home.sent[home.me].popleft()
    home.lapse("a/+", said=True)
    home.hear()
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.sent[home.me].append(first)
    home.work()
    home.hear()
    assert done == [], "messages retained while it had lapsed may be missing"
    home.settle()
    assert done == ["a/+"]


def test_partitions_that_are_elsewhere_are_asked_for_again() -> None:
    home = Home(1)
    done = home.subscribe("#")
    home.subscriber.flush()
    home.work()
    home.grant()
    home.hear()
    home.subscriber.flush()
    home.sent.clear()
    home.subscriber.found(home.me, Found(1, (), (), ALL))
    home.run(1.0)
    assert done == ["#"], "it coordinates them by now"


@given(st.sets(st.integers(0, PARTITIONS - 1), max_size=50))
def test_bits_and_runs_are_the_same_sets(partitions: set[int]) -> None:
    runs = runs_of(partitions)
    assert runs_of_bits(bits_of(runs)) == runs
    assert runs_of_bits(bits_of(ALL)) == ALL
    assert bits_of([(5, 4), (4000, 9000)]) == bits_of([(4000, PARTITIONS - 1)])


def test_found_for_an_unknown_search_is_ignored() -> None:
    home = Home(1)
    home.subscriber.found(home.me, Found(7, (), ALL))
    home.subscriber.registered(home.me, Registered(((5, 7),), ((5, 8),), ((5, 9),)))
    assert nearest(0, [home.me]) == home.me
