"""The command for the next machine works there as it is printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ringmq.peer.identity.next_machine import join_line
from ringmq.peer.settings.load import load
from ringmq.peer.settings.model import PeerConfig
from ringmq.peer.settings.tokens import Token
from tests.deploy.command_lines import peer_config

TOKEN = Token(bytes(16), bytes(16), ("192.168.1.10", 4883))
OWN = {"overlay": "192.168.1.10:4883", "data": "/var/lib/my ring"}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"ring": "hall 7", "timing": "wan", "hash_seed": 7, "shadows": 3},
        {"dispatch": "scribe"},
        {"mqtt": "127.0.0.1:1883"},
    ],
)
def test_it_joins_with_the_same_settings(given: dict[str, object]) -> None:
    config = load(None, {**OWN, **given})
    joined = peer_config(shlex.split(join_line(config, TOKEN)))
    for name in given:
        assert getattr(joined, name) == getattr(config, name), name
    assert (joined.data, joined.token) == (Path("/var/lib/my ring"), TOKEN)
    assert joined.overlay == PeerConfig().overlay, "the address that reaches the inviter is found there"


def test_what_belongs_to_one_machine_is_left_out() -> None:
    line = join_line(load(None, {**OWN, "mqtt": "0.0.0.0:1883", "advertise": "one"}), TOKEN)
    assert "1.10" not in line.partition("--join")[0]
    assert "mqtt" not in line.partition("--data")[0].removeprefix("ringmq")
