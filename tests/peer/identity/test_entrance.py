"""The entrance: who founds a ring and who must not, and which address a newcomer takes, if nobody says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ringmq.overlay.config import Address
from ringmq.peer.errors import PeerError
from ringmq.peer.identity.data_folder import DataFolder
from ringmq.peer.identity.entrance import check_entrance, with_reachable_overlay
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.tokens import Token
from tests.identities import Authority


def invited_by(host: str, **changes: object) -> PeerConfig:
    return PeerConfig(join=(Token(bytes(16), bytes(16), (host, 4883)),), **changes)  # type: ignore[arg-type]


SAFE = PeerConfig(overlay=("192.168.1.10", 4883))
OTHER = ("192.168.1.11", 4883)


def test_a_new_folder_founds_joins_or_stays_without(tmp_path: Path) -> None:
    check_entrance(SAFE, tmp_path, ())
    check_entrance(dataclasses.replace(SAFE, join=(SAFE.overlay, OTHER)), tmp_path, ())
    check_entrance(invited_by("192.168.1.11", overlay=SAFE.overlay), tmp_path, [OTHER])
    check_entrance(dataclasses.replace(SAFE, insecure=True, join=(OTHER,)), tmp_path, [OTHER])
    check_entrance(PeerConfig(join=(OTHER,)), tmp_path, [OTHER])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("join", "remembered", "fault"),
    [
        ((OTHER,), (), "join: 192.168.1.11:4883 needs a token in front"),
        ((OTHER, SAFE.overlay), (), "join: 192.168.1.11:4883 needs a token in front"),
        ((), (OTHER,), "data: .* knows peers of a ring without identity"),
    ],
)
def test_no_ring_is_founded_beside_another_by_accident(
    tmp_path: Path, join: tuple[Address, ...], remembered: tuple[Address, ...], fault: str
) -> None:
    with pytest.raises(PeerError, match=fault):
        check_entrance(dataclasses.replace(SAFE, join=join), tmp_path, remembered)


def test_a_folder_with_an_identity_is_checked(tmp_path: Path) -> None:
    folder = Authority(tmp_path).certified().files.folder
    check_entrance(SAFE, folder.parent, [OTHER])
    check_entrance(PeerConfig(), folder.parent, ())
    with pytest.raises(PeerError, match=r"insecure: .* makes this peer a member of a ring with identity"):
        check_entrance(dataclasses.replace(SAFE, insecure=True), folder.parent, ())
    (folder / "ring.pem").write_text("")
    with pytest.raises(PeerError, match="is damaged"):
        check_entrance(SAFE, folder.parent, ())


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


def test_a_member_takes_the_address_that_reaches_the_peers_that_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart without a token: on a loopback address, the others would not find it again."""
    data = Authority(tmp_path).certified().files.folder.parent
    config = PeerConfig(data=data)
    assert with_reachable_overlay(config) is config, "it knows nobody"
    with DataFolder(data, 0) as folder:
        folder.remember([("127.0.0.1", 4884), ("no.such.host.invalid", 4883), ("127.0.0.7", 4885)])
    monkeypatch.setattr("ringmq.peer.identity.entrance.is_loopback", lambda host: host == "127.0.0.1")
    asked: list[Address] = []

    def own_host(address: Address) -> str:
        asked.append(address)
        if address[0].endswith(".invalid"):
            raise PeerError("no way")
        return "192.168.1.11"

    monkeypatch.setattr("ringmq.peer.identity.entrance._own_host", own_host)
    assert with_reachable_overlay(config).overlay == ("192.168.1.11", 4883)
    assert asked == [("no.such.host.invalid", 4883), ("127.0.0.7", 4885)]
    stranger = PeerConfig(data=tmp_path / "empty")
    assert with_reachable_overlay(stranger) is stranger, "a ring on this machine stays there"


def test_no_way_to_the_inviter_is_one_line() -> None:
    with pytest.raises(PeerError, match=r"join: no way to no.such.host.invalid:4883: .* name the overlay address"):
        with_reachable_overlay(invited_by("no.such.host.invalid"))
