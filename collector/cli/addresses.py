"""HOST:PORT as people write it on the command line of the collector, and back."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import click

from ringmq.collector.errors import SettingError

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]")


class Address(NamedTuple):
    """Where a peer serves MQTT."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read HOST:PORT, an IPv6 host in brackets. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit()) or not 1 <= int(port[:6]) <= 65535:
        raise ValueError(text)
    return Address(host.strip("[]"), int(port))


def parse_addresses(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[Address, ...]:
    """The callback of an option that may be given several times; each address once."""
    found = []
    for text in value:
        try:
            found.append(parse_address(text))
        except ValueError:
            raise SettingError(f"{param.opts[0]}: {text!r} is not HOST:PORT, such as 127.0.0.1:1883") from None
    return tuple(dict.fromkeys(found))
