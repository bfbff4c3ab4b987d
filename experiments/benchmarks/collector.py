"""What the collector does in a second: ingest, stream and reduce, each with what the one before has made.

Owns the processes that are measured, and their figures. Knows the collector by its command line and its folders.
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
from ringmq.experiments.benchmarks.synthetic_records import batches
from ringmq.experiments.load.raw_clients import Address, BenchError, connected
from ringmq.experiments.processes.servers import cores, pinned, running
from ringmq.logger.records import LOG_TOPICS
from ringmq.mqtt_front.codec.codec import encode_publish
from ringmq.mqtt_front.codec.packets import Version

AHEAD: Final = 30_000
"""Records that are published and not landed, at most: as many as the peer keeps for the collector."""
UNACKNOWLEDGED: Final = 100
PUBACK_BYTES: Final = 4
LOOK_S: Final = 0.05
READY_S: Final = 30.0
INGEST_HZ: Final = 50_000.0
REDUCE_S: Final = 90.0
REDUCED: Final = 10_000_000
"""Records that it may take so long for."""
SLOPE: Final = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a stage took for so many records."""

    records: int
    wall_s: float
    cpu_s: float
    memory_bytes: int
    """At its most, of all its processes together."""

    @property
    def hz(self) -> float:
        return self.records / self.wall_s

    def told(self) -> dict[str, float]:
        return {
            "records/s": self.hz,
            "wall s": self.wall_s,
            "cpu s": self.cpu_s,
            "records/cpu s": self.records / self.cpu_s,
            "memory MB": self.memory_bytes / 1e6,
        }


class Watched:
    """A command of the collector as a process, with what it and its children take of the machine."""

    def __init__(self, *arguments: str) -> None:
        self._began = time.monotonic()
        self._name = arguments[0]
        command = [sys.executable, "-P", "-m", "ringmq", "collect", *arguments]
        self.process = subprocess.Popen(  # noqa: S603  # our own command line
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._most: dict[int, int] = {}

    def look(self) -> None:
        """To be called often: memory is seen only while it is there."""
        for pid in (self.process.pid, *_children(self.process.pid)):
            self._most[pid] = max(self._most.get(pid, 0), _most_memory_bytes(pid))

    def end(self, records: int, fails: bool = False) -> Figures:
        """Wait for its end, and close what it was read by. Raises BenchError if it fails, but for one that must."""
        while (ended := os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is None:
            self.look()
            time.sleep(LOOK_S)
        wall_s = time.monotonic() - self._began
        _, _, used = os.wait4(self.process.pid, 0)
        self.process.returncode = ended.si_status
        _, errors = self.process.communicate()
        if bool(ended.si_status) is not fails:
            said = errors.decode(errors="replace").splitlines() or ["nothing"]
            raise BenchError(f"collect {self._name}: {said[-1]}")
        return Figures(records, wall_s, used.ru_utime + used.ru_stime, sum(self._most.values()))

    def kill(self) -> None:
        """If it still runs."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def watched(*arguments: str) -> Iterator[Watched]:
    """A command that does not outlive the context."""
    command = Watched(*arguments)
    try:
        yield command
    finally:
        command.kill()


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _most_memory_bytes(pid: int) -> int:
    """Of a process since its start; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def ingest(data: Path, records: int, seed: int) -> Figures:
    """Publish records at a real peer and land them, as fast as all can: the collector on one core, the rest on another.

    Time counts from the first that is published to the last that is landed. Raises BenchError.
    """
    ours, its = cores()
    with pinned(ours), running("unrecorded", ours) as peer:
        where = f"{peer.address[0]}:{peer.address[1]}"
        with watched("ingest", "--data", str(data), "--peer", where) as command:
            os.sched_setaffinity(command.process.pid, {its})
            assert command.process.stdout is not None
            if not command.process.stdout.readline().startswith(b"listening:"):
                command.end(0)
                raise BenchError("the ingest does not listen")
            began = time.monotonic()
            _publish(peer.address, data, records, seed, command.look)
            wall_s = time.monotonic() - began
            command.process.terminate()
            done = command.end(records)
    return Figures(records, wall_s, done.cpu_s, done.memory_bytes)


def _publish(address: Address, data: Path, records: int, seed: int, look: Callable[[], None]) -> None:
    """Return when all are landed."""
    client = connected(address, "bench")
    with client:
        client.settimeout(READY_S)
        published = unacknowledged = landed = answered = 0
        for place, batch in enumerate(batches(records, seed)):
            while published - landed > AHEAD:
                landed = _landed(data)
                look()
            topic = f"{LOG_TOPICS}/{batch.peer}".encode()
            packet_id = place % UNACKNOWLEDGED + 1
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
        found = client.recv(65536)
    except TimeoutError:
        raise BenchError(f"the peer acknowledged nothing for {READY_S:g} s") from None
    if not found:
        raise BenchError("the peer closed the connection")
    return found


def _landed(data: Path) -> int:
    """How many the ingest counts as landed."""
    state = msgspec.json.decode((data / STATE_FILE).read_bytes(), type=State)
    return sum(source.next - sum(end - start for start, end in source.holes) for source in state.sources)


def stream(data: Path, records: int, master: str) -> Figures:
    """All that has landed, into Parquet. Raises BenchError."""
    with watched("stream", "--data", str(data), "--once", "--master", master) as command:
        return command.end(records)


def reduce(data: Path, records: int, master: str) -> Figures:
    """All tables. Raises BenchError."""
    with watched("reduce", "--data", str(data), "--master", master) as command:
        return command.end(records)


def start_s(folder: Path, master: str) -> float:
    """How long Spark takes to find that there is nothing to do. Raises BenchError."""
    with watched("reduce", "--data", str(folder), "--master", master) as command:
        return command.end(0, fails=True).wall_s


def slope(two: Sequence[Figures], start_s: float = 0.0) -> float:
    """The exponent of the time over the records, without what it takes to start: 1 if each costs as much as before."""
    fewer, more = two
    taken = [max(figures.wall_s - start_s, 1e-3) for figures in (fewer, more)]
    return log(taken[1] / taken[0]) / log(more.records / fewer.records)


def verdicts(found: dict[str, list[Figures]]) -> list[Verdict]:
    """What is to be reached, as far as it was measured; sizes are ascending."""
    judged = []
    if found.get("ingest"):
        judged.append(Verdict("ingest, records", found["ingest"][-1].hz, INGEST_HZ, True, "/s"))
    reduced = found.get("reduce", [])
    what = f"reduce of {REDUCED:,} records"
    judged += [Verdict(what, one.wall_s, REDUCE_S, False, " s") for one in reduced if one.records == REDUCED]
    if len(reduced) > 1:
        judged.append(Verdict("reduce, slope", slope(reduced[-2:]), SLOPE, False))
    return judged
