"""The options that `ringmq pub` and `ringmq sub` share: where and how a client connects, as mosquitto_pub names them.

Owns their meaning: turns them into the settings of a client, or one line about what is wrong.
"""

from __future__ import annotations

import math
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from ringmq.mqtt_front.client.client_tls import TlsFiles, client_context
from ringmq.mqtt_front.client.server_address import MQTT_PORT, ServerUrl, parse_server
from ringmq.mqtt_front.client.shell.client import ClientSettings
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import Connect, Properties, Version, Will
from ringmq.mqtt_front.errors import EncodeError, FrontError, PacketError
from ringmq.mqtt_front.matching.topics import check_topic_name
from ringmq.peer.errors import ConfigError, PeerError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Line = Mapping[str, Any]
"""The values of options by their names."""

DEFAULT_HOST: Final = "127.0.0.1"
VERSIONS: Final = {
    "5": Version.V5,
    "3.1.1": Version.V311,
    "3.1": Version.V31,
    "mqttv5": Version.V5,
    "mqttv311": Version.V311,
    "mqttv31": Version.V31,
    "311": Version.V311,
    "31": Version.V31,
}
"""The last five are mosquitto_pub's."""
FOREVER_S: Final = 0xFFFF_FFFF
"""A session expiry that never comes (5.0 §3.1.2.11.2)."""
RANDOM_ID_BYTES: Final = 4
"""Enough to tell clients apart that are started by hand and by scripts; with the name, an id that 3.1 takes, too."""
MAX_PASSWORD_BYTES: Final = 65_535

FILE: Final = click.Path(path_type=Path, dir_okay=False)
QOS: Final = click.IntRange(0, 2)


