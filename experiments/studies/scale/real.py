"""The work of each peer of a real ring for each published message, from the records of a trial.

Messages and bytes come from the samples. The bytes that the ring sends without publications are subtracted; they are
estimated from the samples after the last message. Latencies come from the delivery records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringmq.collector.ingest.spool import LANDING
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.records import SUFFIX
from ringmq.experiments.studies.harness.trial import Trial
from ringmq.experiments.studies.scale.figures import REAL, RingFigures, of_nodes
from ringmq.logger.records import Delivery, Record, Sample, decode


def figures_of(trial: Trial, data: Path) -> RingFigures:
    """The figures of a trial whose records have landed in this folder. Raises ExperimentError."""
    plan, published = trial.plan, trial.counts.published
    messages, sizes_bytes, latencies_ms = [], [], []
    for position in range(plan.peers):
        records = _landed(data / LANDING / f"{plan.run}-{position}{SUFFIX}")
        samples = [record for record in records if isinstance(record, Sample)]
        samples.sort(key=lambda sample: sample.number)
        if len(samples) < 2:
            raise ExperimentError(f"{plan.run}: peer {position + 1} left no samples")
        copies = _copies(samples[-1])
        messages.append(copies / published)
        sizes_bytes.append(messages[-1] * bytes_per_copy(samples))
        latencies = latencies_s([record for record in records if isinstance(record, Delivery)])
        if latencies:
            latencies_ms.append(1e3 * sum(latencies) / len(latencies))
    return of_nodes(plan.peers, plan.approach, REAL, messages, sizes_bytes, latencies_ms)


def _landed(file: Path) -> list[Record]:
    try:
        return [decode(line) for line in file.read_bytes().splitlines()]
    except (OSError, ValueError) as error:
        raise ExperimentError(f"cannot read {file.name}: {error}") from None


def _copies(sample: Sample) -> int:
    return sample.overlay.messages_in + sample.overlay.messages_out


def _bytes(sample: Sample) -> int:
    return sample.overlay.bytes_in + sample.overlay.bytes_out


def bytes_per_copy(samples: Sequence[Sample]) -> float:
    """Bytes per copy on the links of one peer, without the bytes of an idle ring; 0 without copies.

    The copies are counted from the first sample to the first sample that has all of them; the idle rate after that.
    """
    first, last = samples[0], samples[-1]
    quiet = next(sample for sample in samples if _copies(sample) == _copies(last))
    copies = _copies(quiet) - _copies(first)
    if not copies:
        return 0.0
    idle_s = last.uptime_s - quiet.uptime_s
    idle = (_bytes(last) - _bytes(quiet)) / idle_s if idle_s else 0.0
    return (_bytes(quiet) - _bytes(first) - idle * (quiet.uptime_s - first.uptime_s)) / copies


def latencies_s(deliveries: Sequence[Delivery]) -> list[float]:
    """Latencies of the deliveries that reached clients, as the collector counts them."""
    return [
        (delivery.received_ns - delivery.sent_ns) / 1e9
        for delivery in deliveries
        if delivery.clients and not delivery.duplicate
    ]
