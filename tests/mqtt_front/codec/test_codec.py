"""The codec as a whole: encoded packets are decoded, in every version, and garbage gives only PacketError."""

import functools
import os
import random

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.codec import codec, reasons
from ringmq.mqtt_front.codec.codec import decode, decode_connect, encode, read_publish, split_publish_properties
from ringmq.mqtt_front.codec.fields import write_varint
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    NO_PROPERTIES,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    RetainHandling,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.properties import TABLE, WILL
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import PacketError

V31, V311, V5 = Version
FUZZED = int(os.environ.get("RINGMQ_FUZZED_PACKETS", "100000"))
"""How many random packets are read; 1000000 for a long look."""

texts = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8)
data = st.binary(max_size=8)
u16, u32, flags, ids = st.integers(0, 65_535), st.integers(0, (1 << 32) - 1), st.integers(0, 1), st.integers(1, 65_535)
qos = st.integers(0, 2)
names = st.text(st.characters(exclude_characters="\0+#", codec="utf-8"), min_size=1, max_size=8)

VALUES: dict[str, st.SearchStrategy[object]] = {
    "payload_format": flags,
    "response_topic": names,
    "correlation_data": data,
    "authentication_data": data,
    "server_keep_alive_s": u16,
    "receive_maximum": ids,
    "topic_alias_maximum": u16,
    "topic_alias": ids,
    "maximum_packet_size": st.integers(1, (1 << 32) - 1),
    "user_properties": st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
} | dict.fromkeys(("message_expiry_s", "session_expiry_s", "will_delay_s"), u32)
SUBSCRIPTION_IDS = st.integers(1, 268_435_455)


def properties_of(section: int) -> st.SearchStrategy[Properties]:
    """Any that may stand in this section, by the table of the codec, which has a test of its own."""
    fields: dict[str, st.SearchStrategy[object]] = {}
    for row in TABLE.values():
        if section not in row.sections:
            continue
        if row.name == "subscription_ids":
            fields[row.name] = st.lists(SUBSCRIPTION_IDS, max_size=3 if section == Kind.PUBLISH else 1).map(tuple)
        else:
            is_flag = row.name.startswith(("request_", "maximum_qos")) or row.name.endswith("_available")
            fields[row.name] = VALUES.get(row.name, flags if is_flag else texts)

    def checked(properties: Properties) -> bool:
        return properties.authentication_data is None or properties.authentication_method is not None

    return st.fixed_dictionaries({}, optional=fields).map(lambda found: Properties(**found)).filter(checked)  # type: ignore[arg-type]


def one_of(known: dict[int, Reason]) -> st.SearchStrategy[Reason]:
    return st.sampled_from(list(known.values()))


@functools.cache
def of_version(version: Version) -> st.SearchStrategy[Packet]:
    """Any packet of this version."""

    def own(section: int) -> st.SearchStrategy[Properties]:
        return properties_of(section) if version is V5 else st.just(NO_PROPERTIES)

    def reason(known: dict[int, Reason]) -> st.SearchStrategy[Reason]:
        return one_of(known) if version is V5 else st.just(Reason.SUCCESS)

    def many(known: dict[int, Reason]) -> st.SearchStrategy[tuple[Reason, ...]]:
        return st.lists(one_of(known), min_size=1, max_size=4).map(tuple)

    is_5 = version is V5
    off = st.just(False)
    filters = st.one_of(names, st.sampled_from(("#", "+", "/", "a/+/b", "+/#"))).filter(
        lambda text: not text.startswith("$share/")
    )
    subscriptions = st.builds(
        Subscription,
        filters,
        qos,
        st.booleans() if is_5 else off,
        st.booleans() if is_5 else off,
        st.sampled_from(RetainHandling) if is_5 else st.just(RetainHandling.ALWAYS),
    )
    kinds: list[st.SearchStrategy[Packet]] = [
        connects(version),
        connacks(version),
        publishes(version),
        st.builds(Puback, ids, reason(reasons.PUBACK_REASONS), own(Kind.PUBACK)),
        st.builds(Pubrec, ids, reason(reasons.PUBACK_REASONS), own(Kind.PUBREC)),
        st.builds(Pubrel, ids, reason(reasons.PUBREL_REASONS), own(Kind.PUBREL)),
        st.builds(Pubcomp, ids, reason(reasons.PUBREL_REASONS), own(Kind.PUBCOMP)),
        st.builds(Subscribe, ids, st.lists(subscriptions, min_size=1, max_size=4).map(tuple), own(Kind.SUBSCRIBE)),
        st.builds(Suback, ids, many(reasons.SUBACK_REASONS if is_5 else reasons.SUBACK_3), own(Kind.SUBACK)),
        st.builds(Unsubscribe, ids, st.lists(filters, min_size=1, max_size=4).map(tuple), own(Kind.UNSUBSCRIBE)),
        st.builds(Unsuback, ids, many(reasons.UNSUBACK_REASONS) if is_5 else st.just(()), own(Kind.UNSUBACK)),
        st.just(Pingreq()),
        st.just(Pingresp()),
        st.builds(Disconnect, reason(reasons.DISCONNECT_REASONS), own(Kind.DISCONNECT)),
    ]
    if is_5:
        kinds.append(st.builds(Auth, one_of(reasons.AUTH_REASONS), own(Kind.AUTH)))
    return st.one_of(kinds)


