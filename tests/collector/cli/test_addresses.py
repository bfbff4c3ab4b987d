"""HOST:PORT on the command line of the collector."""

from __future__ import annotations

import re

import click
import pytest

from ringmq.collector.cli.addresses import Address, parse_address, parse_addresses
from ringmq.collector.errors import SettingError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:1883", ("127.0.0.1", 1883)),
        ("peer-7.example.org:1", ("peer-7.example.org", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("[::1]:1883", ("::1", 1883)),
    ],
)
def test_addresses_are_parsed_and_formatted(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert str(Address(*address)) == text


@pytest.mark.parametrize(
    "text",
    [
        *(":", "1883", "localhost", "localhost:", ":1883", "a:0", "a:65536", "a:-1", "a:1e3", "a:99999999", "a:٣"),
        *("::1:1883", "[::1]", "a b:1883", "mqtt://a:1883", "a:1883/x", "[a]:1", "a:1883\n"),
    ],
)
def test_invalid_address_raises(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_address(text)


@click.command()
@click.option("--peer", "addresses", multiple=True, callback=parse_addresses)
def command(addresses: tuple[Address, ...]) -> tuple[Address, ...]:
    return addresses


def test_duplicate_addresses_are_dropped() -> None:
    addresses = command.main(["--peer", "a:1", "--peer", "b:2", "--peer", "a:1"], standalone_mode=False)
    assert addresses == (("a", 1), ("b", 2))
    assert command.main([], standalone_mode=False) == ()


def test_invalid_address_of_an_option_is_one_line() -> None:
    with pytest.raises(SettingError) as caught:
        command.main(["--peer", "a:1", "--peer", "b"], standalone_mode=False)
    assert str(caught.value) == "--peer must be HOST:PORT, such as 127.0.0.1:1883, got 'b'"
    assert caught.value.exit_code == 2
