"""The recorder: numbers, times, and what stands in the saved history."""

from __future__ import annotations

import json
from pathlib import Path

from ringmq.experiments.chaos import promises
from ringmq.experiments.chaos.history import FaultKind, MessageKind
from ringmq.experiments.chaos.recorder import Recorder
from ringmq.mqtt_front.client.events import Arrived


class Hand:
    """A clock that the test sets."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_everything_is_noted_with_its_time_since_the_start(tmp_path: Path) -> None:
    clock = Hand()
    recorder = Recorder(clock)
    clock.now = 51.5
    sent = recorder.sent("p", 0, ("a", 1, False), MessageKind.STREAM)
    assert (sent.number, sent.at) == (1, 1.5)
    assert recorder.next_number() == 2
    assert recorder.sent("p", 0, ("w", 2, False), MessageKind.WILL, 2).number == 2
    assert recorder.got("s", Arrived("a", b"1 ...", 1)) == 1
    assert recorder.got("s", Arrived("a", b"", 1)) == 0
    recorder.asked("s", 1, "a", 1, kept=True)
    recorder.attached("s", 1, kept=True, present=False, returning=False)
    recorder.injected(FaultKind.DOWN, (1,), text="kill -9 of 1")
    recorder.incident(promises.WHOLE, "not whole")
    recorder.retained(1, "r", 5)
    file = tmp_path / "history"
    recorder.history.save(file)
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [next(iter(line)) for line in lines] == [
        *("fault", "incident", "attachment", "entry", "message", "message", "delivery", "delivery", "retained"),
    ]
    assert lines[4]["message"]["at"] == 1.5
