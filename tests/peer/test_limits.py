"""The limit of open files, and how often garbage is looked for."""

from __future__ import annotations

import gc
import resource

import pytest

from peer.limits import allow_files, collect_garbage_seldom

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "becomes"),
    [
        (1024, 524288, 4096, 4096),
        (1024, 2048, 4096, 2048),
        (1024, INFINITE, 4096, 4096),
        (8192, 524288, 4096, 8192),
        (1024, 1024, 4096, 1024),
        (INFINITE, INFINITE, 4096, INFINITE),
    ],
)
def test_the_limit_only_grows(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int, becomes: int) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    assert allow_files(wanted) == becomes
    assert limits == {resource.RLIMIT_NOFILE: (becomes, hard)}


def test_the_system_takes_it() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert allow_files(1) == soft


def test_garbage_is_looked_for_seldom() -> None:
    before = gc.get_threshold()
    try:
        collect_garbage_seldom()
        assert gc.get_threshold() > before
        assert gc.get_freeze_count() > 0
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
