"""Effect of a kill on the deliveries: how far their rate fell, for how long, and how many deliveries were lost.

Clients at killed peers are counted apart, since no message can come from them or to them any more. Among the other
clients, each message counts at the time when it was due. So an uneven rate of publications is no fall of the rate, but
late deliveries are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import floor
from typing import Final

from ringmq.experiments.studies.harness.traffic import Traffic, latencies, percentile

STEP_S: Final = 0.1
"""Width of the steps in which rates around a kill are measured: some five messages, each to all subscribers."""
ON_TIME_S: Final = 0.5
"""Latency above which a delivery counts as missing at its due time: many times the usual latency, and less than the
time that a failure takes."""
WHOLE: Final = 0.95
"""Share of the due deliveries from which on a rate is back."""
HELD_STEPS: Final = 10
"""Steps with due deliveries, in all a second, for which the rate must be back. Later falls have other causes."""
BIN_S: Final = 0.25
"""Width of the bins in which a rate over time is drawn."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery of one trial. Live clients are the clients of peers that were not killed."""

    share: float
    """Share of the victims' clients, as publishers or subscribers, in the deliveries before the kill."""
    lowest: float
    """Share of the due deliveries to live clients that came in time, in the worst step after the kill."""
    lowest_before: float
    """The same share in the worst step before the kill, which shows how disturbed the machine is."""
    recovered_s: float | None
    """Time from the kill until the rate was back for a second; 0 if it did not fall, None if it never came back."""
    lost_live: int
    """Lost deliveries from live clients to live clients."""
    lost_after: int
    """Lost deliveries from live to live clients that were due after the kill."""
    due_live: int
    """Due deliveries from live clients to live clients."""
    delivered: int
    """Deliveries to all clients in the whole trial, without duplicates."""


def measure_recovery(traffic: Traffic, victims: Collection[int], killed_s: float) -> Recovery:
    """Measure the effect of a kill at `killed_s`."""
    dead = set(victims)
    live = [arrivals for arrivals in traffic.arrivals if arrivals.position not in dead]
    sent = [number for number, position in enumerate(traffic.publishers) if position not in dead]
    came = dict.fromkeys(sent, 0)
    in_time = dict.fromkeys(sent, 0)
    for arrivals in live:
        first: dict[int, float] = {}
        for number, at in zip(arrivals.numbers, arrivals.times, strict=True):
            first.setdefault(number, at)
        for number in first.keys() & came.keys():
            came[number] += 1
            in_time[number] += first[number] - traffic.published_at[number] <= ON_TIME_S
    # A message is due a median latency after its publication, so messages in flight at the kill were due after it.
    median_s = percentile(sorted(latencies(traffic)), 50)
    due = {number: traffic.published_at[number] + median_s - killed_s for number in sent}
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
        delivered=sum(len(set(arrivals.numbers)) for arrivals in traffic.arrivals),
    )


def rate_over_time(traffic: Traffic, end_s: float) -> list[tuple[float, float]]:
    """The middle of each bin, and the rate of deliveries to all clients in it."""
    bins = [0] * int(end_s / BIN_S)
    for arrivals in traffic.arrivals:
        for at in arrivals.times:
            if 0 <= at < len(bins) * BIN_S:
                bins[int(at / BIN_S)] += 1
    return [((index + 0.5) * BIN_S, count / BIN_S) for index, count in enumerate(bins)]


def _shares(messages: Sequence[tuple[float, float]]) -> list[tuple[int, float]]:
    """The steps with due messages, each with the mean of their shares in time. A message is its due time and share."""
    steps: dict[int, list[float]] = {}
    for at, share in messages:
        steps.setdefault(floor(at / STEP_S), []).append(share)
    return [(step, sum(shares) / len(shares)) for step, shares in sorted(steps.items())]


def _recovered_s(shares: Sequence[tuple[int, float]]) -> float | None:
    held = 0
    for index, (_, share) in enumerate(shares):
        held = held + 1 if share >= WHOLE else 0
        if held == HELD_STEPS or (held and index + 1 == len(shares)):
            first = index + 1 - held
            return round(STEP_S * shares[first][0], 3) if first else 0.0
    return None if shares else 0.0


def _share(traffic: Traffic, dead: set[int], killed_s: float) -> float:
    before = [position for position, at in zip(traffic.publishers, traffic.published_at, strict=True) if at < killed_s]
    if not before or not traffic.arrivals:
        return 0.0
    publishing = sum(position not in dead for position in before) / len(before)
    subscribing = sum(arrivals.position not in dead for arrivals in traffic.arrivals) / len(traffic.arrivals)
    return 1 - publishing * subscribing
