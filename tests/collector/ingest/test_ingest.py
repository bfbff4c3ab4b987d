"""When batches are landed and acknowledged, and when an ingest ends, with listeners that record their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import pytest

from ringmq.collector.cli.addresses import Address
from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest import ingest as module
from ringmq.collector.ingest.ingest import ROLL_MESSAGES, ROLL_S, Ingest, IngestProgress, StopCondition
from ringmq.collector.ingest.intake import Batch
from ringmq.collector.ingest.spool import Spool
from ringmq.collector.ingest.subscriber import Arrival, Inbox, Listener, Notice, Subscribed
from tests.collector.ingest_bench import TOPIC, dead, landed, lines, names


class FakeReporter:
    """Records the reports of an ingest."""

    def __init__(self) -> None:
        self.reported: list[IngestProgress] = []
        self.incidents: list[str] = []

    def progress(self, progress: IngestProgress) -> None:
        self.reported.append(progress)

    def listening(self, address: Address) -> None:
        self.incidents.append(f"listening {address}")

    def notice(self, text: str) -> None:
        self.incidents.append(text)


class FakeListener:
    """A listener whose reactions to start, unsubscribe and acknowledge are set by the test."""

    def __init__(self, data: Path) -> None:
        self.subscribed = self.was_subscribed = True
        self.dropped = 0
        self.acknowledged: list[int] = []
        self.landed_before: list[int] = []
        """The number of landed records at each acknowledgement."""
        self.session_kept: bool | None = None
        self.on_start: Callable[[], None] = lambda: None
        self.on_unsubscribe: Callable[[], None] = lambda: None
        self.on_acknowledge: Callable[[], None] = lambda: None
        self._data = data

    def start(self) -> None:
        self.on_start()

    def acknowledge(self, connection: int, packet_ids: Iterable[int]) -> None:
        assert connection == 1
        self.acknowledged += packet_ids
        self.landed_before.append(len(landed(self._data)))
        self.on_acknowledge()

    def unsubscribe(self) -> None:
        self.on_unsubscribe()

    def stop(self, *, keep_session: bool) -> None:
        self.session_kept = keep_session


class Stage:
    """An ingest with fake listeners, and a clock that advances by a step whenever the inbox is empty."""

    def __init__(self, data: Path, listeners: int = 1) -> None:
        self.data = data
        self.now = 1000.0
        self.inbox: Inbox = SimpleQueue()
        self.spool = Spool(data)
        self.reporter = FakeReporter()
        self.listeners = [FakeListener(data) for _ in range(listeners)]
        self.listener = self.listeners[0]
        self.ingest = Ingest(self.spool, cast("list[Listener]", self.listeners), self.inbox, self.reporter, self._clock)
        self._sent = 0

    def _clock(self) -> float:
        if self.inbox.empty():
            self.now += 0.05
        return self.now

    def send(self, payload: bytes, by: int = 0, qos: int = 1) -> None:
        self._sent += 1
        listener = cast("Listener", self.listeners[by])
        self.inbox.put(Arrival(listener, 1, self._sent if qos else 0, TOPIC, payload))

    def send_records(self, *numbers: int) -> None:
        for number in numbers:
            self.send(lines([number]))

    @property
    def numbers(self) -> list[int]:
        return [number for *_, number in names(landed(self.data))]

    @property
    def files(self) -> int:
        return len(list((self.data / "landing").iterdir()))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_messages_are_acknowledged_after_landing(stage: Stage) -> None:
    stage.send_records(0, 1, 2)
    stage.ingest.run(StopCondition(seconds=3 * ROLL_S))
    assert stage.numbers == [0, 1, 2]
    assert stage.listener.acknowledged == [1, 2, 3]
    assert stage.listener.landed_before == [3]
    assert stage.files == 1


def test_file_is_landed_after_its_time(stage: Stage) -> None:
    stage.send_records(0, 1)
    times: list[float] = []

    def note() -> None:
        times.append(stage.now)
        if len(times) < 3:
            stage.send_records(len(times) + 1)

    stage.listener.on_acknowledge = note
    stage.ingest.run(StopCondition(seconds=5 * ROLL_S))
    assert stage.numbers == [0, 1, 2, 3]
    assert stage.files == 3
    assert all(
        ROLL_S <= later - earlier <= 1.5 * ROLL_S for earlier, later in zip([1000.0, *times], times, strict=False)
    )


def test_further_messages_do_not_delay_landing(stage: Stage) -> None:
    stage.reporter.progress = lambda progress: stage.send_records(progress.records)  # type: ignore[method-assign]
    stage.listener.on_acknowledge = stage.ingest.end
    stage.ingest.run(StopCondition(seconds=5 * ROLL_S))
    assert 3 < len(stage.listener.acknowledged) < ROLL_MESSAGES
    assert stage.now < 1000 + 2 * ROLL_S


def test_file_is_landed_before_a_peer_must_wait(stage: Stage) -> None:
    stage.send_records(*range(ROLL_MESSAGES))
    stage.listener.on_acknowledge = stage.ingest.end
    stage.ingest.run(StopCondition())
    assert stage.listener.landed_before == [ROLL_MESSAGES]
    assert stage.now < 1000 + ROLL_S


def test_messages_in_the_inbox_are_landed_together(stage: Stage) -> None:
    stage.send_records(*range(3 * ROLL_MESSAGES))
    stage.listener.on_acknowledge = stage.ingest.end
    stage.ingest.run(StopCondition())
    assert stage.listener.landed_before == [3 * ROLL_MESSAGES]
    assert stage.now < 1000 + ROLL_S


def test_each_peer_has_its_own_message_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, listeners=3)
    for number in range(3 * ROLL_MESSAGES):
        stage.send(lines([number // 3]), by=number % 3)
    stage.ingest.run(StopCondition(seconds=3 * ROLL_S))
    assert stage.numbers == list(range(ROLL_MESSAGES))
    assert [len(listener.acknowledged) for listener in stage.listeners] == [ROLL_MESSAGES] * 3
    assert stage.files == 1
    assert stage.ingest.progress.repeated == 2 * ROLL_MESSAGES


def test_file_is_landed_at_its_size_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROLL_BYTES", 100_000)
    for first in range(0, 500, 50):
        stage.send(lines(range(first, first + 50)))
    stage.ingest.run(StopCondition(seconds=3 * ROLL_S))
    sizes = [file.stat().st_size for file in sorted((stage.data / "landing").iterdir())]
    assert len(sizes) == 2
    assert 100_000 <= sizes[0] < 100_000 + 2 * len(lines(range(50)))
    assert stage.numbers == list(range(500))


def test_repeated_records_are_acknowledged_without_a_file(stage: Stage) -> None:
    stage.send_records(0)
    stage.listener.on_acknowledge = lambda: stage.send_records(0) if len(stage.listener.acknowledged) == 1 else None
    stage.ingest.run(StopCondition(seconds=4 * ROLL_S))
    assert stage.listener.acknowledged == [1, 2]
    assert (stage.numbers, stage.files) == ([0], 1)


def test_message_with_qos_0_is_landed(stage: Stage) -> None:
    stage.send(lines([0]), qos=0)
    stage.ingest.run(StopCondition(seconds=3 * ROLL_S))
    assert (stage.numbers, stage.listener.acknowledged) == ([0], [])


def test_idle_time_ends_the_run(stage: Stage) -> None:
    stage.send_records(0)
    sent = 0

    def note() -> None:
        nonlocal sent
        sent += 1
        if sent <= 5:
            stage.send_records(sent)

    stage.listener.on_acknowledge = note
    stage.ingest.run(StopCondition(idle_s=2 * ROLL_S))
    assert stage.numbers == list(range(6))
    assert stage.now > 1000 + 8 * ROLL_S
    assert stage.listener.session_kept is False


def test_time_without_a_subscription_is_not_idle(stage: Stage) -> None:
    stage.listener.subscribed = False
    with_peer_at = 1000 + 20.0

    class Late(FakeReporter):
        def progress(self, progress: IngestProgress) -> None:
            stage.listener.subscribed = stage.now >= with_peer_at

    stage.ingest._reporter = Late()
    stage.ingest.run(StopCondition(idle_s=2.0))
    assert with_peer_at + 2 <= stage.now < with_peer_at + 4


def test_end_by_time_drains_the_queue_of_the_peer(stage: Stage) -> None:
    def unsubscribe() -> None:
        stage.listener.on_acknowledge = more
        stage.send_records(0)

    def more() -> None:
        done = len(stage.listener.acknowledged)
        if done < 20:
            stage.send_records(done)

    stage.listener.on_unsubscribe = unsubscribe
    stage.ingest.run(StopCondition(seconds=1.0))
    assert stage.numbers == list(range(20))
    assert stage.listener.session_kept is False


def test_draining_is_bounded_and_keeps_the_session(stage: Stage) -> None:
    stage.listener.on_unsubscribe = lambda: stage.send_records(0)
    stage.listener.on_acknowledge = lambda: stage.send_records(len(stage.listener.acknowledged))
    stage.ingest.run(StopCondition(seconds=1.0))
    assert stage.now < 1000 + 1 + module.DRAIN_S + 1
    assert stage.numbers == list(range(len(stage.numbers)))
    assert stage.listener.session_kept, "the peer has more messages"


def test_end_by_signal_lands_and_keeps_the_session(stage: Stage) -> None:
    left: list[int] = []
    stage.listener.on_unsubscribe = lambda: left.append(1)
    stage.send_records(0, 1)
    stage.reporter.progress = lambda progress: stage.ingest.end()  # type: ignore[method-assign]
    stage.ingest.run(StopCondition(seconds=100))
    assert (stage.numbers, stage.listener.acknowledged) == ([0], [1])
    assert (stage.listener.session_kept, left) == (True, [])


def test_progress_counts_all_kinds_of_lines(stage: Stage) -> None:
    stage.send(lines([4, 5, 8, 5]) + b"\nbad")
    stage.listener.dropped = 7
    stage.ingest.run(StopCondition(seconds=3 * ROLL_S))
    last = IngestProgress(records=3, dead=1, repeated=1, missing=2, earlier=4, files=1, dropped=7)
    assert stage.reporter.reported[-1] == stage.ingest.progress == last
    assert len(stage.reporter.reported) > 10
    assert len(dead(stage.data)) == 1


def test_notices_are_reported(stage: Stage) -> None:
    stage.inbox.put(Subscribed(Address("a", 1)))
    stage.inbox.put(Notice("a peer is away"))
    stage.ingest.run(StopCondition(seconds=1.0))
    assert stage.reporter.incidents == ["listening a:1", "a peer is away"]


def test_final_notice_lands_and_raises(stage: Stage) -> None:
    stage.send_records(0)
    stage.inbox.put(Notice("wrong password", final=True))
    with pytest.raises(CollectorError, match=r"^wrong password$"):
        stage.ingest.run(StopCondition())
    assert (stage.numbers, stage.listener.acknowledged, stage.listener.session_kept) == ([0], [1], True)


def test_run_without_any_subscription_raises(stage: Stage) -> None:
    stage.listener.was_subscribed = False
    with pytest.raises(CollectorError, match=r"^cannot listen to any peer$"):
        stage.ingest.run(StopCondition(seconds=1.0))


@pytest.mark.parametrize("until", [StopCondition(), StopCondition(seconds=ROLL_S / 2)])
def test_failed_landing_acknowledges_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, until: StopCondition
) -> None:
    def full(batch: Batch) -> Any:
        raise CollectorError("data: full")

    stage.send_records(0, 1)
    monkeypatch.setattr(stage.spool, "land", full)
    with pytest.raises(CollectorError, match="full"):
        stage.ingest.run(until)
    assert (stage.listener.acknowledged, stage.listener.session_kept) == ([], True)
