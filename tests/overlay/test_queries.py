"""One question, one answer: bounded, in time, and one clear line for all that goes wrong."""

import asyncio
import dataclasses
import errno
import os
import socket

import pytest

from ringmq.overlay.config import Address, OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import MAX_HELLO_BYTES, Hello, Reason, encode_goodbye, encode_hello
from ringmq.overlay.queries import MAX_STATUS_BYTES, MyselfError, ask_ring, ask_status, cause, introduce

CONFIG = OverlayConfig(id=Id(1), boot=1, listen=("127.0.0.1", 0), handshake_s=10.0)
ME = Peer(Id(1), "127.0.0.1", 1, 1)
OTHER = Peer(Id(2), "127.0.0.1", 2, 1)
HELLO = Hello("ringmq", OTHER, True, Id(1))


def hello_frame(**changes: object) -> bytes:
    fields = {name: getattr(HELLO, name) for name in HELLO.__struct_fields__}
    return frame(Kind.HELLO, encode_hello(Hello(**{**fields, **changes})))


async def fails(question, address: Address) -> str:
    """The text after the address in the line with which it begins."""
    with pytest.raises(OverlayError) as caught:
        await question
    line, start = str(caught.value), f"{address[0]}:{address[1]}"
    assert line.startswith(start)
    assert line.isprintable()
    assert len(line) < 300
    return line.removeprefix(start)


# -- status


async def test_a_status_comes_in_however_many_pieces(answering) -> None:
    whole = frame(Kind.STATUS_REPLY, b'{"id":"x","links":[]}')
    for chunks in ([whole], [whole[:3], whole[3:9], whole[9:]], [whole, b"\xff" * 1000]):
        assert await ask_status(await answering(*chunks)) == {"id": "x", "links": []}


async def test_a_status_of_the_largest_size_and_one_byte_more(answering) -> None:
    start = b'{"x":"'
    text = b"y" * (MAX_STATUS_BYTES - 1 - len(start) - 2)
    largest = frame(Kind.STATUS_REPLY, start + text + b'"}')
    assert await ask_status(await answering(largest)) == {"x": text.decode()}
    address = await answering((MAX_STATUS_BYTES + 1).to_bytes(4, "big"), stays=True)
    wrong = f": a frame must have 1 to {MAX_STATUS_BYTES} bytes, got {MAX_STATUS_BYTES + 1}"
    assert await fails(ask_status(address), address) == wrong


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", frame(Kind.STATUS_REPLY, b"{"), b"\x7f\0\0\0\6"]
)
async def test_status_of_something_else(answering, answer: bytes) -> None:
    address = await answering(answer)
    await fails(ask_status(address), address)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (b"", ": closed the connection without an answer"),
        (b"\0\0", ": closed the connection without an answer"),
        (b"\0\0\0\1\x63", ": unknown frame kind 99"),
        (frame(Kind.HELLO), " is no peer of this version: it answered with frame kind 1"),
        (frame(Kind.GOODBYE, encode_goodbye(Reason.FULL)), " refuses: too many links"),
        (frame(Kind.GOODBYE, encode_goodbye(Reason.PROTOCOL, "no")), " refuses: protocol error: no"),
        (frame(Kind.GOODBYE, b"\n\xff" * 1000), " refuses: " + "?\ufffd" * 60),
    ],
)
async def test_a_wrong_answer_gives_one_line_with_its_fault(answering, answer: bytes, line: str) -> None:
    address = await answering(answer)
    assert await fails(ask_status(address), address) == line


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b'{"x":' + b"[" * 100_000])
async def test_an_unreadable_status(answering, body: bytes) -> None:
    address = await answering(frame(Kind.STATUS_REPLY, body))
    assert (await fails(ask_status(address), address)).startswith(" sent no readable status: ")


async def test_a_status_request_without_an_answer_fails_in_time(answering, closed_port) -> None:
    with pytest.raises(OverlayError, match=rf"^127.0.0.1:{closed_port}: connection refused$"):
        await ask_status(("127.0.0.1", closed_port))
    mute = await answering(stays=True)
    with pytest.raises(OverlayError, match=r": no answer in time$"):
        await ask_status(mute, timeout_s=0.05)


async def test_an_answer_in_drops_does_not_prolong_the_wait(answering) -> None:
    address = await answering(frame(Kind.STATUS_REPLY, b"{}")[:-1], stays=True)
    assert await fails(ask_status(address, timeout_s=0.05), address) == ": no answer in time"


@pytest.mark.parametrize("host", ["no such host", "a" * 70 + ".example", "..", "no.such.host.invalid"])
async def test_a_host_that_is_no_name(host: str) -> None:
    await fails(ask_status((host, 1)), (host, 1))


