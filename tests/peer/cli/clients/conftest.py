"""A peer for all tests of this folder, and commands that end with their test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peer.cli.clients.commands import Commands, EveryListener


@pytest.fixture(scope="package")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryListener]:
    made = EveryListener(tmp_path_factory.mktemp("peer"))
    yield made
    made.close()


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    folder = tmp_path / "commands"
    folder.mkdir()
    made = Commands(folder)
    yield made
    made.close()
