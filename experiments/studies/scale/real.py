"""What the peers of a real ring had to do for each message that was published, from what they recorded of a trial.

Messages are counted by their samples. So are bytes, between two samples and without what the ring sends when nothing is
published: that is what it sent after the last message. Latencies are those of their deliveries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ringmq.collector.ingest.spool import LANDING
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.records import SUFFIX
from ringmq.experiments.studies.harness.trial import Trial
from ringmq.experiments.studies.scale.figures import REAL, Found, of_nodes
from ringmq.logger.records import Delivery, Record, Sample, decode


def found_of(trial: Trial, data: Path) -> Found:
    """Of all peers of a trial whose records have landed in this folder. Raises ExperimentError."""
    plan, published = trial.plan, trial.counts.published
    messages, sizes_bytes, latencies_ms = [], [], []
    for place in range(plan.peers):
        records = _landed(data / LANDING / f"{plan.run}-{place}{SUFFIX}")
        samples = sorted([one for one in records if isinstance(one, Sample)], key=lambda one: one.number)
        if len(samples) < 2:
            raise ExperimentError(f"{plan.run}: peer {place + 1} left no samples")
        copies = _copies(samples[-1])
        messages.append(copies / published)
        sizes_bytes.append(messages[-1] * bytes_per_copy(samples))
        late = latencies_s([one for one in records if isinstance(one, Delivery)])
        if late:
            latencies_ms.append(1e3 * sum(late) / len(late))
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
    """Of one peer, from its first sample until the first that has all copies; 0 if none crossed its links."""
    first, last = samples[0], samples[-1]
    quiet = next(one for one in samples if _copies(one) == _copies(last))
    copies = _copies(quiet) - _copies(first)
    if not copies:
        return 0.0
    idle_s = last.uptime_s - quiet.uptime_s
    idle = (_bytes(last) - _bytes(quiet)) / idle_s if idle_s else 0.0
    return (_bytes(quiet) - _bytes(first) - idle * (quiet.uptime_s - first.uptime_s)) / copies


def latencies_s(deliveries: Sequence[Delivery]) -> list[float]:
    """Of what reached clients, as the collector counts them."""
    return [(one.received_ns - one.sent_ns) / 1e9 for one in deliveries if one.clients and not one.duplicate]
