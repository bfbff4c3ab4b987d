"""Recording rings: settings of the peers, and requirements on the machine. Tests of `trial` run a real ring."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ringmq.experiments.studies.harness import rings
from ringmq.experiments.studies.harness.rings import SPARE_BYTES, RecordingPeer, why_not
from ringmq.overlay.core.ids import Id
from ringmq.peer.identity.data_folder import DataFolder
from ringmq.peer.settings.load import load


def test_settings_file_of_a_recording_peer_is_valid(tmp_path: Path) -> None:
    folder = tmp_path / "peer"
    peer = RecordingPeer(1, ("127.0.0.1", 1), ("127.0.0.1", 2), folder, Id(77), "nodes-1-direct")
    config = load(folder / "peer.toml", {"mqtt": "127.0.0.1:2"})
    assert config.data is not None
    with DataFolder(config.data, 1) as data:
        assert data.id == 77
    assert config.record.run == "nodes-1-direct"
    assert config.record.file == peer.records
    assert (config.record.deliveries, config.record.every, config.record.mqtt) == ("each", 1, False)
    assert tomllib.loads((folder / "peer.toml").read_text())["record"]["interval_s"] == rings.INTERVAL_S


@pytest.mark.parametrize(
    ("free_mb", "wanted"), [(100, "50 peers need 4548 MB of memory, and 100 are free"), (99_999, None)]
)
def test_ring_needs_enough_memory(tmp_path: Path, free_mb: int, wanted: str | None) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text(f"MemTotal: 1 kB\nMemAvailable:   {free_mb * 1024} kB\n")
    assert why_not(50, memory) == wanted


def test_unknown_memory_is_assumed_to_be_enough(tmp_path: Path) -> None:
    assert why_not(50, tmp_path / "nowhere") is None


def test_ring_needs_space_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = SPARE_BYTES - 1

    monkeypatch.setattr("shutil.disk_usage", lambda disk: Usage)
    assert "are free on the disk" in str(why_not(1, tmp_path / "nowhere", tmp_path))
