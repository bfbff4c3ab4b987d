"""Throughput of the collector: ingest, stream and reduce, each with the output of the stage before it.

Owns the measured processes and their figures. Knows the collector by its command line and its folders.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Final

import msgspec

from ringmq.collector.ingest.spool import STATE_FILE, State
from ringmq.experiments.benchmarks.goals import Verdict
from ringmq.experiments.load.raw_clients import Address, BenchError, connected
from ringmq.experiments.load.synthetic_records import batches
from ringmq.experiments.processes.servers import cores, pinned, running
from ringmq.experiments.processes.signals import held_back
from ringmq.logger.records import LOG_TOPICS
from ringmq.mqtt_front.codec.codec import encode_publish
from ringmq.mqtt_front.codec.packets import Version

AHEAD: Final = 30_000
"""Most records that are published and not landed: as many as the peer queues for the collector."""
UNACKNOWLEDGED: Final = 100
"""Publications without a PUBACK, at most."""
PUBACK_BYTES: Final = 4
LOOK_S: Final = 0.05
"""Time between two looks at the memory of a process."""
READY_S: Final = 30.0
"""Longest wait for a PUBACK, and for the last records to land."""
INGEST_HZ: Final = 50_000.0
"""Goal for the ingest: records a second."""
REDUCE_S: Final = 90.0
"""Goal for the reduction of REDUCED records."""
REDUCED: Final = 10_000_000
SLOPE: Final = 1.0
"""Goal for the exponent of the time of a reduction over the records."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """Resources that a stage used for its records."""

    records: int
    wall_s: float
    cpu_s: float
    memory_bytes: int
    """Sum of the peak memory of all its processes."""

    @property
    def hz(self) -> float:
        return self.records / self.wall_s

    def shown(self) -> dict[str, float]:
        return {
            "records/s": self.hz,
            "wall s": self.wall_s,
            "cpu s": self.cpu_s,
            "records/cpu s": self.records / self.cpu_s,
            "memory MB": self.memory_bytes / 1e6,
        }


class Watched:
    """A command of the collector as a process, with the resources that it and its children use."""

    def __init__(self, *arguments: str) -> None:
        self._began = time.monotonic()
        self._name = arguments[0]
        command = [sys.executable, "-P", "-m", "ringmq", "collect", *arguments]
        self.process = subprocess.Popen(  # noqa: S603  # our own command line
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._peak_bytes: dict[int, int] = {}

    def look(self) -> None:
        """Update the peak memory. Call it often: a process that ends between two calls is missed."""
        for pid in (self.process.pid, *_children(self.process.pid)):
            self._peak_bytes[pid] = max(self._peak_bytes.get(pid, 0), _peak_memory_bytes(pid))

    def end(self, records: int, fails: bool = False) -> StageFigures:
        """Wait for its end, and close its pipes. Raises BenchError if it fails, or if it must fail and does not."""
        # WNOWAIT leaves the ended process to wait4 below, which alone returns its processor time.
        while (ended := os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            self.look()
            time.sleep(LOOK_S)
        wall_s = time.monotonic() - self._began
        _, _, used = os.wait4(self.process.pid, 0)
        self.process.returncode = ended.si_status
        _, errors = self.process.communicate()
        if bool(ended.si_status) is not fails:
            lines = errors.decode(errors="replace").splitlines() or ["no error message"]
            raise BenchError(f"collect {self._name}: {lines[-1]}")
        return StageFigures(records, wall_s, used.ru_utime + used.ru_stime, sum(self._peak_bytes.values()))

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def watched(*arguments: str) -> Iterator[Watched]:
    """A running command that is killed at the end of the context."""
    command: Watched | None = None
    try:
        with held_back():
            command = Watched(*arguments)
        yield command
    finally:
        if command is not None:
            command.kill()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _peak_memory_bytes(pid: int) -> int:
    """Peak resident memory of a process since its start; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def ingest(data: Path, records: int, seed: int) -> StageFigures:
    """Publish records at a real peer and land them at full speed, with the collector on a core of its own.

    The time counts from the first publication to the last landed record. Raises BenchError.
    """
    shared_core, collector_core = cores()
    with pinned(shared_core), running("unrecorded", shared_core) as peer:
        address = f"{peer.address[0]}:{peer.address[1]}"
        with watched("ingest", "--data", str(data), "--peer", address) as command:
            os.sched_setaffinity(command.process.pid, {collector_core})
            assert command.process.stdout is not None
            if not command.process.stdout.readline().startswith(b"listening:"):
                command.end(0)
                raise BenchError("the ingest did not report that it listens")
            began = time.monotonic()
            _publish(peer.address, data, records, seed, command.look)
            wall_s = time.monotonic() - began
            command.process.terminate()
            done = command.end(records)
    return StageFigures(records, wall_s, done.cpu_s, done.memory_bytes)


