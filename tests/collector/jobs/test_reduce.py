"""All tables of a data folder: random records compared with plain Python, and folders with few or no records."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType
from pyspark.testing import assertDataFrameEqual

from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs import reduce as reducing
from ringmq.collector.jobs.reduce import reduce, tables
from ringmq.collector.jobs.schema import STORED
from ringmq.collector.jobs.stream import StreamSettings, run
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.jobs.tables.facts import LETTER, Facts
from ringmq.collector.jobs.validation import MAX_SECONDS
from ringmq.collector.report.read_tables import read_local
from ringmq.logger.records import Delivery, Latencies, Record, Sample, Traffic
from tests.collector.making import AT, PEERS, delivery, facts, land, latencies, line, rows, sample, stored

small = st.integers(0, 1000)
seconds = st.integers(0, 1000).map(lambda number: number / 8)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Peer, start and number of the records of one run, in order."""
    sources = []
    for peer in draw(st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True)):
        for boot in draw(st.lists(st.integers(0, 1000), min_size=1, max_size=3, unique=True)):
            numbers = sorted(draw(st.sets(st.integers(0, 30), min_size=1, max_size=8)))
            sources += [{"peer": peer, "boot": boot, "number": number} for number in numbers]
    return sources


@st.composite
def runs(draw: st.DrawFn) -> list[Record]:
    """The records of one run."""
    records: list[Record] = []
    for source in draw(histories()):
        match draw(st.integers(0, 2)):
            case 0:
                counters = [Traffic(**{name: draw(small) for name in Traffic.__struct_fields__}) for _ in range(2)]
                gauges = {name: draw(small) for name in ("memory_bytes", "subscriptions", "topics")}
                records.append(
                    sample(**source, **gauges, uptime_s=draw(seconds), mqtt=counters[0], overlay=counters[1])
                )
            case 1:
                flags = {"clients": draw(st.integers(0, 2)), "duplicate": draw(st.booleans())}
                times = {"latency_ns": draw(st.integers(-(10**9), 10**9)), "hops": draw(st.integers(0, 3))}
                records.append(delivery(**source, **flags, **times))
            case 2:
                values = {"count": draw(small), "sum_s": draw(seconds), "hops": draw(st.integers(0, 3))}
                records.append(latencies(**source, **values))
    return records


def by_hand(records: list[Record]) -> dict[str, dict[str, Any]]:
    """The expected row of each peer, computed in plain Python."""
    found = {}
    for peer in {record.peer for record in records}:
        own = [record for record in records if record.peer == peer]
        samples = [record for record in own if isinstance(record, Sample)]
        boots = {
            boot: [record for record in samples if record.boot == boot] for boot in {record.boot for record in samples}
        }
        last = [max(of_boot, key=lambda record: record.number) for of_boot in boots.values()]
        first = [min(of_boot, key=lambda record: record.number) for of_boot in boots.values()]
        measured = [
            (1, (record.received_ns - record.sent_ns) / 1e9)
            for record in own
            if isinstance(record, Delivery) and record.clients and not record.duplicate
        ]
        measured += [(record.count, record.sum_s) for record in own if isinstance(record, Latencies)]
        count = sum(number for number, _ in measured)
        row: dict[str, Any] = {"measured": count}
        if count:
            row["avg_latency"] = sum(total for _, total in measured) / count
        if samples:
            row["tot_msg"] = sum(record.mqtt.messages_out for record in last)
            row["in_bytes"] = sum(record.mqtt.bytes_in + record.overlay.bytes_in for record in last)
            row["dropped"] = sum(record.mqtt.dropped + record.overlay.dropped for record in last)
            row["run_time"] = sum(record.uptime_s for record in last)
            row["tot_sub"] = max(record.subscriptions for record in samples)
            row["starts"] = len(boots)
            span_s = row["run_time"] - sum(record.uptime_s for record in first)
            if span_s:
                row["msg_rate"] = (row["tot_msg"] - sum(record.mqtt.messages_out for record in first)) / span_s
        found[peer] = row
    return found


def missing(records: list[Record]) -> int:
    numbers: dict[tuple[str, int], set[int]] = {}
    for record in records:
        numbers.setdefault((record.peer, record.boot), set()).add(record.number)
    return sum(max(seen) - min(seen) + 1 - len(seen) for seen in numbers.values())