def connects(version: Version) -> st.SearchStrategy[Connect]:
    is_5 = version is V5
    nothing = st.just(NO_PROPERTIES)
    wills = st.builds(Will, names, data, qos, st.booleans(), properties_of(WILL) if is_5 else nothing)
    connect = st.builds(
        Connect,
        st.just(version),
        texts,
        st.booleans(),
        u16,
        st.none() | wills,
        st.none() | texts,
        st.none() | data,
        properties_of(Kind.CONNECT) if is_5 else nothing,
    )
    return connect.filter(lambda found: is_5 or found.password is None or found.user_name is not None)


def connacks(version: Version) -> st.SearchStrategy[Connack]:
    if version is V5:
        refused = one_of(reasons.CONNACK_REASONS)
    else:  # those that come back as they were: several reasons share a return code
        refused = st.sampled_from([code for code in reasons.CONNACK_3 if code.name not in ("SERVER_BUSY", "BANNED")])
        refused = refused.filter(lambda code: code is not Reason.SERVER_SHUTTING_DOWN)
    own = properties_of(Kind.CONNACK) if version is V5 else st.just(NO_PROPERTIES)
    accepted = st.booleans() if version is not V31 else st.just(False)
    return st.builds(Connack, accepted, st.just(Reason.SUCCESS), own) | st.builds(Connack, st.just(False), refused, own)


def publishes(version: Version) -> st.SearchStrategy[Publish]:
    own = properties_of(Kind.PUBLISH) if version is V5 else st.just(NO_PROPERTIES)
    payloads = st.binary(max_size=300)
    return st.one_of(
        st.builds(Publish, names, payloads, st.just(0), st.booleans(), st.just(False), st.just(0), own),
        st.builds(Publish, names, payloads, st.integers(1, 2), st.booleans(), st.booleans(), ids, own),
    )


