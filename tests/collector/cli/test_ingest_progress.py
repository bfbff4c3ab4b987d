"""How an ingest tells how it goes, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest

from ringmq.collector.cli.addresses import Address
from ringmq.collector.cli.ingest_progress import QUIET_S, REWRITE, Teller, summary
from ringmq.collector.ingest.ingest import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Told:
    """A teller, its stream and its clock."""

    def __init__(self, stream: io.StringIO) -> None:
        self.now = 50.0
        self.stream = stream
        self.out = io.StringIO()
        self.teller = Teller(stream, self.out, lambda: self.now)

    def after(self, passed_s: float, progress: Progress) -> str:
        """What it says then."""
        self.now += passed_s
        return self.of(lambda: self.teller.progress(progress))

    def of(self, call: object) -> str:
        before = len(self.stream.getvalue())
        assert callable(call)
        call()
        return self.stream.getvalue()[before:]


def test_on_a_terminal_one_line_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    told = Told(Terminal())
    first = told.after(0.2, Progress(records=1000, files=1))
    assert first == f"{REWRITE}1,000 records in 1 files, 0 dead letters, 0 missing, 5,000 records/s"
    assert told.after(0.5, Progress(records=2000, files=2)).endswith(" 2,000 records/s")
    assert told.after(0.5, Progress(records=2000, files=2)).endswith(" 0 records/s")
    assert told.of(lambda: told.teller.notice("gone")) == f"{REWRITE}ringmq: gone\n"
    assert told.of(told.teller.close) == REWRITE
    assert told.after(0, Progress(records=3000)) == "", "no time has passed: there is no rate"


def test_the_line_is_never_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    told = Told(Terminal())
    assert told.after(0.2, Progress(records=1000)) == f"{REWRITE}1,000 records in 0 files, 0 d"


@pytest.mark.parametrize(("stream", "cleared"), [(Terminal(), REWRITE), (io.StringIO(), "")])
def test_programs_learn_when_it_listens(stream: io.StringIO, cleared: str) -> None:
    told = Told(stream)
    assert told.of(lambda: told.teller.listening(Address("::1", 1883))) == cleared
    assert told.out.getvalue() == "listening: [::1]:1883\n"


def test_elsewhere_it_says_a_line_now_and_then() -> None:
    told = Told(io.StringIO())
    assert told.after(QUIET_S / 2, Progress(records=1)) == ""
    line = told.after(QUIET_S / 2, Progress(records=50))
    assert line == "50 records in 0 files, 0 dead letters, 0 missing, 5 records/s\n"
    assert told.after(QUIET_S * 2, Progress(records=50)) == "", "nothing new"
    assert told.of(lambda: told.teller.notice("gone")) == "ringmq: gone\n"
    assert told.of(told.teller.close) == ""


@pytest.mark.parametrize(
    ("progress", "more"),
    [
        (Progress(), ""),
        (Progress(earlier=1000), ", 1,000 from before it listened"),
        (Progress(repeated=2), ", 2 repeated"),
        (Progress(dropped=3), ", 3 messages of QoS 0 dropped"),
    ],
)
def test_what_is_zero_is_left_out_if_it_seldom_is_not(progress: Progress, more: str) -> None:
    assert summary(progress) == f"0 records in 0 files, 0 dead letters, 0 missing{more}"
