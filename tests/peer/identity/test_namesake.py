"""A copy of a data folder that was refused once lets the original come back first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ringmq.overlay.errors import IdTakenError, OverlayError
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity import namesake as module
from ringmq.peer.identity.namesake import Namesake

AT = ("10.0.0.1", 4883)


class Asked:
    """Answers one question after the other; the last answer is repeated."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.count = 0

    async def __call__(self, address: tuple[str, int]) -> None:
        assert address == AT
        self.count += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_S", 0.01)
    monkeypatch.setattr(module, "VACANT_S", 0.1)


async def test_nobody_is_asked_if_the_id_was_never_refused(tmp_path: Path) -> None:
    asked = Asked(None)
    await Namesake(tmp_path).wait_until_gone(asked, asyncio.Event())
    assert asked.count == 0


async def test_the_refusal_holds_when_the_namesake_is_restarted_meanwhile(tmp_path: Path) -> None:
    namesake = Namesake(tmp_path)
    namesake.note(AT)
    asked = Asked(OverlayError("refused"), OverlayError("refused"), IdTakenError("id taken", AT))
    with pytest.raises(IdTakenError):
        await namesake.wait_until_gone(asked, asyncio.Event())
    assert asked.count == 3
    assert namesake.address == AT


async def test_a_namesake_that_stays_away_is_forgotten(tmp_path: Path) -> None:
    namesake = Namesake(tmp_path)
    namesake.note(AT)
    asked = Asked(OverlayError("refused"))
    await namesake.wait_until_gone(asked, asyncio.Event())
    assert asked.count > 1
    assert namesake.address is None


async def test_another_peer_at_its_address_ends_the_wait(tmp_path: Path) -> None:
    namesake = Namesake(tmp_path)
    namesake.note(AT)
    asked = Asked(None)
    await namesake.wait_until_gone(asked, asyncio.Event())
    assert asked.count == 1
    assert namesake.address is None


async def test_a_signal_ends_the_wait_and_keeps_the_note(tmp_path: Path) -> None:
    namesake = Namesake(tmp_path)
    namesake.note(AT)
    stopped = asyncio.Event()
    stopped.set()
    await namesake.wait_until_gone(Asked(OverlayError("refused")), stopped)
    assert namesake.address == AT


def test_a_note_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    namesake = Namesake(tmp_path)
    namesake.file.write_text("nonsense")
    assert namesake.address is None
    namesake.forget()
    namesake.forget()
    with pytest.raises(DataFolderError, match="cannot write"):
        Namesake(tmp_path / "missing").note(AT)
