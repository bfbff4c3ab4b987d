"""The limit of open files."""

from __future__ import annotations

import resource

import pytest

from peer.limits import allow_files

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
