"""Names of peers: what a host gives, and what an operator may choose."""

from __future__ import annotations

import pytest

from ringmq.peer.identity.commands import is_name, name_from


@pytest.mark.parametrize(
    ("host", "name"),
    [("edge-1.site", "edge-1.site"), ("Küche 7", "K-che-7"), ("", "peer"), ("--", "peer"), ("n" * 99, "n" * 63)],
)
def test_a_host_gives_a_name(host: str, name: str) -> None:
    assert name_from(host) == name
    assert is_name(name)


@pytest.mark.parametrize("text", ["", "two words", "-x", "n" * 64, "a\n"])
def test_some_texts_are_no_names(text: str) -> None:
    assert not is_name(text)
