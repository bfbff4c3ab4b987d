"""Tokens: what is printed can be pasted back, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.peer.settings.tokens import Token, fingerprint_of, parse_token

TOKEN = Token(bytes(range(16)), bytes(range(16, 32)), ("192.168.1.10", 4883))


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), st.booleans())
def test_a_printed_token_is_read_back(fingerprint: bytes, secret: bytes, shouted: bool) -> None:
    token = Token(fingerprint, secret, ("fd00::1", 4883))
    text = str(token)
    head, _, address = text.partition("@")
    assert parse_token(f"{head.upper() if shouted else head}@{address}") == token


def test_a_token_fits_into_a_line_and_needs_no_quotes() -> None:
    text = str(TOKEN)
    assert len(text) <= 83
    assert text.replace("-", "").replace("@", "").replace(".", "").replace(":", "").isalnum()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "192.168.1.10:4883",
        "token@192.168.1.10:4883",
        str(TOKEN).replace("ringmq1", "ringmq2"),
        str(TOKEN).replace(":4883", ""),
        str(TOKEN)[1:],
        str(TOKEN).replace("@", "a@"),
        str(TOKEN).replace("a", "1", 1),
        str(TOKEN).partition("@")[0],
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - as all readers of settings
        parse_token(text)


def test_the_concealed_token_lacks_its_secret() -> None:
    assert TOKEN.concealed.count("…") == 1
    assert str(TOKEN).split("-")[2].partition("@")[0] not in TOKEN.concealed


def test_a_fingerprint_depends_on_the_key() -> None:
    assert fingerprint_of(b"one") != fingerprint_of(b"other")
    assert len(fingerprint_of(b"one")) == 16