@pytest.mark.timeout(400)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(many=st.lists(runs(), min_size=15, max_size=15))
def test_random_records_agree_with_plain_python(spark: SparkSession, many: list[list[Record]]) -> None:
    """Each job takes a second, so that many runs, which all tables separate, go through it together."""
    records = [record for number, run_records in enumerate(many) for record in _renamed(run_records, f"run-{number}")]
    with tables(facts(spark, records)) as all_tables:
        peers = rows(all_tables["per_peer"])
        by_run = {row["run"]: row for row in rows(all_tables["runs"])}
    for number, run_records in enumerate(many):
        own = {row["peer"]: row for row in peers if row["run"] == f"run-{number}" and row["row"] == "peer"}
        expected = by_hand(run_records)
        assert own.keys() == expected.keys()
        for peer, row in expected.items():
            assert {name: own[peer].get(name) for name in row} == pytest.approx(row), (run_records, peer)
        total = next(row for row in peers if row["run"] == f"run-{number}" and row["row"] == "total")
        for name in ("tot_msg", "in_bytes", "dropped", "tot_sub", "starts"):
            assert total.get(name, 0) == sum(row.get(name, 0) for row in expected.values())
        assert by_run[f"run-{number}"]["missing"] == missing(run_records)


def _renamed(records: list[Record], name: str) -> list[Record]:
    for record in records:
        record.run = name
    return records


def test_folder_is_streamed_and_reduced_twice(spark: SparkSession, tmp_path: Path) -> None:
    """The second time with more records."""
    records: list[Record] = [
        sample(peer, uptime_s=up, mqtt=Traffic(messages_out=int(10 * up)), number=int(up))
        for peer in (0, 1)
        for up in (1.0, 2.0)
    ]
    records += [delivery(peer, sequence=1, hops=peer, latency_ns=peer * 10**6) for peer in (0, 1)]
    land(tmp_path, "1", [*map(line, records), "garbage"])
    reported: list[str] = []
    for expected, steps in ((40, 2), (45, 3)):
        run(spark, str(tmp_path), StreamSettings(once=True), lambda _: None)
        reduce(spark, str(tmp_path), reported.append)
        found = read_local(tmp_path, HEADS)
        assert {name: len(table) for name, table in found.items()} == {
            "runs": 1, "per_peer": 4, "boxes": 2, "rates": steps, "stress": 1, "latencies": 4, "dead": 1,
        }  # fmt: skip
        assert [row["row"] for row in found["per_peer"]] == ["peer", "peer", "total", "average"]
        assert found["per_peer"][2]["tot_msg"] == expected
        land(tmp_path, "2", [line(sample(1, uptime_s=3.0, mqtt=Traffic(messages_out=25), number=9))])
    assert reported == [*HEADS, *HEADS]
    assert not (tmp_path / "reduced.new").exists()


def test_extreme_records_give_finite_numbers(spark: SparkSession) -> None:
    """Times at the limits of the schema, close together and far apart, and the largest counters."""
    most = (1 << 63) - 1
    counters = Traffic(bytes_in=most, bytes_out=most, messages_in=most, messages_out=most)
    times = [[0.0, 5e-324], [5e-324, 1e-300, MAX_SECONDS], [MAX_SECONDS, MAX_SECONDS], [1.0, 0.0]]
    samples = [
        sample(peer, uptime_s=up, cpu_s=up * index, mqtt=counters if index else Traffic(), number=index)
        for peer, ups in enumerate(times)
        for index, up in enumerate(ups)
    ]
    ends = {"count": most, "sum_s": MAX_SECONDS, "min_s": -MAX_SECONDS, "max_s": MAX_SECONDS, "buckets": {"3": most}}
    records = [*samples, *[latencies(peer, **ends) for peer in (0, 0, 1)], delivery(received_ns=0, sent_ns=most)]
    with tables(facts(spark, records, dict.fromkeys(range(len(samples)), 0.0))) as all_tables:
        found = {name: rows(table) for name, table in all_tables.items()}
    numbers = [value for table in found.values() for row in table for value in _numbers_in(row)]
    assert [number for number in numbers if not isfinite(number)] == []
    assert found["rates"]
    assert [row.get("cpu_share") for row in found["per_peer"] if row["row"] == "peer"] == [None, 2.0, None, -0.0]


