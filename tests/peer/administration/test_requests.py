"""Requests about the ring and their answers as bytes: what is taken, and the one line for what is not."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.peer.administration.requests import (
    MAX_SHOWN_CHARS,
    ROWS,
    ClientRow,
    NamedPeer,
    Reply,
    Request,
    RequestError,
    Subject,
    checked_row,
    decode_page,
    decode_reply,
    decode_request,
    encode_request,
    shown,
)


@pytest.mark.parametrize(
    "request_",
    [
        Request(about=Subject.PEERS),
        Request(about=Subject.CLIENTS, user="alice", peer="127.0.0.1:4883", topic="a/b", limit=0),
        Request(about=Subject.KICK, client="a\0b", session=True),
        Request(about=Subject.CLEAR, filter="a/#"),
    ],
)
def test_a_request_is_read_as_it_was_written(request_: Request) -> None:
    assert decode_request(encode_request(request_)) == request_


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "unreadable request: "),
        (b"[1]", "unreadable request: "),
        (b'{"about":"all"}', "unreadable request: Invalid enum value 'all'"),
        (b'{"about":"peers","limit":-1}', "unreadable request: "),
        (b'{"about":"peers","limit":100001}', "unreadable request: "),
        (b'{"about":"kick"}', "kick needs the id of a client"),
        (b'{"about":"clear"}', "clear needs a filter of topics; # is for all of them"),
        (b'{"about":"retained","filter":"a#"}', "topic filter 'a#' "),
        (b'{"about":"clients","topic":"a/+"}', "topic name 'a/+' has a wildcard"),
        (b"[" * 100_000, "unreadable request: "),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(body: bytes, fault: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_request(body)
    assert str(caught.value).startswith(fault)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) <= MAX_SHOWN_CHARS


def test_a_request_that_no_peer_takes_is_not_written() -> None:
    with pytest.raises(RequestError, match=r"^a request must have less than 4096 bytes, got 50"):
        encode_request(Request(about=Subject.KICK, client="c" * 5000))


@given(st.binary(max_size=200))
def test_garbage_gives_the_error_of_requests_alone(body: bytes) -> None:
    for read in (decode_request, decode_page, lambda part: decode_reply(part, ClientRow)):
        with contextlib.suppress(RequestError):
            read(body)


@pytest.mark.parametrize("subject", list(Subject))
def test_a_row_gets_the_name_of_its_sender_whatever_it_says(subject: Subject) -> None:
    told = msgspec.Raw(b'{"peer":"another","unknown":"<b>"}')
    read = msgspec.json.decode(checked_row(subject, told, "ab12"), type=ROWS[subject])
    assert read == ROWS[subject](peer="ab12")


@pytest.mark.parametrize("row", [b'{"clients":"many"}', b"7", b'{"warnings":[1]}'])
def test_a_row_of_other_types_is_refused(row: bytes) -> None:
    with pytest.raises(RequestError, match=r"^unreadable row: "):
        checked_row(Subject.PEERS, msgspec.Raw(row), "ab12")


def test_a_reply_is_read_with_its_rows() -> None:
    reply = Reply(rows=[msgspec.Raw(b'{"client":"a"}')], total=2, peers=[NamedPeer("ab", "here:1")])
    read, rows = decode_reply(msgspec.json.encode(reply), ClientRow)
    assert (read.total, read.peers, rows) == (2, [NamedPeer("ab", "here:1")], [ClientRow(client="a")])


def test_long_names_are_cut() -> None:
    assert shown("a" * MAX_SHOWN_CHARS) == "a" * MAX_SHOWN_CHARS
    assert shown("a" * 70_000) == "a" * MAX_SHOWN_CHARS + "…"