class Seconds(click.FloatRange):
    """A time that ends: no infinity, and no NaN, which no range excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return found


SOME_SECONDS: Final = Seconds(0, min_open=True)

_OPTIONS: Final = (
    click.option(
        "-h", "--host", "hosts", multiple=True, metavar="HOST[:PORT]|URL",
        help="Server: a name, an address, or a URL with mqtt://, mqtts://, ws:// or wss://. May be repeated: the next"
        f" is tried when one cannot be reached.  [default: {DEFAULT_HOST}]",
    ),
    click.option(
        "-p", "--port", "ports", multiple=True, type=click.IntRange(1, 65535), metavar="PORT",
        help=f"Port of hosts that are given without one; may be repeated.  [default: {MQTT_PORT}, with TLS 8883]",
    ),
    click.option(
        "-L", "--url", "urls", multiple=True, metavar="URL",
        help="User, password, host, port and topic in one: mqtt[s]://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC",
    ),
    click.option("-u", "--username", metavar="NAME", help="User name."),
    click.option("-P", "--pw", "password", metavar="PASSWORD", help="Password. All users of this machine can see it."),
    click.option("--password-file", type=FILE, metavar="FILE", help="Read the password from the first line of FILE."),
    click.option("--cafile", type=FILE, metavar="FILE", help="Use TLS, and trust certificates of this CA."),
    click.option(
        "--tls", "--tls-use-os-certs", "tls", is_flag=True, help="Use TLS, and trust the CAs that this machine trusts."
    ),
    click.option("--cert", type=FILE, metavar="FILE", help="Certificate of the client, for servers that want one."),
    click.option("--key", type=FILE, metavar="FILE", help="Key of this certificate.  [default: the file of --cert]"),
    click.option("--insecure", is_flag=True, help="Do not check that the certificate belongs to this host."),
    click.option(
        "-V", "--protocol-version", "version", default="5", metavar="5|3.1.1|3.1", type=click.Choice([*VERSIONS]),
        help="Version of MQTT.  [default: 5]",
    ),
    click.option("-i", "--id", "client_id", metavar="ID", help="Client id.  [default: a random one]"),
    click.option("-I", "--id-prefix", metavar="PREFIX", help="Begin of a random client id."),
    click.option(
        "-c", "--disable-clean-session", "keeps", is_flag=True,
        help="Resume the session of this client id, and let the server keep it afterwards. Needs -i.",
    ),
    click.option(
        "-x", "--session-expiry", "--session-expiry-interval", "session_expiry", type=click.IntRange(-1, FOREVER_S),
        metavar="SECONDS", help="How long the server keeps the session.  [default: 0; with -c: -1, for ever]",
    ),
    click.option(
        "-k", "--keepalive", type=click.IntRange(0, 65535), default=60, show_default=True, metavar="SECONDS",
        help="A silent connection is tested after this time, and is lost after twice of it. 0: never.",
    ),
    click.option(
        "--will-topic", metavar="TOPIC", help="Topic of the message that the server publishes if this client vanishes."
    ),
    click.option("--will-payload", metavar="TEXT", help="Payload of the will.  [default: none]"),
    click.option("--will-qos", type=QOS, metavar="0|1|2", help="QoS of the will.  [default: 0]"),
    click.option("--will-retain", is_flag=True, help="Retain the will."),
    click.option(
        "--connect-timeout", type=SOME_SECONDS, default=10.0, show_default=True,
        metavar="SECONDS", help="Time for each server to accept the connection.",
    ),
    click.option("-d", "--debug", is_flag=True, help="Tell on standard error what happens."),
    click.option("--quiet", is_flag=True, help="Print no errors and no notices."),
)  # fmt: skip


class Connecting(NamedTuple):
    settings: ClientSettings
    topics: tuple[str, ...]
    """Topics that URLs name."""


def connection_options(command: Decorated) -> Decorated:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def connecting(line: Line, program: str, *, reconnects: bool) -> Connecting:
    """The settings of a client. Raises ConfigError for what is wrong, and PeerError for files that cannot be read."""
    version = VERSIONS[line["version"]]
    servers = _servers(line)
    connect = Connect(
        version,
        _client_id(line, program),
        not line["keeps"],
        line["keepalive"],
        _will(line),
        *_credentials(line, servers, version),
        Properties(session_expiry_s=_session_expiry_s(line, version)),
    )
    try:
        encode(version, connect)
    except EncodeError as error:
        raise ConfigError(f"this is no CONNECT of MQTT: {error}") from None
    addresses = tuple(dict.fromkeys(server.address for server in servers))
    tls = _context(line, any(address.tls for address in addresses))
    settings = ClientSettings(connect, addresses, tls, reconnects, line["connect_timeout"])
    return Connecting(settings, tuple(server.topic for server in servers if server.topic))


def _servers(line: Line) -> list[ServerUrl]:
    tls = bool(line["tls"] or line["cafile"])
    hosts = line["hosts"] or (() if line["urls"] else (DEFAULT_HOST,))
    servers = []
    try:
        for host in hosts:
            servers += [parse_server(host, port, tls=tls) for port in line["ports"] or (None,)]
            if servers[-1].topic is not None:
                raise ConfigError(f"--host: {host}: a URL with a topic is for -L")
        for url in line["urls"]:
            if "://" not in url:
                raise ConfigError(f"-L must be a URL such as mqtt://{DEFAULT_HOST}/TOPIC, got {url!r}")
            servers.append(parse_server(url))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return servers


def _credentials(line: Line, servers: list[ServerUrl], version: Version) -> tuple[str | None, bytes | None]:
    in_urls = {(server.user_name, server.password) for server in servers if server.user_name is not None}
    if len(in_urls) > 1:
        raise ConfigError("the URLs name several users: one client has one")
    url_name, url_password = in_urls.pop() if in_urls else (None, None)
    name = line["username"] if line["username"] is not None else url_name
    if line["password"] is not None and line["password_file"] is not None:
        raise ConfigError("-P and --password-file exclude each other")
    password = os.fsencode(line["password"]) if line["password"] is not None else None
    if line["password_file"] is not None:
        password = _first_line(line["password_file"])
    elif password is None and url_password is not None:
        password = os.fsencode(url_password)
    if password is not None and name is None and version is not Version.V5:  # [MQTT-3.1.2-22]
        raise ConfigError("a password needs a user name (-u) before MQTT 5")
    return name, password


def _first_line(file: Path) -> bytes:
    try:
        with file.open("rb") as source:
            first = source.readline(MAX_PASSWORD_BYTES + 3)
    except OSError as error:
        raise PeerError(f"cannot read {file}: {error.strerror}") from None
    password = first.removesuffix(b"\n").removesuffix(b"\r")
    if not 0 < len(password) <= MAX_PASSWORD_BYTES:
        raise PeerError(f"{file}: the first line must be a password of 1 to {MAX_PASSWORD_BYTES:,} bytes")
    return password


def _client_id(line: Line, program: str) -> str:
    if line["client_id"] is not None:
        if line["id_prefix"] is not None:
            raise ConfigError("-i and -I exclude each other")
        return str(line["client_id"])
    if line["keeps"]:
        raise ConfigError("-c resumes the session of a client id: name it with -i")
    prefix = line["id_prefix"] if line["id_prefix"] is not None else f"ringmq-{program}-"
    return f"{prefix}{os.urandom(RANDOM_ID_BYTES).hex()}"


def _session_expiry_s(line: Line, version: Version) -> int | None:
    given = line["session_expiry"]
    if version is not Version.V5:
        if given is not None:
            raise ConfigError("-x needs MQTT 5 (-V 5); before, -c keeps the session")
        return None
    if given is None:
        return FOREVER_S if line["keeps"] else None
    return FOREVER_S if given == -1 else int(given)


def _will(line: Line) -> Will | None:
    topic = line["will_topic"]
    if topic is None:
        if line["will_payload"] is not None or line["will_qos"] is not None or line["will_retain"]:
            raise ConfigError("a will needs --will-topic")
        return None
    checked_topic(topic, "--will-topic")
    payload = os.fsencode(line["will_payload"] or "")
    return Will(topic, payload, line["will_qos"] or 0, line["will_retain"])


def _context(line: Line, wanted: bool) -> ssl.SSLContext | None:
    if not wanted:
        given = [name for name in ("cafile", "tls", "cert", "key", "insecure") if line[name]]
        if given:
            raise ConfigError(f"--{given[0]} is for TLS: use it with mqtts:// or wss://, or with --cafile or --tls")
        return None
    if line["key"] is not None and line["cert"] is None:
        raise ConfigError("--key needs --cert")
    try:
        return client_context(TlsFiles(line["cafile"], line["cert"], line["key"]), any_name=line["insecure"])
    except FrontError as error:
        raise PeerError(str(error)) from None


def checked_topic(topic: str, option: str) -> str:
    """The topic. Raises ConfigError unless messages may be published to it."""
    check_name(topic, option, "topic name", check_topic_name)
    return topic


def check_name(name: str, option: str, kind: str, check: Callable[[str], object]) -> None:
    """Raises ConfigError unless a topic or filter passes this check, and can be sent."""
    try:
        check(name)
        name.encode()
    except PacketError as error:
        raise ConfigError(f"{option}: {error}") from None
    except UnicodeEncodeError:
        raise ConfigError(f"{option}: {kind} {name!r} is not UTF-8") from None