async def test_a_port_that_is_none() -> None:
    await fails(ask_status(("127.0.0.1", 70_000)), ("127.0.0.1", 70_000))


async def test_the_connection_ends_with_the_answer() -> None:
    over = asyncio.Event()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(Kind.STATUS_REPLY, b"{}"))
        try:
            await reader.read(-1)
        except ConnectionResetError:
            pass
        finally:
            writer.close()
            over.set()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    assert await ask_status(server.sockets[0].getsockname()) == {}
    async with asyncio.timeout(10.0):
        await over.wait()
    server.close()
    await server.wait_closed()


# -- introductions


async def test_an_introduction(answering) -> None:
    assert await introduce(CONFIG, ME, True, await answering(hello_frame())) == HELLO


async def test_two_sides_introduce_each_other(side) -> None:
    ours = await side(Id(2))
    hello = await introduce(CONFIG, ME, False, ("127.0.0.1", ours.me.port))
    assert (hello.peer, hello.active, hello.target) == (ours.me, False, ME.id)
    assert not list(ours.links.open_links())


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (hello_frame(ring="another"), " is not for us: other ring"),
        (hello_frame(target=Id(99)), " is not for us: not me"),
        (hello_frame(peer=Peer(Id(1), "elsewhere", 9, 1)), " is not for us: id taken"),
        (frame(Kind.HELLO, b"\x01whatever"), " is not for us: other protocol version"),
        (frame(Kind.STATUS_REPLY, b"{}"), " is not for us: other protocol version"),
        (frame(Kind.HELLO), " is no peer: an empty hello"),
        (frame(Kind.GOODBYE, encode_goodbye(Reason.RING)), " refuses: other ring"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", f": a frame must have 1 to {MAX_HELLO_BYTES} bytes, got 1397966893"),
        (b"", ": closed the connection without an answer"),
    ],
)
async def test_a_failed_introduction_gives_one_line(answering, answer: bytes, line: str) -> None:
    address = await answering(answer)
    assert await fails(introduce(CONFIG, ME, True, address), address) == line


async def test_a_hello_that_cannot_be_read(answering) -> None:
    address = await answering(frame(Kind.HELLO, b"\x02garbage"))
    assert (await fails(introduce(CONFIG, ME, True, address), address)).startswith(" is no peer: unreadable: ")


async def test_an_answer_larger_than_any_hello(answering) -> None:
    address = await answering((MAX_HELLO_BYTES + 1).to_bytes(4, "big"), stays=True)
    assert "a frame must have 1 to 4096 bytes" in await fails(introduce(CONFIG, ME, True, address), address)


@pytest.mark.parametrize("answer", [hello_frame(peer=ME), frame(Kind.GOODBYE, encode_goodbye(Reason.MYSELF))])
async def test_an_address_that_leads_back_here(answering, answer: bytes) -> None:
    address = await answering(answer)
    with pytest.raises(MyselfError, match=rf"^127\.0\.0\.1:{address[1]} is this peer itself$"):
        await introduce(CONFIG, ME, True, address)


async def test_an_introduction_takes_no_longer_than_handshake_s(answering) -> None:
    address = await answering(stays=True)
    hurried = dataclasses.replace(CONFIG, handshake_s=0.05)
    assert await fails(introduce(hurried, ME, True, address), address) == ": no answer in time"


async def test_the_answer_to_a_request_about_the_ring(answering) -> None:
    address = await answering(frame(Kind.REPLY, b'{"rows":[]}'))
    assert await ask_ring(address, b"{}") == b'{"rows":[]}'


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (frame(Kind.STATUS_REPLY, b"{}"), " is no peer of this version: it answered with frame kind 6"),
        (frame(Kind.GOODBYE, encode_goodbye(Reason.PROTOCOL, "unknown frame kind 8")), " refuses: protocol error: "),
    ],
)
async def test_no_answer_to_a_request_about_the_ring(answering, answer: bytes, fault: str) -> None:
    address = await answering(answer)
    assert (await fails(ask_ring(address, b"{}"), address)).startswith(fault)


# -- why, in a few words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer in time"),
        (OSError(errno.ECONNREFUSED, "[Errno 111] Connect call failed ('::1', 1)"), "connection refused"),
        (OSError(errno.EADDRINUSE, "while attempting to bind"), os.strerror(errno.EADDRINUSE).lower()),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "name or service not known"),
        (OSError("Multiple exceptions"), "Multiple exceptions"),
        (OverlayError("as it is"), "as it is"),
        (ValueError(), "ValueError"),
    ],
)
def test_causes(error: Exception, words: str) -> None:
    assert cause(error) == words
