"""The limit of open files, and how often garbage is looked for."""

from __future__ import annotations

import errno
import gc
import resource

import pytest
from structlog.testing import capture_logs

from ringmq.peer.resources.limits import QUIET_S, Exhaustion, allow_files, collect_garbage_seldom

INFINITE = resource.RLIM_INFINITY
WANTED = 4096


@pytest.mark.parametrize(
    ("soft", "hard", "got", "becomes"),
    [
        (1024, 524288, WANTED, WANTED),
        (1024, 2048, 2048, 2048),
        (1024, INFINITE, WANTED, WANTED),
        (8192, 524288, WANTED, 8192),
        (1024, 1024, 1024, 1024),
        (INFINITE, INFINITE, WANTED, INFINITE),
    ],
)
def test_file_limit_is_never_lowered(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, got: int, becomes: int
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    assert allow_files(WANTED) == got
    assert limits == {resource.RLIMIT_NOFILE: (becomes, hard)}


@pytest.mark.parametrize("error", [PermissionError(1, "no"), ValueError("current limit exceeds maximum limit")])
def test_file_limit_stays_if_the_system_refuses(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, INFINITE))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert allow_files(WANTED) == 1024


def test_allow_files_works_on_this_system() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert allow_files(1) == 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


class Loop:
    """As much of an event loop as an exception handler uses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[dict[str, object]] = []

    def time(self) -> float:
        return self.now

    def default_exception_handler(self, context: dict[str, object]) -> None:
        self.told.append(context)


def test_lack_of_descriptors_is_logged_once_a_minute() -> None:
    exhaustion, loop = Exhaustion(), Loop()
    with capture_logs() as lines:
        for loop.now in (0.0, 1.0, QUIET_S - 1, QUIET_S, QUIET_S + 1, 2 * QUIET_S):
            for number in (errno.EMFILE, errno.ENFILE):
                exhaustion(loop, {"message": "accept", "exception": OSError(number, "none left")})  # type: ignore[arg-type]
    assert [(line["log_level"], line["why"]) for line in lines] == [("warning", "none left")] * 3
    assert loop.told == []


def test_other_exceptions_reach_the_default_handler() -> None:
    exhaustion, loop = Exhaustion(), Loop()
    reset: dict[str, object] = {"message": "m", "exception": OSError(errno.ECONNRESET, "gone")}
    contexts = [reset, {"message": "without an exception"}]
    for context in contexts:
        exhaustion(loop, context)  # type: ignore[arg-type]
    assert loop.told == contexts


def test_garbage_collection_becomes_seldom() -> None:
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)
    try:
        collect_garbage_seldom()
        assert gc.get_threshold() > (700, 10, 10)
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    finally:
        gc.set_threshold(*before)
