"""A peer runs on the allocator of glibc, unless its user has chosen another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ringmq.peer.resources.allocator import ALLOCATOR, glibc, with_pages
from tests.conftest import Process

on_glibc = pytest.mark.skipif(glibc() is None, reason="not on glibc 2.33 or newer")


def test_chosen_allocator_is_kept() -> None:
    assert with_pages({ALLOCATOR: "debug"}) == {ALLOCATOR: "debug"}


@on_glibc
def test_peer_runs_on_the_allocator_of_glibc() -> None:
    assert with_pages({"HOME": "/"}) == {"HOME": "/", ALLOCATOR: "malloc"}


def allocator_of(pid: int) -> list[str]:
    variables = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return [value for name, _, value in (one.partition("=") for one in variables) if name == ALLOCATOR]


@on_glibc
@pytest.mark.parametrize(("chosen", "used"), [(None, "malloc"), ("pymalloc", "pymalloc")])
def test_restart_with_the_allocator_keeps_the_process(
    chosen: str | None, used: str, start: Callable[..., Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen is None:
        monkeypatch.delenv(ALLOCATOR, raising=False)
    else:
        monkeypatch.setenv(ALLOCATOR, chosen)
    process = start("peer", "--overlay", "127.0.0.1:0", "--no-discovery")
    process.says("active: ")
    assert allocator_of(process.pid) == [used]
