"""Landing, with the process or the power cut at every step: each record is still landed exactly once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.durable_files import Disk
from ringmq.collector.ingest.intake import Batch, Intake
from ringmq.collector.ingest.seen import Source
from ringmq.collector.ingest.spool import Spool
from tests.collector.ingest_bench import PEER, TOPIC, dead, landed, lines, names

FOLDER = Path("/data")
NOW = 1_800_000_100.5


class CutError(Exception):
    """The process or the machine ends here."""


class Content:
    """The content of a file, independent of its name."""

    def __init__(self) -> None:
        self.now = b""
        self.durable = b""


class Memory(Disk):
    """A disk in memory that can be cut at any step. Like a journal, it keeps the names in a folder once the folder is
    synchronised. Of later changes it keeps a random selection; a move is kept completely or not at all.
    """

    def __init__(self, chance: random.Random) -> None:
        self.files: dict[Path, Content] = {}
        self.left = -1
        """Steps until the cut; below 0: no cut."""
        self.steps = 0
        self._chance = chance
        self._durable: dict[Path, Content] = {}
        self._journal: list[tuple[set[Path], Callable[[dict[Path, Content]], None]]] = []

    def make(self, folder: Path) -> None:
        self._step()

    def names(self, folder: Path) -> list[str]:
        return sorted(file.name for file in self.files if file.parent == folder)

    def read(self, file: Path) -> bytes | None:
        content = self.files.get(file)
        return None if content is None else content.now

    def write(self, file: Path, pieces: Iterable[bytes]) -> None:
        data = b"".join(pieces)
        content = self.files.get(file)
        if content is None:
            content = Content()
            self._change({file.parent}, lambda names: names.update({file: content}))
        content.now = data[: self._chance.randrange(len(data) + 1)]
        content.durable = content.now[: self._chance.randrange(len(content.now) + 1)]
        self._step()
        content.now = content.durable = data

    def move(self, file: Path, to: Path) -> None:
        self._step()
        content = self.files[file]
        assert to not in self.files or to.suffix == ".json", (
            "a landed file may have been read already and must not change"
        )

        def apply(names: dict[Path, Content]) -> None:
            if names.get(file) is content:
                del names[file]
            names[to] = content

        self._change({file.parent, to.parent}, apply)

    def remove(self, file: Path) -> None:
        self._step()
        self._change({file.parent}, lambda names: names.pop(file, None) and None)

    def sync(self, folder: Path) -> None:
        self._step()
        for folders, apply in self._journal:
            if folder in folders:
                apply(self._durable)
        self._journal = [entry for entry in self._journal if folder not in entry[0]]

    def end_power(self) -> None:
        """Replace the files by the content of the disk at the next start of the machine."""
        for _, apply in self._journal:
            if self._chance.random() < 0.5:
                apply(self._durable)
        self._journal.clear()
        for content in self._durable.values():
            content.now = content.durable
        self.files = dict(self._durable)

    def _change(self, folders: set[Path], apply: Callable[[dict[Path, Content]], None]) -> None:
        apply(self.files)
        self._journal.append((folders, apply))

    def _step(self) -> None:
        if self.left == 0:
            raise CutError
        self.left -= 1
        self.steps += 1


class Site:
    """A peer that sends each message until it is acknowledged, and an ingest of it."""

    MESSAGES = tuple(lines(range(first, first + 3)) + b"\nbad %d" % first for first in range(0, 15, 3))

    def __init__(self, seed: object) -> None:
        self.disk = Memory(random.Random(str(seed)))
        self.acknowledged = 0

    def run(self) -> None:
        """One life of the ingest. Acknowledged messages are not sent again, except the last, which may be repeated."""
        spool = Spool(FOLDER, self.disk)
        intake = Intake(spool.seen)
        while self.acknowledged < len(self.MESSAGES):
            for message in self.MESSAGES[max(self.acknowledged - 1, 0) : self.acknowledged + 1]:
                intake.take(TOPIC, message, NOW)
            spool.land(intake.batch())
            self.acknowledged += 1

    def lines(self, folder: str) -> list[dict[str, Any]]:
        """The lines of all files in a folder. Every file must be complete."""
        found = []
        for name in self.disk.names(FOLDER / folder):
            content = self.disk.read(FOLDER / folder / name)
            assert content
            assert content.endswith(b"\n")
            found += [json.loads(line) for line in content.splitlines()]
        return found

    def check(self, recovered: bool) -> None:
        """Check that no record is repeated or incomplete, and that no acknowledged record is lost."""
        numbers = [number for _, _, number in names(self.lines("landing"))]
        assert sorted(set(numbers)) == sorted(numbers)
        assert set(numbers) >= set(range(3 * self.acknowledged))
        bad = {letter["line"] for letter in self.lines("dead")}
        assert bad >= {f"bad {3 * number}" for number in range(self.acknowledged)}
        if recovered:
            assert self.disk.names(FOLDER / "spool" / "landing") == []
            assert self.disk.names(FOLDER / "spool" / "dead") == []


def count_cuts(ending: Callable[[Memory], object], *, second: bool) -> int:
    """Cut a life at each step, and with `second` also the next life at each step. Returns the number of cuts."""
    count = 0
    at = 0
    while True:
        then = 0
        while True:
            site = Site((at, then))
            if not cut(site, at, ending):
                return count
            cut_again = second and cut(site, then, ending)
            count += 1 + cut_again
            site.disk.left = -1
            Spool(FOLDER, site.disk)
            site.check(recovered=True)
            site.run()
            site.check(recovered=True)
            assert len(site.lines("landing")) == 15
            if not cut_again:
                break
            then += 1
        at += 1


def cut(site: Site, at: int, ending: Callable[[Memory], object]) -> bool:
    site.disk.left = at
    try:
        site.run()
    except CutError:
        ending(site.disk)
        site.check(recovered=False)
        return True
    return False


def test_process_end_at_any_step_loses_and_repeats_nothing() -> None:
    assert count_cuts(lambda disk: None, second=True) > 1000


def test_power_cut_at_any_step_loses_and_repeats_nothing() -> None:
    assert count_cuts(Memory.end_power, second=True) > 1000


def test_each_batch_without_a_cut_is_one_file(tmp_path: Path) -> None:
    site = Site(0)
    site.run()
    assert len(site.disk.names(FOLDER / "landing")) == len(site.disk.names(FOLDER / "dead")) == 5


# -- on a real disk


def batch_of(spool: Spool, *payloads: bytes) -> Batch:
    intake = Intake(spool.seen)
    for payload in payloads:
        intake.take(TOPIC, payload, NOW)
    return intake.batch()


def test_batches_are_landed_and_the_state_is_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "new" / "data")
    spool.land(batch_of(spool, lines([0, 1, 4])))
    spool.land(batch_of(spool, lines([1, 2]), b"bad"))
    data = spool.folder
    assert [number for *_, number in names(landed(data))] == [0, 1, 4, 2]
    assert [letter["line"] for letter in dead(data)] == ["bad"]
    assert sorted(file.name for file in (data / "landing").iterdir()) == [
        f"{spool.id}-000000000001.jsonl",
        f"{spool.id}-000000000002.jsonl",
    ]
    assert [file.name for file in (data / "dead").iterdir()] == [f"{spool.id}-000000000002.jsonl"]
    assert spool.files == 2
    reopened = Spool(data)
    assert (reopened.id, reopened.files, reopened.seen.sources) == (
        spool.id,
        0,
        [Source(PEER, 1_800_000_000_000, 0, 0, 5, [(3, 4)])],
    )
    reopened.land(batch_of(reopened, lines([2, 3])))
    assert (data / "landing" / f"{spool.id}-000000000003.jsonl").exists()
    assert [number for *_, number in names(landed(data))] == [0, 1, 4, 2, 3]


def test_empty_batch_writes_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    before = (tmp_path / "ingest.json").stat().st_mtime_ns, sorted(tmp_path.rglob("*"))
    spool.land(Batch())
    assert before == ((tmp_path / "ingest.json").stat().st_mtime_ns, sorted(tmp_path.rglob("*")))


def test_batch_of_dead_letters_writes_no_file_of_records(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.land(batch_of(spool, b"bad"))
    assert (spool.files, landed(tmp_path), len(dead(tmp_path))) == (0, [], 1)


def test_file_of_another_state_is_landed_and_foreign_files_stay(tmp_path: Path) -> None:
    Spool(tmp_path)
    spool = tmp_path / "spool" / "landing"
    (spool / "0123456789ab-000000000007.jsonl").write_bytes(b"{}\n")
    (spool / "notes.txt").write_bytes(b"mine")
    Spool(tmp_path)
    assert [file.name for file in (tmp_path / "landing").iterdir()] == ["0123456789ab-000000000007.jsonl"]
    assert [file.name for file in spool.iterdir()] == ["notes.txt"]


STATE = {"v": 1, "id": "0123456789ab", "batches": 3, "given_up": 0, "sources": [[PEER, 5, 0, 0, 9, [[2, 3]]]]}
ADVICE = "restore it, or remove it: records that peers send again are then landed again"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "truncated"),
        (b"\x00\xff", "malformed"),
        (b'{"v":1', "truncated"),
        (b"{}", "`v`"),
        (b'{"v":1,"id":"\xff23456789abc"}', "utf-8"),
        (STATE | {"id": "x"}, "$.id"),
        (STATE | {"batches": -1}, "$.batches"),
        (STATE | {"more": 1}, "`more`"),
        (STATE | {"sources": [[PEER, 5, 0, 0, 9]]}, "$.sources[0]"),
        (STATE | {"sources": [[PEER, 5, 0, 0, 9, [[3, 2]]]]}, f"the numbers seen of peer {PEER} are no sequence"),
    ],
)
def test_damaged_state_raises_one_line_and_changes_nothing(tmp_path: Path, content: Any, reason: str) -> None:
    file = tmp_path / "ingest.json"
    waiting = _left_in_the_spool(tmp_path)
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    file.write_bytes(raw)
    with pytest.raises(CollectorError) as caught:
        Spool(tmp_path)
    text = str(caught.value)
    assert text.startswith(f"data: {file} is damaged (")
    assert reason in text
    assert text.endswith(f"): {ADVICE}")
    assert (file.read_bytes(), waiting.read_bytes()) == (raw, b"{}\n")


def test_state_of_another_version_raises_one_line_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "ingest.json"
    waiting = _left_in_the_spool(tmp_path)
    file.write_bytes(b'{"v":2,"other":[]}')
    with pytest.raises(CollectorError) as caught:
        Spool(tmp_path)
    advice = "use the ringmq that wrote it, or another folder"
    assert str(caught.value) == f"data: {file} must have version 1, got 2: {advice}"
    assert (file.read_bytes(), waiting.read_bytes()) == (b'{"v":2,"other":[]}', b"{}\n")
    file.write_bytes(json.dumps(STATE).encode())
    assert Spool(tmp_path).seen.missing == 1
    assert not waiting.exists()


def test_removed_state_loses_nothing(tmp_path: Path) -> None:
    waiting = _left_in_the_spool(tmp_path)
    spool = Spool(tmp_path)
    assert not waiting.exists()
    spool.land(batch_of(spool, lines([0])))
    assert len(landed(tmp_path)) == 2


def _left_in_the_spool(data: Path) -> Path:
    waiting = data / "spool" / "landing" / "0123456789ab-000000000003.jsonl"
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"{}\n")
    return waiting


def test_full_disk_loses_no_landed_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    spool.land(batch_of(spool, lines([0, 1])))
    batch = batch_of(spool, lines([2, 3]))

    def full(self: Disk, file: Path, pieces: Iterable[bytes]) -> None:
        file.write_bytes(b"".join(pieces)[:100])
        raise CollectorError("data: full")

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "write", full)
        with pytest.raises(CollectorError, match="full"):
            spool.land(batch)
    assert [number for *_, number in names(landed(tmp_path))] == [0, 1]
    reopened = Spool(tmp_path)
    assert reopened.seen.sources[0].next == 2
    assert list((tmp_path / "spool" / "landing").iterdir()) == []


def test_state_file_has_its_documented_form(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.land(batch_of(spool, lines([0, 2])))
    state = msgspec.json.decode((tmp_path / "ingest.json").read_bytes())
    source = [PEER, 1_800_000_000_000, 0, 0, 3, [[1, 2]]]
    assert state == {"v": 1, "id": spool.id, "batches": 1, "given_up": 0, "sources": [source]}
