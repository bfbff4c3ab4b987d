"""The time in which this process waited for a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringmq.peer.resources import processor
from ringmq.peer.resources.processor import STATISTICS, waited_s

BUSY = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"


@pytest.mark.skipif(not STATISTICS.exists(), reason="not a Linux with statistics of its scheduler")
def test_time_beside_a_busy_process_is_counted() -> None:
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    with subprocess.Popen([sys.executable, "-c", BUSY % core]) as other:
        try:
            os.sched_setaffinity(0, {core})
            before, deadline = waited_s(), time.monotonic() + 20
            while waited_s() < before + 0.05:
                assert time.monotonic() < deadline
        finally:
            os.sched_setaffinity(0, allowed)
            other.kill()


@pytest.mark.parametrize("content", [None, "", "12", "1 x 3"])
def test_without_statistics_nothing_is_counted(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "schedstat"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(processor, "STATISTICS", file)
    assert waited_s() == 0.0
