"""The files of the page: their types and policy, and that nothing in them comes from elsewhere or is set as HTML."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from ringmq.peer.web.exchanges import HttpCall, read_call
from ringmq.peer.web.page_files import FOLDER, PageFiles

SOURCES = {file.name: file.read_text(encoding="utf-8") for file in (files("ringmq.peer.web") / FOLDER).iterdir()}
OF_NAMES = ("http://www.w3.org/2000/svg",)
"""Addresses that nobody asks: names of XML."""


def call(path: str, host: str = "127.0.0.1:8880") -> HttpCall:
    return read_call(f"GET {path} HTTP/1.1\r\nHost: {host}")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ],
)
def test_files_have_their_types(path: str, kind: str) -> None:
    response = PageFiles().response(call(path), None)
    assert (response.status.value, response.kind) == (200, kind)
    assert response.body


@pytest.mark.parametrize("path", ["/page", "/../api.py", "/page/page.js", "/PAGE.JS", "//", ""])
def test_there_are_no_other_files(path: str) -> None:
    assert path not in PageFiles()


@pytest.mark.parametrize(
    ("host", "port", "targets"),
    [
        ("127.0.0.1:8880", None, "'self'"),
        ("127.0.0.1:8880", 8083, "'self' ws://127.0.0.1:8083"),
        ("[::1]:8880", 8083, "'self' ws://[::1]:8083"),
        ("edge-1", 8083, "'self' ws://edge-1:8083"),
        ("evil.example; script-src *", 8083, "'self' ws://localhost:8083"),
        ("ä", 8083, "'self' ws://localhost:8083"),
    ],
)
def test_scripts_may_connect_to_this_server_alone(host: str, port: int | None, targets: str) -> None:
    (policy,) = [one for one in PageFiles().response(call("/", host), port).headers if one.startswith("Content-Sec")]
    assert policy == (
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        f" connect-src {targets}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_nothing_is_asked_of_other_sites(name: str) -> None:
    found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`)]*", re.sub(r"(?m)^\s*//.*$", "", SOURCES[name]))
    assert [address for address in found if address not in OF_NAMES] == []


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_text_is_ever_set_as_html(name: str) -> None:
    for call_ in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert call_ not in SOURCES[name]
    assert not re.search(r"<[^>]*\s(on\w+|style)=", SOURCES[name]), "inline scripts and styles are not allowed"
