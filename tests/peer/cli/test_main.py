"""The command line: commands are found and loaded one by one, and every error is one line."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import click
import pytest

from ringmq import __version__
from ringmq.overlay.errors import OverlayError
from ringmq.peer.cli import main
from ringmq.peer.errors import ConfigError, DataFolderError, PeerError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process: its exit status, output and errors."""

    def runner(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(list(arguments))
        shown = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, shown.out, shown.err

    return runner


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | int | None], None]:
    """Adds a command `odd` that ends as it is told."""

    def adder(end: BaseException | int | None) -> None:
        @click.command()
        def odd() -> int | None:
            """Does odd things."""
            if isinstance(end, BaseException):
                raise end
            return end

        class Fake(EntryPoint):
            def load(self) -> Any:
                if isinstance(end, ImportError):
                    raise end
                return odd

        points = EntryPoints([Fake("odd", "nowhere:odd", main.ENTRY_POINTS)])
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)

    return adder


def test_commands_are_listed(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    for name in ("peer", "ring", "status"):
        assert f"\n  {name} " in out


def test_version_is_printed(run: Run) -> None:
    assert run("--version")[:2] == (0, f"ringmq {importlib.metadata.version('ringmq')}\n")
    assert __version__ == importlib.metadata.version("ringmq")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Missing command. (see ringmq --help)"),
        (("bogus",), "No such command 'bogus'. (see ringmq --help)"),
        (("peer", "--bogus"), "No such option '--bogus'. (see ringmq peer --help)"),
        (("peer", "--timing", "fast"), "--timing must be one of local, lan, wan, got 'fast'"),
        (("peer", "--delay-seed", "x"), "Invalid value for '--delay-seed': 'x' is not a valid integer"),
        (("status", "--peer", "nowhere"), "--peer must be HOST:PORT, such as 127.0.0.1:4883, got 'nowhere'"),
        (("ring", "--peers", "0"), "Invalid value for '--peers': 0 is not in the range"),
        (
            ("ring", "--delay", "fast"),
            "--delay must be a rising range such as 1-10ms, at most 10s, got 'fast'",
        ),
    ],
)
def test_wrong_usage_fails_with_one_line_and_status_2(run: Run, arguments: tuple[str, ...], says: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"ringmq: {says}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PeerError("it\nfailed"), 1),
        (DataFolderError("it failed"), 1),
        (OverlayError("it failed"), 1),
        (ConfigError("it failed"), 2),
        (click.ClickException("it failed"), 1),
    ],
)
def test_expected_error_is_one_line(
    run: Run, added: Callable[[BaseException], None], error: BaseException, status: int
) -> None:
    added(error)
    assert run("odd") == (status, "", "ringmq: it failed\n")


def test_interrupt_exits_with_130(run: Run, added: Callable[[BaseException], None]) -> None:
    added(KeyboardInterrupt())
    status, out, err = run("odd")
    assert (status, out, err.strip()) == (130, "", "")


def test_unexpected_exception_is_not_hidden(added: Callable[[BaseException], None]) -> None:
    added(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main.main(["odd"])


@pytest.mark.parametrize(("end", "status"), [(None, 0), (0, 0), (3, 3)])
def test_command_can_return_the_exit_status(run: Run, added: Callable[..., None], end: int | None, status: int) -> None:
    added(end)
    assert run("odd") == (status, "", "")


def test_unavailable_command_leaves_the_others_usable(run: Run, added: Callable[[BaseException], None]) -> None:
    added(ImportError("No module named 'pyspark'"))
    status, out, _ = run("--help")
    assert status == 0
    assert "Not available: No module named 'pyspark'" in out
    expected = (1, "", "ringmq: odd is not available: No module named 'pyspark'\n")
    assert run("odd", "--any", "thing") == run("odd") == expected


def test_only_the_invoked_command_is_imported() -> None:
    code = """if True:
        import sys
        from ringmq.peer.cli import main as command
        try:
            command.main(["status", "--help"])
        finally:
            heavy = {"kademlia", "uvloop", "structlog", "ringmq.peer.process", "ringmq.experiments"} & set(sys.modules)
            print("loaded:", sorted(heavy))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert "Usage: ringmq status" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("loaded: []"), done.stdout + done.stderr
