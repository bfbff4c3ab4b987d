"""The approaches: their names, and that peers understand their options."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, SCRIBE, WITHOUT_BOUND, Approach, guided
from ringmq.logger.config import is_run
from ringmq.peer.settings.load import load


def test_names() -> None:
    assert [one.label for one in ALL] == ["Scribe", "Direct", "Guided F=5", "Guided F=10", "Guided F=25", "Guided F=∞"]
    assert [one.key for one in ALL] == ["scribe", "direct", "guided-5", "guided-10", "guided-25", "guided-inf"]
    assert all(is_run(one.key) for one in ALL)


@pytest.mark.parametrize("approach", ALL)
def test_peers_understand_them(approach: Approach) -> None:
    options = [name.removeprefix("--") for name in approach.options]
    config = load(None, dict(zip(options[::2], options[1::2], strict=True)) | fanout_of(approach))
    assert config.dispatch == approach.dispatch
    assert config.fanout == approach.fanout


def fanout_of(approach: Approach) -> dict[str, object]:
    """As click makes it of the text."""
    return {} if approach.fanout is None else {"fanout": int(approach.options[-1])}


def test_options() -> None:
    assert SCRIBE.options == ("--dispatch", "scribe")
    assert DIRECT.options == ("--dispatch", "direct")
    assert guided(5).options == ("--dispatch", "guided", "--fanout", "5")
    assert guided(5) != WITHOUT_BOUND
