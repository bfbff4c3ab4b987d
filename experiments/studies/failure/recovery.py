"""What a kill did to the deliveries: how far their rate fell, how long, and what never came.

Clients at peers that were killed are accounted apart: nothing can come from them or to them any more. Of what is left,
each message counts for when it was due, so a rate that is uneven by itself is no fall, and what comes late is one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import floor
from typing import Final

from ringmq.experiments.studies.harness.traffic import Traffic, latencies, percentile

STEP_S: Final = 0.1
"""What rates are taken over after a kill: some five messages, each to all subscribers."""
ON_TIME_S: Final = 0.5
"""A delivery that takes longer is missing where it was due. Many times what one takes, and less than a failure does."""
WHOLE: Final = 0.95
"""Of what is due: a rate that is back."""
HELD_STEPS: Final = 10
"""With something due, that a rate must be back for: a second. What comes later is no doing of the kill."""
BIN_S: Final = 0.25
"""Of a rate over time, as it is drawn."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one trial. Live clients are those at peers that were not killed."""

    share: float
    """Of all deliveries before the kill: those from clients or to clients at the victims."""
    lowest: float
    """In the step after the kill with the fewest deliveries to live clients: these, of those due."""
    lowest_before: float
    """The same of the time before the kill: how much the machine is disturbed by itself."""
    recovered_s: float | None
    """From the kill until their rate was back for a second; 0 if it did not fall, None if it did not come back."""
    lost_live: int
    """Deliveries from live clients to live clients that never came."""
    lost_after: int
    """Of those, the ones that were due after the kill."""
    due_live: int
    """All of them."""
    delivered: int
    """To all clients, during the whole trial, each once."""


def recovery(traffic: Traffic, victims: Collection[int], killed_s: float) -> Recovery:
    """What a kill did."""
    dead = set(victims)
    live = [one for one in traffic.arrivals if one.place not in dead]
    sent = [number for number, place in enumerate(traffic.publishers) if place not in dead]
    came = dict.fromkeys(sent, 0)
    in_time = dict.fromkeys(sent, 0)
    for one in live:
        first: dict[int, float] = {}
        for number, at in zip(one.numbers, one.times, strict=True):
            first.setdefault(number, at)
        for number in first.keys() & came.keys():
            came[number] += 1
            in_time[number] += first[number] - traffic.published_at[number] <= ON_TIME_S
    # What was on its way when the peers died was due after it.
    way_s = percentile(sorted(latencies(traffic)), 50)
    due = {number: traffic.published_at[number] + way_s - killed_s for number in sent}
    after = [number for number in sent if due[number] >= 0]
    before = _shares([(due[number], in_time[number] / len(live)) for number in sent if due[number] < 0])
    shares = _shares([(due[number], in_time[number] / len(live)) for number in after])
    return Recovery(
        share=_share(traffic, dead, killed_s),
        lowest=min((share for _, share in shares), default=1.0),
        lowest_before=min((share for _, share in before), default=1.0),
        recovered_s=_recovered_s(shares),
        lost_live=sum(len(live) - came[number] for number in sent),
        lost_after=sum(len(live) - came[number] for number in after),
        due_live=len(sent) * len(live),
        delivered=sum(len(set(one.numbers)) for one in traffic.arrivals),
    )


def rate_over_time(traffic: Traffic, end_s: float) -> list[tuple[float, float]]:
    """The middle of each bin, and deliveries in a second, to all clients."""
    bins = [0] * int(end_s / BIN_S)
    for one in traffic.arrivals:
        for at in one.times:
            if 0 <= at < len(bins) * BIN_S:
                bins[int(at / BIN_S)] += 1
    return [((place + 0.5) * BIN_S, count / BIN_S) for place, count in enumerate(bins)]


def _shares(messages: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
    """The steps in which something was due, and how much of it came in time. Of messages: when, and the same."""
    steps: dict[int, list[float]] = {}
    for at, share in messages:
        steps.setdefault(floor(at / STEP_S), []).append(share)
    return [(step, sum(shares) / len(shares)) for step, shares in sorted(steps.items())]


def _recovered_s(shares: Sequence[tuple[int, float]]) -> float | None:
    held = 0
    for place, (_, share) in enumerate(shares):
        held = held + 1 if share >= WHOLE else 0
        if held == HELD_STEPS or (held and place + 1 == len(shares)):
            first = place + 1 - held
            return round(STEP_S * shares[first][0], 3) if first else 0.0
    return None if shares else 0.0


def _share(traffic: Traffic, dead: set[int], killed_s: float) -> float:
    before = [place for place, at in zip(traffic.publishers, traffic.published_at, strict=True) if at < killed_s]
    if not before or not traffic.arrivals:
        return 0.0
    publishing = sum(place not in dead for place in before) / len(before)
    subscribing = sum(one.place not in dead for one in traffic.arrivals) / len(traffic.arrivals)
    return 1 - publishing * subscribing
