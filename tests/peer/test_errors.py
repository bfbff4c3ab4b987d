"""Errors about settings: all that is wrong is kept, and the first line is what an error says."""

from __future__ import annotations

import pytest

from ringmq.peer.errors import ConfigError, Faults, PeerError


def test_config_error_text_is_the_first_line() -> None:
    assert str(ConfigError("one")) == "one"
    assert ConfigError("one").lines == ("one",)
    error = ConfigError("one", "two")
    assert (str(error), error.lines) == ("one", ("one", "two"))


def test_faults_are_collected_in_order() -> None:
    faults = Faults()
    with faults.gathered():
        raise ConfigError("one", "two")
    with faults.gathered():
        pass
    with faults.gathered():
        raise ConfigError("three")
    with pytest.raises(ConfigError) as caught:
        faults.raise_any()
    assert caught.value.lines == ("one", "two", "three")


def test_raise_any_without_faults_raises_nothing() -> None:
    Faults().raise_any()


def test_other_errors_are_not_collected() -> None:
    faults = Faults()
    with pytest.raises(PeerError, match="no setting"), faults.gathered():
        raise PeerError("no setting")
    assert faults.lines == []
