"""The live page in a headless Chromium, on a ring of real peers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.peer.cli.ring.mqtt_clients import PlainClient
from tests.peer.rings import Ring, Start
from tests.peer.web.browser import Browser
from tests.peer.web.test_service import READ, address_in

EVIL = "<img src=x onerror=\"document.title='hacked'\">"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    folder = tmp_path / "browser"
    folder.mkdir()
    made = Browser(folder)
    yield made
    made.close()


@pytest.fixture
def ring(start: Start, ringmq: Start, eventually: Callable[..., Any]) -> Ring:
    made = Ring(start, ringmq, eventually, 3, "--http", "127.0.0.1:0", "--mqtt-ws", "127.0.0.1:0")
    eventually(lambda: all(len(told["leaves"]["clockwise"]) == 2 for told in made.statuses()), 15.0)
    return made


def state_of(address: str) -> str:
    """The state of a peer in the table, as an expression of the page."""
    find = f"[...document.querySelectorAll('#peers tbody tr')].find((row) => row.textContent.includes('{address}'))"
    return f"({find})?.querySelector('.state')?.textContent"


def is_clean(browser: Browser) -> None:
    """No error in the console, and nothing asked of another machine."""
    assert browser.errors == []
    assert {urlsplit(url).hostname for url in browser.requests if not url.startswith("data:")} == {"127.0.0.1"}


def test_the_page_shows_the_ring_as_it_changes(ring: Ring, browser: Browser) -> None:
    browser.open(f"http://{address_in(ring.processes[0], 'serving HTTP')}/")
    browser.until("document.querySelectorAll('#circle .peer.active').length === 3")
    browser.until("document.getElementById('summary').textContent === '3 peers, 0 clients, all is well'")
    ring.processes[2].end(signal.SIGKILL)
    browser.until(f"{state_of(ring.overlay[2])} === 'dead'")
    browser.until("document.querySelectorAll('#circle .peer.dead').length === 1")
    browser.until(f"document.getElementById('events').textContent.includes('{ring.overlay[2]} is dead, was ')")
    browser.until("document.getElementById('summary').textContent.endsWith('1 not well')")
    # With the keyboard: a peer is chosen, and its row with it.
    browser.run("document.querySelector('#circle .peer.dead').focus()")
    browser.run("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))")
    assert ring.overlay[2] in browser.run("document.querySelector('#peers tr.chosen').textContent")
    ring.processes[1].end(signal.SIGTERM)
    browser.until(f"{state_of(ring.overlay[1])} === 'left'")
    is_clean(browser)


def test_clients_are_found_and_kicked_and_their_names_are_text(ring: Ring, browser: Browser) -> None:
    browser.open(f"http://{address_in(ring.processes[0], 'serving HTTP')}/#clients")
    evil, other = PlainClient(ring.mqtt[1], EVIL), PlainClient(ring.mqtt[2], "other")
    evil.subscribe(f"{EVIL}/#")
    evil.retain(f"hall/{EVIL}", EVIL.encode())
    browser.run("document.querySelector('#clients-form [name=client]').value = " + repr(EVIL))
    browser.until("document.querySelectorAll('#clients-table tbody tr').length > 0")
    browser.run("document.querySelector('#clients-form button').click()")
    browser.until("document.querySelectorAll('#clients-table tbody tr').length === 1")
    assert browser.run("document.querySelector('#clients-table tbody td').textContent") == EVIL
    browser.run("window.confirm = () => true")
    browser.run("document.querySelector('#clients-table tbody button').click()")
    while evil.read() is not None:
        pass
    browser.until("document.getElementById('clients-note').textContent.includes('disconnected')")
    browser.run("location.hash = '#retained'")
    browser.until("document.querySelectorAll('#retained-table tbody tr').length === 1")
    assert browser.run("document.querySelectorAll('#retained-table td')[1].textContent") == EVIL
    browser.run("document.querySelector('#retained-table tbody button').click()")
    browser.until("document.getElementById('retained-note').textContent.includes('cleared')")
    browser.run("location.hash = '#topics'")
    # The client's peer, and the coordinator that has cleared it.
    browser.until("document.querySelectorAll('#topics-table tbody tr').length > 0")
    assert EVIL in browser.run("document.querySelector('#topics-table td').textContent")
    assert browser.run("document.title") == "RingMQ"
    assert browser.run("document.querySelectorAll('main img').length") == 0
    other.close()
    is_clean(browser)


def test_messages_are_published_and_received_on_the_page(ring: Ring, browser: Browser) -> None:
    browser.open(f"http://{address_in(ring.processes[0], 'serving HTTP')}/#try")
    browser.until("!document.getElementById('try-login').hidden")
    browser.run("document.querySelector('#try-login button').click()")
    browser.until("!document.getElementById('subscribe-form').hidden")
    browser.run("document.querySelector('#subscribe-form input').value = 'hello'")
    browser.run("document.querySelector('#subscribe-form button').click()")
    browser.until("document.getElementById('try-note').textContent === 'subscribed to hello'")
    browser.run("document.querySelector('#publish-form button').click()")
    browser.until("document.getElementById('messages').textContent.includes('hello world')")
    far = PlainClient(ring.mqtt[2], "far")
    far.retain("hello", b"from afar")
    browser.until("document.getElementById('messages').textContent.includes('hello from afar')")
    # Its way on the ring: from the far peer to the one of the page.
    browser.run("location.hash = '#topics'")
    browser.until("document.querySelectorAll('#topics-table tbody button').length > 0")
    browser.run("document.querySelector('#topics-table tbody button').click()")
    browser.until("document.querySelectorAll('#rays line').length === 1")
    # A partition for the topic, and one for filters with wildcards: their coordinators may be two.
    browser.until("document.querySelectorAll('#circle .peer.coordinator').length > 0")
    assert browser.run("document.querySelectorAll('#circle .peer.shadow').length") > 0
    assert browser.run("document.querySelectorAll('#circle .peer.subscriber').length") == 1
    is_clean(browser)


def test_a_token_is_asked_for(start: Start, tmp_path: Path, browser: Browser) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"read {READ}\n")
    line = ("--overlay", "127.0.0.1:0", "--no-discovery", "--http", "127.0.0.1:0", "--http-tokens", str(file))
    peer = start("peer", *line)
    browser.open(f"http://{address_in(peer, 'serving HTTP')}/")
    browser.until("!document.getElementById('login').hidden")
    assert browser.run("document.querySelectorAll('main section:not([hidden])').length") == 0
    browser.run("document.getElementById('token').value = 'wrong-wrong-wrong-wrong'")
    browser.run("document.querySelector('#login button').click()")
    browser.until("document.getElementById('login-fault').textContent === 'wrong token'")
    browser.run(f"document.getElementById('token').value = '{READ}'")
    browser.run("document.querySelector('#login button').click()")
    browser.until("document.querySelectorAll('#circle .peer').length === 1")
    # Chromium names each refused call in its console.
    assert all("401" in error for error in browser.errors)
