"""The file with every setting: it is committed as it is printed, means all defaults, and holds what can be set."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.logger.config import RecordConfig
from ringmq.mqtt_front.config import FrontConfig
from ringmq.overlay.config import Address, show
from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.load import (
    LIMITS,
    MAX_DELAY_S,
    MAX_RULES,
    RECORD,
    RULE,
    SETTINGS,
    TABLES,
    Setting,
    load,
    parse_delay,
)
from ringmq.peer.settings.model import FANOUT, PeerConfig, Rule
from ringmq.peer.settings.reference import EXAMPLES, RECORD_EXAMPLES, UNSET, WIDTH, as_toml, documented, reference

COMMITTED = Path(__file__).parents[3] / "docs" / "ringmq.toml"
TEXT = reference()
EVERYTHING = re.sub(r"^#(?=\S)", "", TEXT, flags=re.MULTILINE)
"""With each setting said."""
FOUND: dict[str, Any] = tomllib.loads(EVERYTHING)
KINDS = (PeerConfig, FrontConfig, RecordConfig, Rule)


def test_committed_file_equals_the_printed_file() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == TEXT, "run: ringmq config example > docs/ringmq.toml"


def test_unchanged_file_means_all_defaults() -> None:
    assert load(COMMITTED, {}) == PeerConfig()


def test_reference_has_every_setting() -> None:
    assert list(FOUND) == [*SETTINGS, *TABLES]
    assert list(FOUND["limits"]) == list(LIMITS)
    assert list(FOUND["record"]) == list(RECORD)
    assert [list(rule) for rule in FOUND["topics"]] == [list(RULE)]


@pytest.mark.parametrize(
    ("found", "settings", "default"),
    [
        (FOUND, SETTINGS, PeerConfig()),
        (FOUND["limits"], LIMITS, FrontConfig()),
        (FOUND["record"], RECORD, RecordConfig()),
    ],
    ids=["peer", "limits", "record"],
)
def test_values_are_defaults_or_valid_examples(
    found: dict[str, object], settings: dict[str, Setting], default: object
) -> None:
    for name, setting in settings.items():
        value = setting.read(found[name])
        if getattr(default, name) not in UNSET:
            assert value == getattr(default, name), name


def test_settings_without_default_have_a_marked_example() -> None:
    for kind, examples in ((PeerConfig, EXAMPLES), (RecordConfig, RECORD_EXAMPLES)):
        unset = {field.name for field in dataclasses.fields(kind) if field.default in UNSET} - {*TABLES}
        assert set(examples) == unset
    assert TEXT.count("# Default: not set. An example:\n") == len(EXAMPLES) + len(RECORD_EXAMPLES) + 1


def changed(folder: Path, *changes: tuple[str, str]) -> Path:
    """The file with each setting said, and these lines in the place of others."""
    text = EVERYTHING
    for old, new in changes:
        assert f"\n{old}\n" in text
        text = text.replace(f"\n{old}\n", f"\n{new}\n", 1)
    file = folder / "peer.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_all_examples_are_valid_except_contradictions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(changed(tmp_path), {})
    assert caught.value.lines == (
        "amqtt_settings: /etc/ringmq/amqtt.yaml has no effect unless front is amqtt",
        "fanout: 10 has no effect with dispatch direct, which has no tree",
    )
    other = ('front = "own"', 'front = "amqtt"'), ('dispatch = "direct"', 'dispatch = "guided"')
    config = load(changed(tmp_path, *other), {})
    assert (config.front, config.dispatch, config.fanout, config.topics) == (
        "amqtt",
        "guided",
        10,
        (Rule("video/#", "guided", 4),),
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_documented_with_its_unit(kind: type) -> None:
    about = documented(kind)
    names = Rule._fields if kind is Rule else [field.name for field in dataclasses.fields(kind)]
    assert list(about) == list(names)
    for name, text in about.items():
        assert text.endswith("."), name
        assert not name.endswith("_s") or "Seconds" in text, name
        assert not name.endswith("_bytes") or "Bytes" in text, name
        assert "None" not in text or "None: " in text, "what a file calls not set"


def test_numbers_in_the_documentation_equal_the_code() -> None:
    assert documented(PeerConfig)["fanout"].endswith(f"None: {FANOUT}.")
    assert f"at most {MAX_RULES}." in documented(PeerConfig)["topics"]


def test_docstrings_are_found_under_their_fields() -> None:
    about = documented(Documented)
    assert about == {"one": "Said on two lines.", "three": "Said."}


class Documented:
    """Not that of a field."""

    one: int = 1
    """Said
    on two lines."""
    two: int = 2
    three: int
    """Said."""

    def four(self) -> None:
        """Nor that."""


def test_reference_is_well_formed() -> None:
    lines = TEXT.splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == ["[limits]", "[record]"]
    assert max(map(len, lines)) <= WIDTH
    assert "None:" not in TEXT
    assert all(line == line.rstrip() for line in lines)


def read(value: object) -> object:
    return tomllib.loads(f"value = {as_toml(value)}")["value"]


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.booleans() | st.integers() | st.floats(0, 1e300))
def test_plain_values_are_read_again(value: object) -> None:
    assert read(value) == value
    assert type(read(value)) is type(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (100_000, "100_000"),
        (0.5, "0.5"),
        (Path("/etc/ringmq"), '"/etc/ringmq"'),
        (("::1", 4883), '"[::1]:4883"'),
        ((("edge-1", 1), ("edge-2", 2)), '["edge-1:1", "edge-2:2"]'),
        ((("edge-1", 1),), '["edge-1:1"]'),
        ((0.001, 0.01), '"1-10ms"'),
        ((0.00005, 2.5), '"0.05-2500ms"'),
    ],
)
def test_values_are_formatted_as_toml(value: object, text: str) -> None:
    assert as_toml(value) == text


@given(st.lists(st.integers(0, int(MAX_DELAY_S * 1e6)), min_size=2, max_size=2).map(sorted))
def test_delays_are_read_again(span_us: list[int]) -> None:
    span = (span_us[0] / 1e6, span_us[1] / 1e6)
    assert parse_delay(read(span)) == pytest.approx(span)


@pytest.mark.parametrize("address", [("127.0.0.1", 1883), ("::1", 0), ("edge-1", 65535)])
def test_addresses_are_read_again(address: Address) -> None:
    assert read(address) == show(address)
    assert SETTINGS["overlay"].read(read(address)) == address


def test_unsupported_value_raises_type_error() -> None:
    with pytest.raises(TypeError, match="no setting has a value such as None"):
        as_toml(None)
