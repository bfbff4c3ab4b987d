"""The head of an HTTP request: its parts, its faults and its bound, whatever the chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.server.http_request import (
    HeadReader,
    HeadTooLongError,
    HttpRequest,
    HttpRequestError,
    is_token,
    parse_request,
)


def test_request_line_is_split_into_method_target_and_version() -> None:
    assert parse_request("GET /a?b=c HTTP/1.1\r\nHost: x") == HttpRequest("GET", "/a?b=c", "HTTP/1.1", ["Host: x"])


@pytest.mark.parametrize(
    "line", ["", "GET", "GET /", "GET / HTTP", "GET / HTTP/1.1 ", "GET /  HTTP/1.1", "\x16\x03\x01"]
)
def test_line_without_version_is_no_request(line: str) -> None:
    with pytest.raises(HttpRequestError):
        parse_request(line)


def test_repeated_headers_keep_each_value_in_order() -> None:
    request = parse_request("GET / HTTP/1.1\r\nA: 1\r\nB:\r\na:\t2 ")
    assert request.headers() == {"a": ["1", "2"], "b": [""]}


@pytest.mark.parametrize("line", ["no colon", ": value", "a b: c", "a : b", " folded: b", "é: b", ""])
def test_malformed_header_is_refused(line: str) -> None:
    with pytest.raises(HttpRequestError):
        parse_request(f"GET / HTTP/1.1\r\n{line}").headers()


@given(st.binary(max_size=40), st.binary(max_size=20), st.lists(st.integers(1, 9), max_size=30))
def test_chunks_do_not_change_the_head(head: bytes, rest: bytes, sizes: list[int]) -> None:
    data = head + b"\r\n\r\n" + rest
    expected, _, after = data.partition(b"\r\n\r\n")
    reader, read = HeadReader(100), None
    for size in [*sizes, len(data)]:
        chunk, data = data[:size], data[size:]
        read = reader.feed(chunk)
        if read is not None:
            break
    assert read is not None
    assert (read[0], read[1] + data) == (expected.decode("latin-1"), after)


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_head_longer_than_its_bound_is_refused(end: bytes) -> None:
    assert HeadReader(10).feed(b"x" * 10 + b"\r\n\r\nrest") == ("x" * 10, b"rest")
    with pytest.raises(HeadTooLongError, match="exceeds 10 bytes"):
        HeadReader(10).feed(b"x" * 11 + end)


def test_token_has_no_separators() -> None:
    assert all(map(is_token, ("GET", "X-1", "!#$%&'*+-.^_`|~")))
    assert not any(map(is_token, ("", "G,T", "a b", "a:", "é", "(a)", "a\0")))
