"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.config import show
from ringmq.peer.settings.addresses import is_host, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4883", ("127.0.0.1", 4883)),
        ("node-7.site.example:1", ("node-7.site.example", 1)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:4883", ("fe80::1%eth0", 4883)),
    ],
)
def test_parse_address_inverts_show(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert show(address) == text


NONE = [
    "",
    ":",
    "host",
    "host:",
    ":1",
    "host:0",
    "host:65536",
    "host:-1",
    "host:1x",
    "host: 1",
    "a b:1",
    "::1:1",
    "[::1]",
]


@pytest.mark.parametrize("text", [*NONE, 4883, None, "host:１", "host:000001"])
def test_invalid_address_is_refused(text: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the text is the caller's business
        parse_address(text)


def test_port_zero_is_only_for_listening() -> None:
    assert parse_address("127.0.0.1:0", any_port=True) == ("127.0.0.1", 0)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert parse_address(show(address)) == address


def test_host_names_and_addresses_are_recognised() -> None:
    assert is_host("edge-1.local")
    assert is_host("::1")
    assert not is_host("edge-1:4883")
    assert not is_host("edge 1")
    assert not is_host("")
    assert not is_host(1)
