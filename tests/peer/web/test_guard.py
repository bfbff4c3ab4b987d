"""The guard: tokens, names of the server, and pages of other sites."""

from __future__ import annotations

import pytest

from ringmq.peer.administration.rights import Asker
from ringmq.peer.web.exchanges import RefusedError, read_call
from ringmq.peer.web.guard import Guard
from ringmq.peer.web.tokens import Tokens, TokensError

READ, WRITE = "r" * 20, "w" * 20
TOKENS = Tokens(f"# of the operators\n\nread {READ}\n  write   {WRITE}  \n", "tokens")


def asked(guard: Guard, *headers: str, host: str = "127.0.0.1:8880") -> Asker | tuple[int, str]:
    call = read_call("\r\n".join(["GET /x HTTP/1.1", f"Host: {host}", *headers]))
    try:
        return guard.asker(call)
    except RefusedError as error:
        return error.response.status.value, str(error)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([f"Authorization: Bearer {READ}"], Asker.READER),
        ([f"authorization: bearer  {WRITE} "], Asker.WRITER),
        ([], (401, "a token is needed: Authorization: Bearer TOKEN")),
        (["Authorization: Basic abc"], (401, "a token is needed: Authorization: Bearer TOKEN")),
        (["Authorization: Bearer"], (401, "a token is needed: Authorization: Bearer TOKEN")),
        (["Authorization: Bearer " + "x" * 20], (401, "wrong token")),
        (["Authorization: Bearer \xe4"], (401, "wrong token")),
        ([f"Authorization: Bearer {READ}", f"Authorization: Bearer {WRITE}"],
         (401, "a token is needed: Authorization: Bearer TOKEN")),
        ([f"Authorization: Bearer {WRITE}", "Origin: http://evil.example"],
         (403, "calls of pages of http://evil.example are refused")),
    ],
)  # fmt: skip
def test_tokens_give_rights(headers: list[str], expected: object) -> None:
    assert asked(Guard(TOKENS), *headers, host="any.example") == expected


@pytest.mark.parametrize(
    ("host", "headers", "expected"),
    [
        ("127.0.0.1:8880", [], Asker.WRITER),
        ("localhost", [], Asker.WRITER),
        ("LOCALHOST.:8880", [], Asker.WRITER),
        ("[::1]:8880", [], Asker.WRITER),
        ("edge-1:8880", [], Asker.WRITER),
        ("127.0.0.1:8880", ["Origin: http://127.0.0.1:8880", "Sec-Fetch-Site: same-origin"], Asker.WRITER),
        ("127.0.0.1:8880", ["Sec-Fetch-Site: none"], Asker.WRITER),
        # DNS rebinding: the name of another site leads here.
        ("evil.example:8880", [], (421, "'evil.example:8880' is no name of this server")),
        ("evil.example", ["Origin: http://evil.example"], (421, "'evil.example' is no name of this server")),
        ("", [], (421, "'' is no name of this server")),
        ("[", [], (421, "'[' is no name of this server")),
        # CSRF: a page of another site calls.
        ("127.0.0.1", ["Origin: http://evil.example"], (403, "calls of pages of http://evil.example are refused")),
        ("127.0.0.1:8880", ["Origin: http://127.0.0.1:1"], (403, "calls of pages of http://127.0.0.1:1 are refused")),
        ("127.0.0.1:8880", ["Origin: null"], (403, "calls of pages of null are refused")),
        ("127.0.0.1:8880", ["Origin: http://["], (403, "calls of pages of http://[ are refused")),
        ("::1", ["Sec-Fetch-Site: cross-site"], (403, "calls of pages of other sites are refused (cross-site)")),
        ("::1", ["Sec-Fetch-Site: same-site"], (403, "calls of pages of other sites are refused (same-site)")),
    ],
)  # fmt: skip
def test_without_tokens_only_callers_of_this_machine_come_in(host: str, headers: list[str], expected: object) -> None:
    assert asked(Guard(None, frozenset({"edge-1"})), *headers, host=host) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "tokens: no token: a line must be read TOKEN or write TOKEN"),
        ("# read x\n", "tokens: no token: a line must be read TOKEN or write TOKEN"),
        ("read", "tokens, line 1: a line must be read TOKEN or write TOKEN"),
        (f"\nadmin {READ}", "tokens, line 2: a line must be read TOKEN or write TOKEN"),
        (f"read {READ} x", "tokens, line 1: a line must be read TOKEN or write TOKEN"),
        ("read short", "tokens, line 1: a token must have 20 to 256 ASCII characters, got 5"),
        ("write " + "x" * 257, "tokens, line 1: a token must have 20 to 256 ASCII characters, got 257"),
        ("write " + "ä" * 30, "tokens, line 1: a token must have 20 to 256 ASCII characters, got 30"),
        ("\n".join(f"read {number:020}" for number in range(257)), "tokens: there must be at most 256 tokens, got 257"),
    ],
)
def test_wrong_files_of_tokens_are_refused_in_one_line(text: str, fault: str) -> None:
    with pytest.raises(TokensError) as caught:
        Tokens(text, "tokens")
    assert str(caught.value) == fault
