"""The approaches: their names, and options that peers accept."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, SCRIBE, WITHOUT_BOUND, Approach, guided
from ringmq.logger.config import is_run
from ringmq.peer.settings.load import load


def test_approaches_have_labels_and_keys_that_are_valid_in_run_names() -> None:
    labels = ["Scribe", "Direct", "Guided F=5", "Guided F=10", "Guided F=25", "Guided F=∞"]
    assert [approach.label for approach in ALL] == labels
    keys = ["scribe", "direct", "guided-5", "guided-10", "guided-25", "guided-inf"]
    assert [approach.key for approach in ALL] == keys
    assert all(is_run(approach.key) for approach in ALL)


@pytest.mark.parametrize("approach", ALL)
def test_peers_accept_the_options_of_an_approach(approach: Approach) -> None:
    options = [name.removeprefix("--") for name in approach.options]
    config = load(None, dict(zip(options[::2], options[1::2], strict=True)) | fanout_of(approach))
    assert config.dispatch == approach.dispatch
    assert config.fanout == approach.fanout


def fanout_of(approach: Approach) -> dict[str, object]:
    """The fan-out as an integer, as click converts it."""
    return {} if approach.fanout is None else {"fanout": int(approach.options[-1])}


def test_options_have_the_fanout_of_guided_only() -> None:
    assert SCRIBE.options == ("--dispatch", "scribe")
    assert DIRECT.options == ("--dispatch", "direct")
    assert guided(5).options == ("--dispatch", "guided", "--fanout", "5")
    assert guided(5) != WITHOUT_BOUND