def _publish(address: Address, data: Path, records: int, seed: int, look: Callable[[], None]) -> None:
    """Publish all records. Returns when all have landed."""
    client = connected(address, "bench")
    with client:
        client.settimeout(READY_S)
        published = unacknowledged = landed = answered = 0
        for number, batch in enumerate(batches(records, seed)):
            while published - landed > AHEAD:
                landed = _landed(data)
                look()
            topic = f"{LOG_TOPICS}/{batch.peer}".encode()
            packet_id = number % UNACKNOWLEDGED + 1
            client.sendall(encode_publish(Version.V311, topic, batch.lines, 1, packet_id=packet_id))
            published += batch.records
            unacknowledged += 1
            while unacknowledged == UNACKNOWLEDGED:
                answered += len(_received(client))
                unacknowledged -= answered // PUBACK_BYTES
                answered %= PUBACK_BYTES
        deadline = time.monotonic() + READY_S
        while (landed := _landed(data)) < records:
            look()
            if time.monotonic() > deadline:
                raise BenchError(f"{records - landed} of {records} records were not landed")
            time.sleep(LOOK_S / 10)


def _received(client: socket.socket) -> bytes:
    try:
        received = client.recv(65536)
    except TimeoutError:
        raise BenchError(f"the peer acknowledged nothing for {READY_S:g} s") from None
    if not received:
        raise BenchError("the peer closed the connection")
    return received


def _landed(data: Path) -> int:
    """Number of records that have landed, as the ingest counts them."""
    state = msgspec.json.decode((data / STATE_FILE).read_bytes(), type=State)
    return sum(source.next - sum(end - start for start, end in source.holes) for source in state.sources)


def stream(data: Path, records: int, master: str) -> StageFigures:
    """Stream all landed records into Parquet. Raises BenchError."""
    with watched("stream", "--data", str(data), "--once", "--master", master) as command:
        return command.end(records)


def reduce(data: Path, records: int, master: str) -> StageFigures:
    """Make all tables. Raises BenchError."""
    with watched("reduce", "--data", str(data), "--master", master) as command:
        return command.end(records)


def start_s(folder: Path, master: str) -> float:
    """Time that Spark needs to start: the time of a reduction that fails without records. Raises BenchError."""
    with watched("reduce", "--data", str(folder), "--master", master) as command:
        return command.end(0, fails=True).wall_s


def slope(two: Sequence[StageFigures], start_s: float = 0.0) -> float:
    """Exponent of the time over the records, without the time of the start. It is 1 if all records cost the same."""
    fewer, more = two
    times_s = [max(figures.wall_s - start_s, 1e-3) for figures in (fewer, more)]
    return log(times_s[1] / times_s[0]) / log(more.records / fewer.records)


def verdicts(found: dict[str, list[StageFigures]]) -> list[Verdict]:
    """Verdicts on the goals that were measured. The figures of a stage have ascending sizes."""
    judged = []
    if found.get("ingest"):
        judged.append(Verdict("ingest, records", found["ingest"][-1].hz, INGEST_HZ, True, "/s"))
    reduced = found.get("reduce", [])
    what = f"reduce of {REDUCED:,} records"
    of_goal = [figures for figures in reduced if figures.records == REDUCED]
    judged += [Verdict(what, figures.wall_s, REDUCE_S, False, " s") for figures in of_goal]
    if len(reduced) > 1:
        judged.append(Verdict("reduce, slope", slope(reduced[-2:]), SLOPE, False))
    return judged
