"""Messages as bytes and back; garbage gives only the protocol error."""

import random
from typing import get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringmq.overlay.core import messages
from ringmq.overlay.core.codec import Codec, decode, encode, one_line
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.messages import Message, Parcel, Peer, Probe, Route
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.links.handshake import Hello, decode_goodbye, decode_hello, encode_hello

ids = st.integers(0, SPACE - 1).map(Id)
counts = st.integers(0, (1 << 63) - 1)
hosts = st.from_regex(r"[0-9A-Za-z][0-9A-Za-z.:_%-]{0,19}", fullmatch=True) | st.just("::1")
peers = st.builds(Peer, ids, hosts, st.integers(1, 65535), counts)
many = st.lists(peers, max_size=4).map(tuple)
bodies = st.one_of(st.binary(max_size=50), st.builds(messages.Join, rows=many))
FIELDS = {"key": ids, "origin": ids, "seq": counts, "boot": counts, "body": bodies, "payload": st.binary(max_size=50)}
FIELDS["relays"] = st.integers(0, messages.MAX_RELAYS)


def field(kind: type, name: str) -> st.SearchStrategy[object]:
    """By the type in the contract, so that a new message is covered without a change here."""
    hint = str({each.name: each.type for each in msgspec.structs.fields(kind)}[name])
    if name in FIELDS and not (name == "origin" and "Peer" in hint):
        return FIELDS["payload"] if name == "body" and kind is not messages.Route else FIELDS[name]
    if "tuple" in hint or "VarTuple" in hint:
        return many
    if "Peer" in hint:
        return peers
    if "bool" in hint:
        return st.booleans()
    if "Id" in hint:
        return ids
    assert "int" in hint, f"{kind.__name__}.{name}: {hint}"
    return st.integers(0, 15)


def of_kind(kind: type) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{each.name: field(kind, each.name) for each in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("kind", get_args(Message), ids=lambda kind: kind.__name__)
def test_every_message_survives_the_wire(kind: type) -> None:
    @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
    @given(of_kind(kind))
    def round_trip(message: Message) -> None:
        again = decode(encode(message))
        assert again == message
        assert type(again) is kind

    round_trip()


def test_ids_stay_ids() -> None:
    peer = Peer(Id(SPACE - 1), "a", 1, 2)
    again = decode(encode(Probe((peer,))))
    assert isinstance(again, Probe)
    assert type(again.leaves[0].id) is Id


A_PEER = Peer(Id(7), "host", 1883, 3)
HOSTILE = {
    "nothing": b"",
    "huge array": b"\xdd\xff\xff\xff\xff",
    "huge array inside": b"\x92\x02\xdd\xff\xff\xff\xff",
    "huge bytes": b"\x92\x11\xc6\xff\xff\xff\xff",
    "huge text": b"\x92\x04\xdb\xff\xff\xff\xff",
    "huge map": b"\xdf\xff\xff\xff\xff",
    "huge number": b"\x91\xcf" + b"\xff" * 8,
    "deep nesting": b"\x92\x01" + b"\x91" * 1_000_000,
    "deep maps": b"\x92\x01" + b"\x81\x01" * 1_000_000,
    "no such message": b"\x91\x7f",
    "no such type": b"\xc1",
    "trailing": encode(Probe(())) + b"\x00",
    "id too short": msgspec.msgpack.encode([2, [[b"x" * 15, "h", 1, 0]]]),
    "id too long": msgspec.msgpack.encode([2, [[b"x" * 17, "h", 1, 0]]]),
    "id no bytes": msgspec.msgpack.encode([2, [["x" * 16, "h", 1, 0]]]),
    "port 0": msgspec.msgpack.encode([2, [[b"x" * 16, "h", 0, 0]]]),
    "negative boot": msgspec.msgpack.encode([2, [[b"x" * 16, "h", 1, -1]]]),
    "no host": msgspec.msgpack.encode([2, [[b"x" * 16, "", 1, 0]]]),
    "a line break in a host": msgspec.msgpack.encode([2, [[b"x" * 16, "edge\nforged", 1, 0]]]),
    "a NUL in a host": msgspec.msgpack.encode([2, [[b"x" * 16, "a\0b", 1, 0]]]),
    "a path for a host": msgspec.msgpack.encode([2, [[b"x" * 16, "../..", 1, 0]]]),
    "broken UTF-8": msgspec.msgpack.encode([2, [[b"x" * 16, "aa", 1, 0]]]).replace(b"aa", b"\xff\xfe"),
    "too many": encode(Probe((A_PEER,) * 65)),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_give_one_short_line(body: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(body)
    assert len(str(caught.value)) <= 120
    assert str(caught.value).isprintable()


def test_an_unknown_type_raises_type_error() -> None:
    with pytest.raises(TypeError):
        Codec[object](object).encode(object())


def test_one_line() -> None:
    assert one_line("a\nb\x00c") == "a?b?c"
    assert len(one_line("x" * 10_000)) == 120


def mutated(body: bytes, dice: random.Random) -> bytes:
    broken = bytearray(body)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(broken))
        match dice.randrange(3):
            case 0:
                broken[at] = dice.randrange(256)
            case 1:
                del broken[at]
                broken = broken or bytearray(b"\x00")
            case _:
                broken.insert(at, dice.randrange(256))
    return bytes(broken)


SAMPLES = [
    encode(Probe((A_PEER, A_PEER))),
    encode(Route(A_PEER, 5, Id(9), 0, b"payload")),
    encode(Parcel(b"abc")),
    encode_hello(Hello("ring", A_PEER, True, Id(3))),
]


def test_hundred_thousand_random_strings_give_nothing_but_protocol_errors() -> None:
    dice = random.Random(3)
    refused = understood = 0
    for number in range(100_000):
        body = mutated(dice.choice(SAMPLES), dice) if number % 2 else dice.randbytes(dice.randrange(40))
        for decoder in (decode, decode_hello):
            try:
                decoder(body)
                understood += 1
            except ProtocolError:
                refused += 1
        decode_goodbye(body)
    assert refused > 100_000
    assert understood > 1_000
