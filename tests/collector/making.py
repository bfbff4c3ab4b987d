"""Records for tests, as lines of a landing folder and as rows of the Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession

from ringmq.collector.jobs.schema import STORED
from ringmq.collector.jobs.tables.facts import LETTER, Facts
from ringmq.logger.records import Delivery, Latencies, Record, Sample, Traffic, encode

PEERS = [f"{number:032x}" for number in range(16)]
AT = 1_700_000_000.0

_numbers = count()


def sample(peer: int = 0, **members: Any) -> Sample:
    """A sample; members that are not given are zero or empty."""
    values: dict[str, Any] = {
        "run": "r",
        "peer": PEERS[peer],
        "boot": 1,
        "number": next(_numbers),
        "at": AT,
        "uptime_s": 1.0,
        "address": f"10.0.0.{peer}:4883",
        "listeners": {"mqtt": f"10.0.0.{peer}:{1883 + peer}"},
        "pid": 100 + peer,
        "dispatching": "direct",
        "fanout": 0,
        "cpu_s": 0.0,
        "mqtt": Traffic(),
        "overlay": Traffic(),
        "log": Traffic(),
        "links": [],
    }
    zeros = ("memory_bytes", "clients", "subscriptions", "topics", "coordinated", "copied", "filters", "publishing")
    values |= dict.fromkeys((*zeros, "waiting_bytes", "unacknowledged"), 0)
    return Sample(**values | members)


def delivery(peer: int = 0, origin: int = 0, latency_ns: int = 0, **members: Any) -> Delivery:
    """A delivery to one client."""
    sent_ns = members.get("sent_ns", int(AT * 1e9))
    values: dict[str, Any] = {
        "run": "r",
        "peer": PEERS[peer],
        "boot": 1,
        "number": next(_numbers),
        "at": AT,
        "origin": PEERS[origin],
        "origin_boot": 1,
        "sequence": 0,
        "topic": "a/b",
        "dispatching": "direct",
        "sender": PEERS[origin],
        "sent_ns": sent_ns,
        "received_ns": sent_ns + latency_ns,
        "hops": 0,
        "bytes": 32,
        "clients": 1,
        "sends": 0,
    }
    return Delivery(**values | members)


def latencies(peer: int = 0, **members: Any) -> Latencies:
    """A histogram of one interval."""
    values: dict[str, Any] = {
        "run": "r",
        "peer": PEERS[peer],
        "boot": 1,
        "number": next(_numbers),
        "at": AT,
        "interval_s": 1.0,
        "topic": "a/b",
        "dispatching": "direct",
        "hops": 1,
        "count": 0,
        "sum_s": 0.0,
        "min_s": 0.0,
        "max_s": 0.0,
        "bytes": 0,
        "buckets": {},
    }
    return Latencies(**values | members)


def line(record: Record, landed: float | None = None) -> str:
    """The line of a record in a landing folder."""
    text = encode(record).decode()
    return text if landed is None else f'{text[:-1]},"landed":{landed}}}'


def land(data: Path, name: str, lines: Iterable[str | bytes]) -> None:
    """Write a file to the landing folder, where it appears complete."""
    folder = data / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    raw = b"".join([(line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines])
    (data / f"{name}.part").write_bytes(raw)
    (data / f"{name}.part").rename(folder / f"{name}.jsonl")


def stored(spark: SparkSession, records: Sequence[Record], landed: Mapping[int, float] | None = None) -> DataFrame:
    """Rows of the Parquet; `landed` is given by the index of the record, and is its `at` by default."""
    rows = []
    for index, record in enumerate(records):
        found = msgspec.to_builtins(record)
        found["landed"] = (landed or {}).get(index, record.at)
        found["hour"] = datetime.fromtimestamp(record.at, UTC).strftime("%Y-%m-%dT%H")
        rows.append(tuple([found.get(name) for name in STORED.names]))
    return spark.createDataFrame(rows, STORED)


def facts(spark: SparkSession, records: Sequence[Record], landed: Mapping[int, float] | None = None) -> Facts:
    """The facts of a data folder into which these records were streamed."""
    return Facts(stored(spark, records, landed), spark.createDataFrame([], LETTER))


def rows(table: DataFrame) -> list[dict[str, Any]]:
    """All rows, without their null values."""
    return [{name: value for name, value in row.asDict().items() if value is not None} for row in table.collect()]


def read_json(folder: Path) -> list[dict[str, Any]]:
    """The rows of a reduced table."""
    return [json.loads(line) for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines()]
