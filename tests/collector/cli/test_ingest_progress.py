"""Reports of the progress on a terminal and on other streams."""

from __future__ import annotations

import io

import pytest

from ringmq.collector.cli.addresses import Address
from ringmq.collector.cli.ingest_progress import QUIET_S, REWRITE, StreamReporter, summary
from ringmq.collector.ingest.ingest import IngestProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Reported:
    """A reporter, its stream and its clock."""

    def __init__(self, stream: io.StringIO) -> None:
        self.now = 50.0
        self.stream = stream
        self.out = io.StringIO()
        self.reporter = StreamReporter(stream, self.out, lambda: self.now)

    def progress_after(self, passed_s: float, progress: IngestProgress) -> str:
        """The text that it writes when the progress is reported after this time."""
        self.now += passed_s
        return self.written_by(lambda: self.reporter.progress(progress))

    def written_by(self, call: object) -> str:
        before = len(self.stream.getvalue())
        assert callable(call)
        call()
        return self.stream.getvalue()[before:]


def test_terminal_line_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    reported = Reported(Terminal())
    first = reported.progress_after(0.2, IngestProgress(records=1000, files=1))
    assert first == f"{REWRITE}1,000 records in 1 files, 0 dead letters, 0 missing, 5,000 records/s"
    assert reported.progress_after(0.5, IngestProgress(records=2000, files=2)).endswith(" 2,000 records/s")
    assert reported.progress_after(0.5, IngestProgress(records=2000, files=2)).endswith(" 0 records/s")
    assert reported.written_by(lambda: reported.reporter.notice("gone")) == f"{REWRITE}ringmq: gone\n"
    assert reported.written_by(reported.reporter.close) == REWRITE
    assert reported.progress_after(0, IngestProgress(records=3000)) == "", "no time has passed, so there is no rate"


def test_line_is_cut_to_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    reported = Reported(Terminal())
    assert reported.progress_after(0.2, IngestProgress(records=1000)) == f"{REWRITE}1,000 records in 0 files, 0 d"


@pytest.mark.parametrize(("stream", "cleared"), [(Terminal(), REWRITE), (io.StringIO(), "")])
def test_listening_is_printed_for_programs(stream: io.StringIO, cleared: str) -> None:
    reported = Reported(stream)
    assert reported.written_by(lambda: reported.reporter.listening(Address("::1", 1883))) == cleared
    assert reported.out.getvalue() == "listening: [::1]:1883\n"


def test_other_streams_get_a_line_per_interval() -> None:
    reported = Reported(io.StringIO())
    assert reported.progress_after(QUIET_S / 2, IngestProgress(records=1)) == ""
    line = reported.progress_after(QUIET_S / 2, IngestProgress(records=50))
    assert line == "50 records in 0 files, 0 dead letters, 0 missing, 5 records/s\n"
    assert reported.progress_after(QUIET_S * 2, IngestProgress(records=50)) == "", "the progress has not changed"
    assert reported.written_by(lambda: reported.reporter.notice("gone")) == "ringmq: gone\n"
    assert reported.written_by(reported.reporter.close) == ""


@pytest.mark.parametrize(
    ("progress", "more"),
    [
        (IngestProgress(), ""),
        (IngestProgress(earlier=1000), ", 1,000 from before the ingest began"),
        (IngestProgress(repeated=2), ", 2 repeated"),
        (IngestProgress(dropped=3), ", 3 messages with QoS 0 dropped"),
    ],
)
def test_rare_counts_are_omitted_while_zero(progress: IngestProgress, more: str) -> None:
    assert summary(progress) == f"0 records in 0 files, 0 dead letters, 0 missing{more}"
