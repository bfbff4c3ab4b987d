"""The ring of one trial: each peer writes its records into its own file, and its folder is deleted at the end.

Records do not go by MQTT here. The delivery records of fifty peers would all cross the ring to the peer where the
collector listens, and the records would cause more traffic there than the measured messages.
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
"""Time between two samples of a peer. It limits the resolution of rates; a sample with fifty links takes 7 kB."""
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
"""Peers that start together: enough for two cores. If fifty did, some would wait for a core longer than allowed."""
PEER_BYTES: Final = 50 << 20
"""Memory of a peer."""
SPARE_BYTES: Final = 2 << 30
"""Memory, and space on the disk, for the load generator, Spark and other processes."""


class RecordingPeer(RingPeer):
    """A peer with a folder for its log, settings, id and records."""

    def __init__(self, number: int, overlay: Address, mqtt: Address, folder: Path, peer_id: Id, run: str) -> None:
        super().__init__(number, overlay, mqtt, folder / "log")
        self.records = folder / RECORDS
        self._config, data = folder / "peer.toml", folder / "data"
        data.mkdir(parents=True)
        # The plan determines the id. A peer without a stored id derives it from its address, whose port is not planned.
        (data / STORED).write_bytes(msgspec.json.encode(Stored(id=peer_id.hex(), boot=0)))
        text = CONFIG.format(data=data, run=run, interval_s=INTERVAL_S, file=self.records)
        self._config.write_text(text, encoding="utf-8")

    def start(self, join: Address | None, parent_pipe: int, options: Sequence[str]) -> None:
        super().start(join, parent_pipe, (*options, "--config", str(self._config)))


class RecordingRing(Ring):
    """A ring of recording peers."""

    def __init__(self, peers: Sequence[RecordingPeer], options: Sequence[str]) -> None:
        super().__init__(peers, options, None)
        self.recording = peers


@contextmanager
def recording_ring(plan: Plan) -> Iterator[RecordingRing]:
    """The peers of a plan as one ring, while the context lasts. Raises BenchError."""
    ports = choose_ports(0, 2 * plan.peers)
    peer_ids = ids(plan.seed, plan.peers)
    with TemporaryDirectory(prefix="ringmq-lab-") as folder:
        peers = [
            RecordingPeer(
                position + 1,
                (HOST, ports[position]),
                (HOST, ports[plan.peers + position]),
                Path(folder) / f"{position}",
                peer_ids[position],
                plan.run,
            )
            for position in range(plan.peers)
        ]
        ring = RecordingRing(peers, plan.options)
        try:
            for first in range(0, plan.peers, AT_ONCE):
                ring.start(*peers[first : first + AT_ONCE])
            asyncio.run(ring.settle())
            yield ring
        except BenchError as error:
            errors = [line for peer in ring.peers if peer.log.exists() for line in peer.logged_errors()]
            raise BenchError(f"{error}: {errors[-1]}" if errors else str(error)) from error
        finally:
            # Nothing has to be saved, and the good-byes of fifty peers take longer than the measurement.
            ring.kill(*ring.alive)
            ring.stop()


def why_not(peers: int, memory: Path = Path("/proc/meminfo"), disk: Path | None = None) -> str | None:
    """The reason why this machine is too small for a ring of `peers` peers; None if it is large enough."""
    wanted = peers * PEER_BYTES + SPARE_BYTES
    available = _available_bytes(memory)
    if available is not None and available < wanted:
        return f"{peers} peers need {wanted >> 20} MB of memory, and {available >> 20} are free"
    if disk is not None and shutil.disk_usage(disk).free < SPARE_BYTES:
        return f"less than {SPARE_BYTES >> 20} MB are free on the disk of {disk}"
    return None


def _available_bytes(memory: Path) -> int | None:
    """Memory that is available; None if the system does not provide the figure."""
    try:
        lines = memory.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else None
