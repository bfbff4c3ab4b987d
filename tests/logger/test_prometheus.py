"""The page for Prometheus, read by its own parser: every number of a sample occurs once, under a documented name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ringmq.logger.prometheus import exposition
from ringmq.logger.records import LinkTraffic, Sample, Traffic

MakeSample = Callable[..., Sample]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "records.md"
NOT_EXPOSED = {"v", "number", "at"}
"""Members that describe the record instead of the peer."""
PEER_INFO = {
    "id": "a" * 32,
    "run": "spring",
    "address": "10.0.0.1:4883",
    "dispatching": "guided",
    "fanout": "1006",
    "boot": "1001",
    "pid": "1005",
}


def read(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """All values by name and labels. Fails if a series occurs twice."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith((".", "1"))
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def numbers_in(value: object) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (Traffic, LinkTraffic)):
        for inner in msgspec.structs.astuple(value):
            yield from numbers_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers_in(inner)


def test_every_value_of_a_sample_is_exposed(make_sample: MakeSample) -> None:
    sample = make_sample()
    page = read(exposition(sample, {}))
    labels = {text for _, pairs in page for _, text in pairs}
    exposed = set(page.values()) | {float(text) for text in labels if text.isdigit()}
    members = set(sample.__struct_fields__) - NOT_EXPOSED
    assert {number for name in members for number in numbers_in(getattr(sample, name))} <= exposed
    texts = {sample.run, sample.peer, sample.address, sample.dispatching, *sample.listeners, *sample.listeners.values()}
    assert texts <= labels


def test_values_have_their_names_and_labels(make_sample: MakeSample) -> None:
    page = read(exposition(make_sample(), {"links lost": 3, "wait_s": 0.5}))
    for name, labels, value in (
        ("ringmq_peer_info", PEER_INFO, 1),
        ("ringmq_uptime_seconds", {}, 1004.5),
        ("ringmq_cpu_seconds_total", {}, 1007.5),
        ("ringmq_memory_bytes", {}, 300 << 20),
        ("ringmq_mqtt_bytes_total", {"direction": "in"}, 1011),
        ("ringmq_mqtt_bytes_total", {"direction": "out"}, 1012),
        ("ringmq_overlay_messages_total", {"direction": "in"}, 1018),
        ("ringmq_overlay_messages_total", {"direction": "out"}, 1019),
        ("ringmq_log_dropped_total", {}, 1025),
        ("ringmq_link_bytes_total", {"peer": "b" * 32, "direction": "out"}, 1027),
        ("ringmq_link_round_trip_seconds", {"peer": "b" * 32}, 0.25),
        ("ringmq_events_total", {"event": "links lost"}, 3),
        ("ringmq_events_total", {"event": "wait_s"}, 0.5),
        ("ringmq_listener_info", {"listener": "mqtt", "address": "10.0.0.1:1883"}, 1),
    ):
        assert page[name, frozenset(labels.items())] == value, name


def test_counters_and_only_counters_end_in_total(make_sample: MakeSample) -> None:
    for family in text_string_to_metric_families(exposition(make_sample(), {"a": 1})):
        for sample in family.samples:
            assert re.fullmatch(r"ringmq_[a-z_]+", sample.name)
            assert sample.name.endswith("_total") == (family.type == "counter")
        assert family.type in ("counter", "gauge")


def test_unknown_values_are_omitted(make_sample: MakeSample) -> None:
    unknown = LinkTraffic(peer="c" * 32, bytes_in=1, bytes_out=2, queued_bytes=3)
    text = exposition(make_sample(links=[unknown], listeners={}), {})
    assert "round_trip" not in text
    assert "listener_info" not in text
    assert "events" not in text
    assert read(text)["ringmq_link_queued_bytes", frozenset({("peer", "c" * 32)})] == 3


def test_two_links_to_one_peer_are_one_series(make_sample: MakeSample) -> None:
    link = LinkTraffic(peer="c" * 32, bytes_in=1, bytes_out=10, queued_bytes=100, rtt_s=0.5)
    page = read(exposition(make_sample(links=[link, link]), {}))
    peer = ("peer", "c" * 32)
    assert page["ringmq_link_bytes_total", frozenset({peer, ("direction", "in")})] == 2
    assert page["ringmq_link_bytes_total", frozenset({peer, ("direction", "out")})] == 20
    assert page["ringmq_link_queued_bytes", frozenset({peer})] == 200
    assert page["ringmq_link_round_trip_seconds", frozenset({peer})] == 0.5


names = st.text(st.characters(codec="utf-8", exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=20)
"""Unlike Prometheus, the parser splits lines at other characters than line feeds too."""


@settings(deadline=None)
@given(st.dictionaries(names | st.sampled_from(['"', "\\", "\n", "\\n", 'a="b",c="']), st.integers(0, 1 << 53)))
def test_any_event_name_is_escaped(make_sample: MakeSample, counters: Mapping[str, int]) -> None:
    page = read(exposition(make_sample(), counters))
    found = {dict(labels)["event"]: value for (name, labels), value in page.items() if name == "ringmq_events_total"}
    assert found == counters


def test_every_line_ends_with_a_line_feed(make_sample: MakeSample) -> None:
    text = exposition(make_sample(run="spring"), {"a\nb": 1})
    assert text.endswith("\n")
    assert "\r" not in text
    for line in text[:-1].split("\n"):
        assert re.match(r"# (HELP|TYPE) ringmq_\w+ \S|ringmq_\w+(\{.*\})? [-+0-9.e]+$", line), line


def test_document_lists_every_name(make_sample: MakeSample) -> None:
    rows = re.findall(r"^\| `(ringmq_\w+)` \|([^|]*)\| (\w+)", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    families = list(text_string_to_metric_families(exposition(make_sample(), {"a": 1})))
    expected = {sample.name: (family.type, set(sample.labels)) for family in families for sample in family.samples}
    assert {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, labels, kind in rows} == expected
