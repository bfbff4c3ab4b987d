"""Addresses on the command line of the collector: HOST:PORT, parsed and formatted."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import click

from ringmq.collector.errors import SettingError

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]")


class Address(NamedTuple):
    """The address at which a peer serves MQTT."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse HOST:PORT, with an IPv6 host in brackets. Raises ValueError."""
    host, _, port = text.rpartition(":")
    # `isdigit` alone accepts digits of any script. Six digits suffice to see that a port is too large.
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit()) or not 1 <= int(port[:6]) <= 65535:
        raise ValueError(text)
    return Address(host.strip("[]"), int(port))


def parse_addresses(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Address, ...]:
    """The callback of an option that may be given several times. Duplicate addresses are dropped."""
    addresses = []
    for text in value:
        try:
            addresses.append(parse_address(text))
        except ValueError:
            raise SettingError(f"{param.opts[0]} must be HOST:PORT, such as 127.0.0.1:1883, got {text!r}") from None
    return tuple(dict.fromkeys(addresses))
