"""The table of transitions of a filter: complete, without dead ends, and refusing all other events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FINAL, TRANSITIONS, FilterEvent, FilterStage
from ringmq.peer.engines.partitioned.subscribing.local_filter import HomePartition, LocalFilter


def reachable(start: FilterStage) -> set[FilterStage]:
    found, new = {start}, [start]
    while new:
        for stage in TRANSITIONS[new.pop()].values():
            if stage not in found:
                found.add(stage)
                new.append(stage)
    return found


def test_every_stage_is_reached_from_the_first() -> None:
    assert reachable(FilterStage.ASKING) == set(FilterStage)
    assert set(TRANSITIONS) == set(FilterStage)


def test_no_transition_leads_out_of_a_final_stage() -> None:
    assert {stage for stage, events in TRANSITIONS.items() if not events} == FINAL


@pytest.mark.parametrize("stage", [stage for stage in FilterStage if stage not in FINAL])
def test_every_stage_can_end(stage: FilterStage) -> None:
    assert reachable(stage) >= FINAL


def test_every_event_is_used() -> None:
    assert {event for events in TRANSITIONS.values() for event in events} == set(FilterEvent)


@given(st.lists(st.sampled_from(FilterEvent), max_size=20))
def test_random_events_follow_the_table_or_are_refused(events: list[FilterEvent]) -> None:
    subscription = LocalFilter("a", HomePartition(partition_of("a")), (1, 1))
    for event in events:
        before = subscription.stage
        following = TRANSITIONS[before].get(event)
        if following is None:
            with pytest.raises(KeyError):
                subscription.on(event)
            assert subscription.stage is before, "a refused event changes nothing"
        else:
            subscription.on(event)
            assert subscription.stage is following
