"""The program `ringmq` begins: a peer with its allocator, every other command at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ringmq.peer.cli.program import main
from ringmq.peer.resources.allocator import ALLOCATOR, glibc

BEGINNING = """
import os, sys
def again(*_):
    print(*sorted({"asyncio", "click", "structlog"}.intersection(sys.modules)))
    sys.exit()
os.environ.pop("PYTHONMALLOC", "")
os.execve, sys.argv = again, ["ringmq", "peer"]
from ringmq.peer.cli.program import main
main()
"""


@pytest.mark.skipif(glibc() is None, reason="not on glibc 2.33 or newer")
@pytest.mark.parametrize("command", [["config", "example"], ["peer"]])
def test_only_the_peer_command_starts_again(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def again(program: str, arguments: list[str], environment: dict[str, str]) -> None:
        raise LookupError(program)

    monkeypatch.delenv(ALLOCATOR, raising=False)
    monkeypatch.setattr("os.execve", again)
    monkeypatch.setattr("sys.argv", ["ringmq", *command])
    with pytest.raises(LookupError if command == ["peer"] else SystemExit):
        main()


@pytest.mark.skipif(glibc() is None, reason="not on glibc 2.33 or newer")
def test_nothing_large_is_imported_before_the_second_start() -> None:
    done = subprocess.run([sys.executable, "-c", BEGINNING], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
