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
def test_addresses_are_read_and_shown(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert str(Address(*address)) == text


@pytest.mark.parametrize(
    "text",
    [
        *(":", "1883", "localhost", "localhost:", ":1883", "a:0", "a:65536", "a:-1", "a:1e3", "a:99999999", "a:٣"),
        *("::1:1883", "[::1]", "a b:1883", "mqtt://a:1883", "a:1883/x", "[a]:1", "a:1883\n"),
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_address(text)


@click.command()
@click.option("--peer", "found", multiple=True, callback=parse_addresses)
def command(found: tuple[Address, ...]) -> tuple[Address, ...]:
    return found


def test_each_address_counts_once() -> None:
    found = command.main(["--peer", "a:1", "--peer", "b:2", "--peer", "a:1"], standalone_mode=False)
    assert found == (("a", 1), ("b", 2))
    assert command.main([], standalone_mode=False) == ()


def test_a_wrong_one_is_one_line() -> None:
    with pytest.raises(SettingError) as caught:
        command.main(["--peer", "a:1", "--peer", "b"], standalone_mode=False)
    assert str(caught.value) == "--peer: 'b' is not HOST:PORT, such as 127.0.0.1:1883"
    assert caught.value.exit_code == 2
