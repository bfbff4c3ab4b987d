"""Settings of identity: who must prove who they are, and what that needs."""

from __future__ import annotations

import pytest

from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.load import load
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.reference import as_toml
from ringmq.peer.settings.tokens import Token

TOKEN = Token(bytes(16), bytes(16), ("edge-1", 4883))
LOOPBACK, OPEN = "127.0.0.1:4883", "192.168.1.10:4883"


@pytest.mark.parametrize(
    ("given", "proves"),
    [
        ({}, False),
        ({"overlay": OPEN, "data": "data"}, True),
        ({"overlay": "edge-1:4883", "data": "data"}, True),
        ({"overlay": OPEN, "insecure": True}, False),
        ({"overlay": OPEN, "insecure": True, "data": "data"}, False),
        ({"overlay": LOOPBACK, "identity": "required", "data": "data"}, True),
        ({"join": [str(TOKEN)], "data": "data"}, True),
    ],
)
def test_peers_prove_who_they_are_where_others_reach_them(given: dict[str, object], proves: bool) -> None:
    assert load(None, given).proves is proves


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"overlay": OPEN}, f"data: missing, but other machines can reach overlay {OPEN}: "),
        ({"identity": "required"}, "data: missing, but identity is required: "),
        ({"join": [str(TOKEN)]}, "data: missing, but join has a token: "),
        (
            {"identity": "required", "insecure": True},
            "insecure: true is for a ring without identity, but id",
        ),
        (
            {"join": [str(TOKEN)], "insecure": True},
            "insecure: true is for a ring without identity, but a ",
        ),
        ({"join": [str(TOKEN), f"{TOKEN}1"], "data": "data"}, "join: 2 addresses have a token: one token admits this"),
    ],
)
def test_identity_needs_a_folder_and_one_token(given: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(None, given)
    assert str(error.value).startswith(fault)


def test_a_token_is_an_address_as_well() -> None:
    config = load(None, {"join": ["edge-2:4883", str(TOKEN)], "data": "data"})
    assert (config.token, config.seeds) == (TOKEN, (("edge-2", 4883), ("edge-1", 4883)))
    assert (PeerConfig().token, PeerConfig().seeds) == (None, ())


def test_a_token_is_shown_without_its_secret() -> None:
    shown = as_toml(load(None, {"join": [str(TOKEN), "edge-2:4883"], "data": "data"}).join)
    assert shown == f'["{TOKEN.concealed}", "edge-2:4883"]'
    assert str(TOKEN) not in shown
