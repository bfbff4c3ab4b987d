"""Holds docs/protocol.md and the tables of docs/internals/ against the code."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import ModuleType

import msgspec

from ringmq.mqtt_front.sessions.journal import Journal
from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core import messages as ring_messages
from ringmq.overlay.core import timing
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness import suspicion
from ringmq.overlay.links import handshake, phase
from ringmq.overlay.links.frames import Kind
from ringmq.overlay.links.handshake import HARMLESS, Reason
from ringmq.peer.administration import requests
from ringmq.peer.engines.partitioned import messages as partitioned_messages
from ringmq.peer.engines.partitioned.enrolling import member
from ringmq.peer.engines.partitioned.enrolling import messages as enrolling_messages
from ringmq.peer.engines.scribe import codec as scribe_codec
from ringmq.peer.engines.scribe import messages as scribe_messages
from ringmq.peer.messaging import config, messages, publication
from ringmq.peer.replication import record
from ringmq.peer.streams import stream_messages

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "protocol.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")

NOT_ON_THE_WIRE = {"Trace", "Publication"}
"""Structs that cross a link as packed bytes: the tables of bytes describe them."""

MESSAGES: dict[str, tuple[ModuleType, ...]] = {
    "Links": (handshake,),
    "Encoding of messages": (),
    "Messages of the ring": (ring_messages,),
    "Payloads of publish and subscribe": (publication,),
    "Acknowledgement of publications": (messages,),
    "Streams between peers": (stream_messages,),
    "Items of the partitioned engine": (partitioned_messages, enrolling_messages, record, member),
    "Questions about the whole ring": (),
    "Messages of Scribe": (scribe_messages, scribe_codec),
}
"""Sections of the document, and the modules whose structs they list."""

INTERNALS = DOCUMENT.parent / "internals"

Row = tuple[str, ...]


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str, columns: int) -> Iterator[Row]:
    """Rows of all tables with that many columns, without their heads."""
    for line in text.splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if line.startswith("| ") and len(cells) == columns and not set(line) <= set("|- "):
            yield cells


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def row_of(struct: type[msgspec.Struct]) -> Row:
    tag = struct.__struct_config__.tag
    return ("–" if tag is None else str(tag), struct.__name__, *struct.__struct_fields__)


def structs_of(module: ModuleType) -> set[Row]:
    found = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, msgspec.Struct))
    own = {struct for struct in found if struct.__module__ == module.__name__}
    return {row_of(struct) for struct in own if struct.__name__ not in NOT_ON_THE_WIRE}


def test_each_message_stands_in_the_document_with_its_tag_and_fields() -> None:
    for title, modules in MESSAGES.items():
        listed = {
            (tag, *names_in(name), *names_in(order))
            for tag, name, order, _ in rows(section(title), 4)
            if tag == "–" or tag.isdigit()
        }
        expected = {row for module in modules for row in structs_of(module)}
        if title == "Encoding of messages":
            expected = {row_of(ring_messages.Peer)}
        elif title == "Questions about the whole ring":
            # The rows are no messages: fields are added to them as needed.
            asked = (requests.Request, requests.Page, requests.Reply, requests.NamedPeer, requests.Missing)
            expected = {row_of(struct) for struct in asked}
        elif title == "Messages of the ring":
            expected -= {row_of(ring_messages.Peer)}
        assert listed == expected, title


def test_each_kind_of_frame_stands_in_the_document() -> None:
    listed = {(number, *names_in(name)) for number, name, _ in rows(section("Links"), 3) if number.isdigit()}
    assert listed == {(str(int(kind)), kind.name) for kind in Kind}


def test_each_reason_of_a_goodbye_stands_in_the_document() -> None:
    listed = [row for row in rows(section("Links"), 4) if row[0].startswith("`")]
    assert {(*names_in(text), *names_in(name), harmless) for text, name, harmless, _ in listed} == {
        (reason.value, reason.name, "yes" if reason in HARMLESS else "") for reason in Reason
    }


def test_the_version_stands_in_the_document() -> None:
    assert f"version of the link protocol (**{handshake.VERSION}**)" in TEXT
    assert f"first byte of each HELLO, **{handshake.VERSION}**" in TEXT


def flags_on_the_wire() -> set[int]:
    """Flags of publications that each differ in one property from a publication with QoS 0 for a group."""
    me = ring_messages.Peer(Id(1), "host", 1, 1)
    plain = (1, 1, 0, "topic", b"", False, 0, 0, 0, False)
    publications = (
        publication.Publication(*plain[:2], 3, *plain[3:]),
        publication.Publication(*plain[:5], True, *plain[6:]),
        publication.Publication(*plain[:9], True),
        publication.Publication(*plain, shared=("$share/a/b",)),
        publication.Publication(*plain, relay=publication.Relay(me, "guided", 1, ())),
        publication.Publication(*plain, clears=True),
        publication.Publication(*plain, trace=publication.Trace(1)),
    )
    return {publication.encode(each)[1] for each in publications}


def test_flags_and_first_bytes_stand_in_the_document() -> None:
    payloads = section("Payloads of publish and subscribe")
    flags = {int(cells[0], 16) for cells in rows(payloads, 2) if cells[0].startswith("0x")}
    assert flags == flags_on_the_wire()
    first = {names_in(cells[0])[0].encode() for cells in rows(payloads, 2) if cells[0].startswith("`")}
    assert first == {publication.CONTROL, publication.MANY, publication.PUBLICATION, scribe_codec.TREE}


def test_limits_have_the_values_of_the_code() -> None:
    listed = [(value, *names_in(name)) for value, name, _ in rows(section("Limits"), 3) if names_in(name)]
    defaults = {field.name: field.default for field in fields(OverlayConfig)}
    faults = []
    for value, name in listed:
        module, _, constant = name.rpartition(".")
        actual = getattr(importlib.import_module(f"ringmq.{module}"), constant) if module else defaults[name]
        if str(actual) != value:
            faults.append(f"{name} is {actual}, the document has {value}")
    assert len(listed) > 20
    assert faults == []


def test_timeouts_have_the_values_of_the_presets() -> None:
    listed = [(*names_in(name), *values) for name, *values in rows(section("Limits"), 4) if names_in(name)]
    timings = [field.name for field in fields(timing.Timing)]
    assert [row[0] for row in listed][: len(timings)] == timings
    for name, *values in listed:
        presets = timing.PRESETS if name in timings else config.PRESETS
        assert values == [str(getattr(presets[preset], name)) for preset in ("local", "lan", "wan")], name


def cells_of(document: str) -> str:
    """All tables of a page in docs/internals/."""
    lines = (INTERNALS / document).read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if line.startswith("|"))


def test_the_internals_list_every_message_of_the_ring() -> None:
    tables = "\n".join(map(cells_of, ("joining.md", "death.md", "forwarding.md", "surveys.md")))
    messages = {row[1] for row in structs_of(ring_messages)} - {"Peer", "Parcel"}
    assert {name for name in names_in(tables) if name[0].isupper() and not name.isupper()} == messages


def test_the_internals_list_every_call_of_the_journal() -> None:
    calls = {name for name, call in vars(Journal).items() if callable(call) and not name.startswith("_")}
    assert calls - set(names_in(cells_of("durability.md"))) == {"close"}


def states_of(transitions: Mapping[tuple[Enum, Enum], Enum]) -> dict[str, set[str]]:
    """Each state with the states that may follow it."""
    found: dict[str, set[str]] = {state.name: set() for state in transitions.values()}
    for (before, _), after in transitions.items():
        found.setdefault(before.name, set()).add(after.name)
    return found


def states_in(document: str) -> dict[str, set[str]]:
    listed = [(names_in(state), names_in(after)) for state, _, after in rows(cells_of(document), 3)]
    return {state[0]: set(after) for state, after in listed if state}


def test_the_internals_list_every_state_and_its_successors() -> None:
    assert states_in("death.md") == states_of(suspicion.TRANSITIONS)
    assert states_in("forwarding.md") == states_of(phase.TRANSITIONS)
