"""Links of a ring with identity: they carry everything, and nobody speaks for another."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from pathlib import Path

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Parcel, Peer, Ping
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.links.frames import FrameReader, Kind, frame
from ringmq.overlay.links.handshake import Hello, Reason, decode_goodbye, encode_hello
from ringmq.overlay.links.proofs import address_of
from ringmq.overlay.queries import ask, ask_status, introduce
from ringmq.peer.identity import certifying
from tests.identities import Authority
from tests.overlay.links.test_doorway import stranger_context

LARGE = bytes(range(256)) * 4096


async def goodbye(reader: asyncio.StreamReader) -> tuple[Reason, str]:
    data = b""
    with contextlib.suppress(OSError):
        data = await reader.read()
    for kind, body in FrameReader(1 << 20).feed(data):
        if kind == Kind.GOODBYE:
            return decode_goodbye(body)
    raise AssertionError(f"no GOODBYE in {data!r}")


async def said_by(context, ours, hello: Hello) -> tuple[Reason, str]:
    """The answer to a HELLO over a connection with this certificate."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ours.me.port, ssl=context, server_hostname="")
    writer.write(frame(Kind.HELLO, encode_hello(hello)))
    reason = await goodbye(reader)
    writer.transport.abort()
    return reason


async def test_messages_of_all_sizes_cross(secured, until) -> None:
    ours, other = await secured(), await secured()
    parcels = [b"small", LARGE, b"", b"last"]
    for body in parcels:
        assert ours.links.send(other.me, Parcel(body))
    await until(lambda: other.parcels() == parcels)
    assert other.links.send(ours.me, Parcel(LARGE))
    await until(lambda: ours.parcels() == [LARGE])
    link = ours.link(other)
    assert link is not None
    assert link.proof is not None
    assert link.proof.id == other.me.id


async def test_both_dial_at_once_and_one_link_stays(secured, until) -> None:
    ours, other = await secured(), await secured()
    ours.links.send(other.me, Parcel(b"from ours"))
    other.links.send(ours.me, Parcel(b"from other"))
    await until(lambda: ours.parcels() and other.parcels())
    await until(lambda: ours.link(other) and other.link(ours))


async def test_a_certificate_of_an_issuer_is_as_good(secured, until, authority: Authority) -> None:
    ours = await secured()
    issuer = certifying.certify_issuer(authority.issuer, ours.me.id)
    other = await secured(authority.certified(issuer=issuer))
    other.links.send(ours.me, Parcel(b"hello"))
    await until(lambda: ours.parcels() == [b"hello"])
    link = ours.link(other)
    assert link is not None
    assert link.proof.issuer == ours.me.id


