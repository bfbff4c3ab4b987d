"""A ring of one trial: its peers write what they record into files of their own, and are thrown away at its end.

Records do not go by MQTT here. The deliveries of fifty peers would all cross the ring to the one that a collector
listens at, which would have more traffic from being watched than from all that is measured.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from ringmq.experiments.load.raw_clients import Address, BenchError
from ringmq.experiments.processes.peers import HOST, Ring, RingPeer
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.studies.harness.plan import Plan, ids
from ringmq.overlay.core.ids import Id
from ringmq.peer.identity.data_folder import STORED, Stored

INTERVAL_S: Final = 0.5
"""Between two samples of a peer. Rates are no finer than this; a sample of a peer with fifty links takes 7 kB."""
RECORDS: Final = "records.jsonl"
CONFIG: Final = """\
data = "{data}"

[record]
run = "{run}"
interval_s = {interval_s}
deliveries = "each"
every = 1
mqtt = false
file = "{file}"
"""
AT_ONCE: Final = 5
"""Peers that are started together: enough for two cores. Of fifty, some would wait for a core longer than they may."""
PEER_BYTES: Final = 50 << 20
"""Of memory, for each."""
SPARE_BYTES: Final = 2 << 30
"""For the load, for Spark, and for whatever else runs."""


class RecordingPeer(RingPeer):
    """One that has a folder: for its log, its settings, its id, and what it records."""

    def __init__(self, number: int, overlay: Address, mqtt: Address, folder: Path, point: Id, run: str) -> None:
        super().__init__(number, overlay, mqtt, folder / "log")
        self.records = folder / RECORDS
        self._config, data = folder / "peer.toml", folder / "data"
        data.mkdir(parents=True)
        # Ports are whatever is free: without a data folder ids would follow from them.
        (data / STORED).write_bytes(msgspec.json.encode(Stored(id=point.hex(), boot=0)))
        text = CONFIG.format(data=data, run=run, interval_s=INTERVAL_S, file=self.records)
        self._config.write_text(text, encoding="utf-8")

    def start(self, join: Address | None, parent_pipe: int, options: Sequence[str]) -> None:
        super().start(join, parent_pipe, (*options, "--config", str(self._config)))


class RecordingRing(Ring):
    """Peers that all record."""

    def __init__(self, peers: Sequence[RecordingPeer], options: Sequence[str]) -> None:
        super().__init__(peers, options, None)
        self.recording = peers


@contextmanager
def recording_ring(plan: Plan) -> Iterator[RecordingRing]:
    """The peers of a plan as one ring, for as long as the context lasts. Raises BenchError."""
    ports = choose_ports(0, 2 * plan.peers)
    points = ids(plan.seed, plan.peers)
    with TemporaryDirectory(prefix="ringmq-lab-") as folder:
        peers = [
            RecordingPeer(
                place + 1,
                (HOST, ports[place]),
                (HOST, ports[plan.peers + place]),
                Path(folder) / f"{place}",
                points[place],
                plan.run,
            )
            for place in range(plan.peers)
        ]
        ring = RecordingRing(peers, plan.options)
        try:
            for first in range(0, plan.peers, AT_ONCE):
                ring.start(*peers[first : first + AT_ONCE])
            asyncio.run(ring.settle())
            yield ring
        except BenchError as error:
            said = [line for peer in ring.peers if peer.log.exists() for line in peer.complaints()]
            raise BenchError(f"{error}: {said[-1]}" if said else str(error)) from error
        finally:
            # There is nothing to be kept, and good-byes of fifty peers take longer than what was measured.
            ring.kill(*ring.alive)
            ring.stop()


def why_not(peers: int, memory: Path = Path("/proc/meminfo"), disk: Path | None = None) -> str | None:
    """Why a ring of so many peers would be too much for this machine; None if it would not."""
    wanted = peers * PEER_BYTES + SPARE_BYTES
    available = _available_bytes(memory)
    if available is not None and available < wanted:
        return f"{peers} peers need {wanted >> 20} MB of memory, and {available >> 20} are free"
    if disk is not None and shutil.disk_usage(disk).free < SPARE_BYTES:
        return f"less than {SPARE_BYTES >> 20} MB are free on the disk of {disk}"
    return None


def _available_bytes(memory: Path) -> int | None:
    """None where the system does not say."""
    try:
        lines = memory.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