def _numbers_in(row: dict[str, Any]) -> list[float]:
    values = [value for cell in row.values() for value in (cell if isinstance(cell, list) else [cell])]
    return [value for value in values if isinstance(value, float | int)]


@pytest.mark.parametrize("kind", ["sample", "dead"])
def test_tables_without_rows_are_written(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    if kind == "sample":
        found = stored(spark, [sample()])
    else:
        found = spark.createDataFrame([tuple([{"kind": "dead"}.get(name) for name in STORED.names])], STORED)
    found.write.parquet(f"{tmp_path}/parquet")
    reduce(spark, str(tmp_path), lambda _: None)
    lengths = {name: len(table) for name, table in read_local(tmp_path, HEADS).items()}
    filled = {"runs": 1, "per_peer": 3} if kind == "sample" else {"dead": 1}
    assert lengths == {**dict.fromkeys(HEADS, 0), **filled}


def test_reduce_without_records_keeps_the_tables(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "reduced" / "runs").mkdir(parents=True)
    with pytest.raises(CollectorError, match="there are no records"):
        reduce(spark, str(tmp_path), lambda _: None)
    assert (tmp_path / "reduced" / "runs").is_dir()


def test_failed_reduce_keeps_the_tables(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(spark, [sample(peer) for peer in range(len(PEERS))]).write.parquet(f"{tmp_path}/parquet")
    (tmp_path / "reduced" / "runs").mkdir(parents=True)

    def report(name: str) -> None:
        if name == "boxes":
            raise KeyError(name)

    with pytest.raises(KeyError):
        reducing.reduce(spark, str(tmp_path), report)
    assert [folder.name for folder in (tmp_path / "reduced").iterdir()] == ["runs"]
    reducing.reduce(spark, str(tmp_path), lambda _: None)
    assert len(read_local(tmp_path, HEADS)) == len(HEADS)


KNOWN: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "runs": ("run, peers, starts, lasted, samples, deliveries, latencies, missing", [("r", 2, 2, 3.0, 4, 2, 0, 0.0)]),
    "per_peer": ("row, tot_msg, msg_rate", [("peer", 30, 10.0), ("peer", 40, 20.0)]),
    "boxes": ("measure, unit, peers, minimum, median, maximum", [("latency", "s", 2, 0.0, 0.001, 0.002)]),
    "rates": ("time, delivered, delivery_rate", [(0, 10, 10), (1, 40, 30), (2, 70, 30)]),
    "stress": ("messages, peers, links, busiest_peer, depth_max", [(1, 2, 1, 1.0, 1)]),
    "latencies": ("count, mean, minimum, maximum, negative", [(2, 0.001, 0.0, 0.002, 0)]),
    "dead": ("`by`, reason, lines", [("ingest", "not JSON", 2)]),
}
"""Some columns of each table, and their expected values."""
PART: dict[str, str] = {"per_peer": "row = 'peer'", "boxes": "measure = 'latency'", "latencies": "`by` = 'all'"}
"""The rows that are compared, if not all."""


def test_known_records_give_known_tables(spark: SparkSession) -> None:
    """Peer 0 delivered a message to its own client, and peer 1 to its client two milliseconds later."""
    records: list[Record] = [
        sample(peer, at=AT + up, uptime_s=up, number=index, mqtt=Traffic(messages_out=messages))
        for peer, counted in enumerate([(10, 30), (0, 40)])
        for index, (up, messages) in enumerate(zip((1.0, 3.0), counted, strict=True))
    ]
    records += [
        delivery(0, sequence=1, sends=1, number=2),
        delivery(1, sequence=1, hops=1, latency_ns=2_000_000, number=2),
    ]
    landed = {index: AT + record.uptime_s for index, record in enumerate(records) if isinstance(record, Sample)}
    letters = spark.createDataFrame([("not JSON",), ("not JSON",)], LETTER)
    with tables(Facts(stored(spark, records, landed), letters)) as all_tables:
        assert all_tables.keys() == KNOWN.keys()
        for name, (columns, expected) in KNOWN.items():
            found = all_tables[name].where(PART.get(name, "true")).selectExpr(*columns.split(", "))
            real = [isinstance(field.dataType, DoubleType) for field in found.schema]
            typed = [
                tuple(float(value) if is_real else value for is_real, value in zip(real, row, strict=True))
                for row in expected
            ]
            assertDataFrameEqual(found, spark.createDataFrame(typed, found.schema))