@pytest.mark.parametrize("version", Version)
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_encoded_packets_are_decoded_to_equal_packets(version: Version, data: st.DataObject) -> None:
    packet = data.draw(of_version(version))
    raw = encode(version, packet)
    reader = PacketReader()
    reader.shortest_lengths = True
    ((first, body),) = reader.feed(raw)
    assert decode(version, first, body) == packet
    assert decode(version, first, bytes(body)) == packet


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_truncated_packet_is_malformed(data: st.DataObject) -> None:
    """But for those whose end may be left out, and payloads and lists, which have no length of their own."""
    open_ended = (Publish, Puback, Pubrec, Pubrel, Pubcomp, Subscribe, Suback, Unsubscribe, Unsuback, Disconnect, Auth)
    version = data.draw(st.sampled_from([V311, V5]))
    packet = data.draw(of_version(version))
    ((first, body),) = PacketReader().feed(encode(version, packet))
    for size in range(len(body)):
        try:
            assert decode(version, first, body[:size]) != packet
        except PacketError:
            continue
        assert isinstance(packet, open_ended)


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """With a byte changed, one taken out, one put in, or the end cut off; sometimes several of these."""
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(changed) + 1)
        what = rng.randrange(4)
        if what == 0:
            changed.insert(at, rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256))))
        elif what == 1:
            del changed[at:]
        elif at < len(changed):
            changed[at] = rng.choice((0, changed[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
    return bytes(changed)


_PAIRS = (("a", "b"), ("a", "ä"))
_WHY = Properties(reason_string="r", user_properties=_PAIRS)
_MESSAGE = Properties(
    payload_format=1,
    message_expiry_s=5,
    content_type="text",
    response_topic="re/ply",
    correlation_data=b"\0\1",
    user_properties=_PAIRS,
)
SAMPLES: list[Packet] = [
    Connack(True, Reason.SUCCESS, Properties(receive_maximum=9, assigned_client_id="c", maximum_qos=1)),
    Publish("a/b", b"payload", properties=msgspec.structs.replace(_MESSAGE, topic_alias=3, subscription_ids=(1, 128))),
    Publish("a/b", b"payload", 1, True, False, 7),
    Publish("ä", bytes(200), 2, False, True, 65_535, _MESSAGE),
    Puback(1, Reason.NO_MATCHING_SUBSCRIBERS, _WHY),
    Pubrec(2),
    Pubrel(3, Reason.PACKET_IDENTIFIER_NOT_FOUND, _WHY),
    Pubcomp(4),
    Subscribe(5, (Subscription("a/+", 1), Subscription("$share/g/#", 2)), Properties(subscription_ids=(300,))),
    Suback(6, (Reason.GRANTED_QOS_1, Reason.UNSPECIFIED_ERROR), _WHY),
    Unsubscribe(7, ("a/+", "#"), Properties(user_properties=_PAIRS)),
    Unsuback(8, (Reason.NO_SUBSCRIPTION_EXISTED,), _WHY),
    Pingreq(),
    Pingresp(),
    Disconnect(Reason.DISCONNECT_WITH_WILL, Properties(session_expiry_s=3, reason_string="r")),
]


def samples() -> list[tuple[Version, bytes]]:
    """Packets to be mutated, with much in them."""
    own = Properties(session_expiry_s=1, authentication_method="m", authentication_data=b"d", receive_maximum=1)
    found = []
    for version in Version:
        will = Will("w/t", b"gone", 1, True, msgspec.structs.replace(_MESSAGE, will_delay_s=4))
        packets = [*SAMPLES, Connect(version, "client", True, 60, will, "user", b"secret", own)]
        found += [(version, encode(version, packet)) for packet in packets]
    auth = Auth(Reason.CONTINUE_AUTHENTICATION, Properties(authentication_method="m", authentication_data=b"d"))
    return [*found, (V5, encode(V5, auth))]


def read_all(version: Version, stream: bytes) -> int:
    """Read a stream to its end or its first fault; gives how many packets were in it."""
    found: list[Packet] = []
    try:
        for first, body in PacketReader(10_000).feed(stream):
            found.append(decode(version, first, body))
            if first >> 4 == Kind.PUBLISH and version is V5:
                split_publish_properties(read_publish(version, first, body)[2])
    except PacketError as error:
        assert isinstance(error.reason, Reason)  # noqa: PT017  # it may as well end without one
    for packet in found:
        # What passes can be written again, and then says the same.
        ((first, body),) = PacketReader().feed(encode(version, packet))
        assert decode(version, first, body) == packet
    return len(found)


def test_garbage_gives_only_packet_errors() -> None:
    """Random bytes seldom get far, so most are packets with something wrong in them. The seed replays any failure."""
    seeds = samples()
    rng = random.Random(0x0317)
    good = 0
    for number in range(FUZZED):
        version, raw = rng.choice(seeds)
        if number % 4:
            stream = mutated(rng, raw)
            if number % 2 and len(raw) < 129:  # with a length that is right, so that the body is read
                stream = stream[:1] + write_varint(max(len(stream) - 2, 0)) + stream[2:]
        else:
            stream = bytes((rng.randrange(256),)) + write_varint(body := rng.randrange(40)) + rng.randbytes(body)
        good += read_all(rng.choice((version, version, *Version)), stream)
    assert FUZZED * 0.05 < good < FUZZED * 0.95, "nearly all or nearly none are good: this looks at nothing"


@settings(max_examples=300)
@given(st.sampled_from(list(Version)), st.binary(max_size=60))
def test_any_bytes_give_only_packet_errors(version: Version, stream: bytes) -> None:
    read_all(version, stream)
    for first in (0x10, 0x30, 0x82):
        for read in (lambda: decode(version, first, stream), lambda: decode_connect(first, stream)):  # noqa: B023
            try:
                read()
            except PacketError:
                continue


def test_codec_exports_the_functions_that_sessions_use() -> None:
    assert all(callable(getattr(codec, name)) or name == "PINGRESP" for name in codec.__all__)
    assert sorted(codec.__all__) == codec.__all__
