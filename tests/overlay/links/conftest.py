"""Fixtures of links in a ring with identity: its authority, and sides that it has certified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.identities import Authority, Certified


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ring")


@pytest.fixture
def secured(side, authority: Authority):
    """Starts a side of the ring with identity."""

    async def begin(certified: Certified | None = None, **changes):
        peer = certified or authority.certified()
        return await side(peer.id, credentials=peer, **changes)

    return begin
