"""Addresses of servers, as users write them."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.client.server_address import ServerAddress, ServerUrl, parse_server


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("localhost", ServerAddress("localhost", 1883), "localhost:1883"),
        ("10.0.0.1:1890", ServerAddress("10.0.0.1", 1890), "10.0.0.1:1890"),
        ("::1", ServerAddress("::1", 1883), "[::1]:1883"),
        ("[::1]", ServerAddress("::1", 1883), "[::1]:1883"),
        ("[fe80::1%eth0]:1890", ServerAddress("fe80::1%eth0", 1890), "[fe80::1%eth0]:1890"),
        ("mqtt://a", ServerAddress("a", 1883), "a:1883"),
        ("mqtts://a", ServerAddress("a", 8883, tls=True), "a:8883"),
        ("ws://a", ServerAddress("a", 80, path="/"), "ws://a:80/"),
        ("ws://a:8083/mqtt?x=1", ServerAddress("a", 8083, path="/mqtt?x=1"), "ws://a:8083/mqtt?x=1"),
        ("wss://[::1]:8084/mqtt", ServerAddress("::1", 8084, True, "/mqtt"), "wss://[::1]:8084/mqtt"),
    ],
)
def test_an_address_is_read_and_shown(text: str, address: ServerAddress, shown: str) -> None:
    assert parse_server(text) == ServerUrl(address)
    assert str(address) == shown


def test_port_and_tls_hold_where_the_text_says_nothing() -> None:
    assert parse_server("a", 1890).address == ServerAddress("a", 1890)
    assert parse_server("a:1", 1890).address == ServerAddress("a", 1)
    assert parse_server("a", tls=True).address == ServerAddress("a", 8883, tls=True)
    assert parse_server("a", 1890, tls=True).address == ServerAddress("a", 1890, tls=True)
    assert parse_server("mqtt://a", 1890, tls=True).address == ServerAddress("a", 1883)


def test_a_url_names_user_password_and_topic() -> None:
    found = parse_server("mqtt://al%40ice:s%3Acret@a:1890/hall/7/door%20x")
    assert found == ServerUrl(ServerAddress("a", 1890), "al@ice", "s:cret", "hall/7/door x")
    assert parse_server("ws://alice@a/mqtt") == ServerUrl(ServerAddress("a", 80, path="/mqtt"), "alice")
    assert parse_server("mqtt://alice:@a").password == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "an address must be HOST or HOST:PORT, got ''"),
        (":1883", "an address must be HOST or HOST:PORT, got ':1883'"),
        ("a b", "an address must be HOST or HOST:PORT, got 'a b'"),
        ("a/b", "an address must be HOST or HOST:PORT, got 'a/b'"),
        ("a:b:c", "an address must be HOST or HOST:PORT, got 'a:b:c'"),
        ("a:", "a port must be 1 to 65535, got '' in 'a:'"),
        ("a:0", "a port must be 1 to 65535, got '0' in 'a:0'"),
        ("a:65536", "a port must be 1 to 65535, got '65536' in 'a:65536'"),
        ("a:²", "a port must be 1 to 65535"),
        ("[::1", "an IPv6 address must be in brackets"),
        ("[a]:1", "an IPv6 address must be in brackets"),
        ("[::1]x", "an IPv6 address must be in brackets"),
        ("http://a", "a URL must begin with one of mqtt://, mqtts://, ws://, wss://, got 'http://a'"),
        ("ws://a/é", "the path of a URL must be printable ASCII"),
        ("ws://", "an address must be HOST or HOST:PORT, got ''"),
    ],
)
def test_what_is_no_address_is_refused_with_its_fault(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="^" + says.replace("[", r"\[").replace("?", r"\?")):
        parse_server(text)