async def test_clocks_do_not_count(secured, until, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boards without a battery boot in 1970, and a site may be cut off for years."""
    ours = await secured()
    for first, last in ((1990, 1991), (2090, 2091)):
        monkeypatch.setattr(certifying, "_FIRST", datetime.datetime(first, 1, 1, tzinfo=datetime.UTC))
        monkeypatch.setattr(certifying, "_LAST", datetime.datetime(last, 1, 1, tzinfo=datetime.UTC))
        other = await secured()
        other.links.send(ours.me, Parcel(b"%d" % first))
        await until(lambda first=first: b"%d" % first in ours.parcels())
        ours.links.send(other.me, Ping())
        await until(lambda other=other: other.owner.messages)


async def test_without_a_certificate_nothing_is_answered(secured) -> None:
    ours = await secured()
    stranger = Peer(Id(5), "127.0.0.1", 1, 1)
    for target in (None, ours.me.id):
        reason, _ = await said_by(stranger_context(), ours, Hello("ringmq", stranger, True, target))
        assert reason is Reason.UNPROVEN
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", ours.me.port, ssl=stranger_context(), server_hostname=""
    )
    writer.write(frame(Kind.STATUS_REQUEST))
    assert (await goodbye(reader))[0] is Reason.UNPROVEN
    writer.transport.abort()
    assert ours.incidents.counters["handshakes_refused"] == 3


async def test_the_id_of_another_is_refused(secured, until, authority: Authority) -> None:
    """The newcomer has a certificate of the ring, a boot number above that of its victim, and says so."""
    ours, victim, thief = await secured(), await secured(), authority.certified()
    victim.links.send(ours.me, Ping())
    await until(lambda: ours.link(victim))
    claim = Peer(victim.me.id, "127.0.0.1", 1, (1 << 63) - 1)
    reason, text = await said_by(thief.client, ours, Hello("ringmq", claim, True, ours.me.id))
    assert reason is Reason.NOT_YOURS
    assert thief.id.short() in text
    assert victim.me.id.short() in text
    assert victim.links.send(ours.me, Parcel(b"mine still"))
    await until(lambda: ours.parcels() == [b"mine still"])


async def test_a_certificate_that_names_the_id_of_another_proves_nothing(
    secured, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was signed by somebody who has stolen the key of an issuer."""
    ours, victim = await secured(), await secured()
    files, key = authority.certified().files, certifying.new_key()
    monkeypatch.setattr(certifying, "address_of", lambda peer_id, salt: address_of(victim.me.id, salt))
    _, certificate = certifying.certify(authority.issuer, certifying.public_part(key), bytes(16), "thief")
    context = stranger_context()
    files.save_key(key)
    (files.folder / "peer.pem").write_bytes(certificate)
    context.load_cert_chain(files.folder / "peer.pem", files.folder / "peer.key")
    reason, _ = await said_by(context, ours, Hello("ringmq", victim.me, True, ours.me.id))
    assert reason is Reason.UNPROVEN


async def test_a_link_to_another_peer_than_the_dialled_is_not_used(secured, until) -> None:
    ours, other, third = await secured(), await secured(), await secured()
    ours.links.send(Peer(third.me.id, "127.0.0.1", other.me.port, 1), Parcel(b"for the third"))
    await until(lambda: ours.owner.losses)
    assert not other.parcels()


async def test_a_ring_without_identity_does_not_answer_one_with(secured, side, until) -> None:
    ours, plain = await secured(), await side(5)
    plain.links.send(ours.me, Parcel(b"secret?"))
    ours.links.send(plain.me, Parcel(b"secret!"))
    await until(lambda: plain.owner.losses and ours.owner.losses)
    assert not ours.parcels()
    assert not plain.parcels()


async def test_introductions_and_the_status_need_a_certificate(secured, authority: Authority) -> None:
    ours, guest = await secured(), await secured()
    place = ("127.0.0.1", ours.me.port)
    hello = await introduce(guest.config, guest.me, False, place)
    assert hello.peer.id == ours.me.id
    assert await ask_status(place, caller=authority.certified()) == {"hello": "there"}
    with pytest.raises(OverlayError, match="refuses: unproven: peers of this ring prove who they are"):
        await ask_status(place)


async def test_a_frame_that_is_replayed_is_refused(secured, until, authority: Authority) -> None:
    """The bytes of an honest connection are sent again: TLS does not take them."""
    ours, other, heard = await secured(), authority.certified(), []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", ours.me.port)

        async def back() -> None:
            with contextlib.suppress(OSError):
                while data := await up_reader.read(65536):
                    writer.write(data)
            writer.close()

        answers = asyncio.create_task(back())
        while data := await reader.read(65536):
            heard.append(data)
            up_writer.write(data)
        up_writer.close()
        await answers

    between = await asyncio.start_server(relay, "127.0.0.1", 0)
    assert await ask_status(between.sockets[0].getsockname(), caller=other) == {"hello": "there"}
    between.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", ours.me.port)
    for data in heard:
        writer.write(data)
    with contextlib.suppress(OSError):
        assert b"hello" not in await reader.read()
    writer.transport.abort()
    await until(lambda: ours.incidents.counters["handshakes_refused"] == 1)
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def test_a_join_is_answered_and_ends_there(secured) -> None:
    ours = await secured()

    class Anybody:
        client = stranger_context()

        def read(self, certificate: bytes) -> None: ...

    answer = await ask(("127.0.0.1", ours.me.port), frame(Kind.JOIN, b"me"), 4096, 3.0, Anybody())
    assert (answer.kind, answer.body) == (Kind.ADMISSION, b"admit me")
    assert not list(ours.links.open_links())


async def test_the_operator_uses_the_socket_in_the_data_folder(secured, tmp_path: Path, authority: Authority) -> None:
    # Longer than the system allows for the path of a socket.
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    control = folder / "control.sock"
    ours = await secured(control=control)
    assert control.stat().st_mode & 0o777 == 0o600
    assert await ask_status(control) == {"hello": "there"}
    answer = await ask(control, frame(Kind.COMMAND, b"invite"), 4096, 3.0, None)
    assert (answer.kind, answer.body) == (Kind.RESULT, b"obey invite")
    # Nobody else gives commands, and this socket is no way into the ring.
    with pytest.raises(OverlayError, match="unproven"):
        await ask(("127.0.0.1", ours.me.port), frame(Kind.COMMAND, b"invite"), 4096, 3.0, authority.certified())
    with pytest.raises(OverlayError, match="protocol error"):
        await introduce_over(control, ours)


async def introduce_over(control: Path, ours) -> None:
    hello = Hello("ringmq", Peer(Id(5), "127.0.0.1", 1, 1), True, ours.me.id)
    await ask(control, frame(Kind.HELLO, encode_hello(hello)), 4096, 3.0, None)


async def test_an_open_ring_has_a_socket_for_its_status_alone(side, tmp_path: Path) -> None:
    control = tmp_path / "control.sock"
    control.write_text("left behind by a crash")
    ours = await side(5, control=control)
    assert await ask_status(control) == {"hello": "there"}
    for question in (Kind.COMMAND, Kind.JOIN):
        with pytest.raises(OverlayError, match="do not prove who they are"):
            await ask(control, frame(question, b"invite"), 4096, 3.0, None)
    await ours.links.close()
    assert not control.exists()


async def test_a_peer_without_its_socket_works(side, until, tmp_path: Path) -> None:
    ours, other = await side(5, control=tmp_path / "missing" / "control.sock"), await side(6)
    other.links.send(ours.me, Ping())
    await until(lambda: ours.owner.messages)
    assert ours.incidents.counters["control_unavailable"] == 1


async def test_frames_of_one_flush_share_a_record(secured, until) -> None:
    """Each record of TLS costs as much as a small message."""
    ours, other = await secured(), await secured()
    ours.links.send(other.me, Ping())
    await until(lambda: ours.link(other))
    link, writes = ours.link(other), []
    transport = link.transport

    class Counted:
        def __getattr__(self, name: str):
            return getattr(transport, name)

        def write(self, data: bytes) -> None:
            writes.append(data)
            transport.write(data)

    link._write = type(link._write)(link._write.func, Counted())
    for _ in range(5):
        ours.links.send(other.me, Parcel(b"x"))
    await until(lambda: len(other.parcels()) == 5)
    assert len(writes) == 1
