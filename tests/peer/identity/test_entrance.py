"""The entrance: which address a newcomer takes, if nobody says."""

from __future__ import annotations

import pytest

from ringmq.peer.errors import PeerError
from ringmq.peer.identity.entrance import with_reachable_overlay
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.tokens import Token


def invited_by(host: str, **changes: object) -> PeerConfig:
    return PeerConfig(join=(Token(bytes(16), bytes(16), (host, 4883)),), **changes)  # type: ignore[arg-type]


def test_an_address_that_was_given_stays() -> None:
    config = invited_by("192.168.1.10", overlay=("192.168.1.11", 4884))
    assert with_reachable_overlay(config) is config


def test_an_inviter_on_this_machine_changes_nothing() -> None:
    config = invited_by("127.0.0.1")
    assert with_reachable_overlay(config) is config
    assert with_reachable_overlay(PeerConfig()) == PeerConfig()


def test_the_address_that_reaches_the_inviter_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    # A host that is not taken for loopback by its name, and is reached by it.
    monkeypatch.setattr("ringmq.peer.identity.entrance.is_loopback", lambda host: False)
    assert with_reachable_overlay(invited_by("127.0.0.7")).overlay[1] == 4883
    assert with_reachable_overlay(invited_by("127.0.0.7")).overlay[0].startswith("127.0.0.")


def test_no_way_to_the_inviter_is_one_line() -> None:
    with pytest.raises(PeerError, match=r"join: no way to no.such.host.invalid:4883: .* name the overlay address"):
        with_reachable_overlay(invited_by("no.such.host.invalid"))
