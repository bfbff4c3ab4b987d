"""Records as rows of a message, and the time that is left of them."""

from __future__ import annotations

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.body import aged, encode_body, remaining_of
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.rows import Expiries, RowWriter, read_rows

HOME = Peer(Id(7), "h", 1, 0)


def message(expiry_s: int | None) -> SharedRecord:
    body = encode_body(Message("a", b"x", expires_at=expiry_s), 0.0)
    return SharedRecord(RecordKind.RETAINED, "a", None, (5, 5), False, body=body)


def test_written_rows_are_read_again() -> None:
    entry = SharedRecord(RecordKind.ENTRY, "f", HOME, (1, 2), True, False, 2)
    writer = RowWriter()
    for partition, record in ((7, entry), (4095, message(None)), (7, entry)):
        writer.add(partition, record)
    assert writer.homes == (HOME,)
    assert list(read_rows(writer.homes, writer.rows, lambda *_: True)) == [
        (7, entry),
        (4095, message(None)),
        (7, entry),
    ]


def test_a_row_with_an_unknown_home_is_left_out() -> None:
    writer = RowWriter()
    writer.add(7, SharedRecord(RecordKind.ENTRY, "f", HOME, (1, 2), False))
    assert list(read_rows((), writer.rows, lambda _, record: record.home is not None)) == []


def test_a_record_is_sent_with_the_time_that_is_left_or_as_its_end() -> None:
    expiries = Expiries(remaining_of, aged)
    record = message(100)
    expiries.changed(record, 10.0)
    assert remaining_of(expiries.told(record, 40.0).body) == 70
    assert expiries.told(record, 110.0) == record.ended()
    assert expiries.due(109.0) == []
    assert expiries.due(110.0) == ["a"]
    expiries.changed(message(None), 50.0)
    assert expiries.due(200.0) == []
    assert expiries.told(message(None), 200.0) == message(None)


def test_a_message_that_has_ended_expires_no_more() -> None:
    expiries = Expiries(remaining_of, aged)
    expiries.changed(message(100), 10.0)
    expiries.changed(message(100).ended(), 20.0)
    assert expiries.due(200.0) == []
    expiries.changed(message(100), 30.0)
    expiries.forget("a")
    assert expiries.due(200.0) == []
