"""Who may ask what."""

from __future__ import annotations

import pytest

from ringmq.peer.administration.requests import CHANGES, Subject
from ringmq.peer.administration.rights import Asker, refusal


@pytest.mark.parametrize("asker", list(Asker))
@pytest.mark.parametrize("subject", list(Subject))
def test_only_a_reader_over_http_may_not_change_anything(asker: Asker, subject: Subject) -> None:
    expected = f"{subject} needs a token that may write" if asker is Asker.READER and subject in CHANGES else ""
    assert refusal(asker, subject) == expected


def test_the_subjects_that_change_something() -> None:
    assert {"kick", "clear"} == CHANGES
