"""Peers of a checkout: found, started by its command line, and ended."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from ringmq.experiments.load import reachability
from ringmq.experiments.load.raw_clients import BenchError, connected
from ringmq.experiments.processes.checkouts import Checkout, environment, other, ring_of, this

CORE = min(os.sched_getaffinity(0))


def made(folder: Path, script: str) -> Path:
    """A checkout whose `ringmq` is this script."""
    program = folder / ".venv" / "bin" / "ringmq"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return folder


def real(folder: Path) -> Path:
    return made(folder, f'exec "{sysconfig.get_path("scripts")}/ringmq" "$@"')


def test_a_folder_without_an_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=rf"^{tmp_path} has no \.venv/bin/ringmq: run: make -C {tmp_path} venv$"):
        other(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=rf"^there is no folder {tmp_path}/gone$"):
        other(tmp_path / "gone")


def test_an_environment_made_for_another_folder_is_refused(tmp_path: Path) -> None:
    folder = real(tmp_path)
    stamp = folder / ".venv" / "made-for"
    stamp.write_text("/some where/else 123 456\n", encoding="utf-8")
    with pytest.raises(BenchError, match=rf"was made for /some where/else: run: make -C {tmp_path} venv"):
        other(folder)
    stamp.write_text(f"{tmp_path} 123 456\n", encoding="utf-8")
    assert other(folder) == Checkout("other", tmp_path, tmp_path / ".venv/bin/ringmq")


def test_this_checkout_is_the_one_that_measures() -> None:
    found = this()
    assert os.access(found.program, os.X_OK)
    assert (found.folder / "pyproject.toml").exists()


def test_checkout_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(BenchError, match="install this checkout"):
        this()


def test_peers_inherit_nothing_that_lends_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("SOMETHING", "else")
    env = environment(tmp_path, seed=3)
    assert not {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"} & set(env)
    assert (env["SOMETHING"], env["PYTHONHASHSEED"], env["PYTHONPYCACHEPREFIX"]) == ("else", "3", str(tmp_path))


def test_peers_of_a_checkout_are_one_ring_on_a_core_and_end(tmp_path: Path) -> None:
    checkout = other(real(tmp_path / "checkout"))
    with ring_of(checkout, 2, CORE, environment(tmp_path / "bytecode", seed=0)) as ring:
        servers = [peer.server for peer in ring.peers]
        assert len({server.pid for server in servers}) == 2
        for server in servers:
            assert os.sched_getaffinity(server.pid) == {CORE}
            connected(server.address, "a").close()
    assert not any(Path(f"/proc/{server.pid}").exists() for server in servers)
    assert list((tmp_path / "bytecode").rglob("*.pyc"))


def test_error_of_a_peer_that_does_not_start_has_the_reason(tmp_path: Path) -> None:
    checkout = other(made(tmp_path, "echo first >&2; echo ringmq: no such option >&2; exit 2"))
    with (
        pytest.raises(BenchError, match=rf"a peer of other \({tmp_path}\) does not accept .*: ringmq: no such option$"),
        ring_of(checkout, 1, CORE, environment(tmp_path, seed=0)),
    ):
        pass


def test_program_that_cannot_be_run_is_an_error(tmp_path: Path) -> None:
    checkout = other(real(tmp_path))
    checkout.program.chmod(0o644)
    with pytest.raises(BenchError, match="cannot start a peer of other"), ring_of(checkout, 1, CORE, dict(os.environ)):
        pass


def test_peers_that_pass_no_messages_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(addresses: object) -> None:
        raise BenchError("no message came through")

    monkeypatch.setattr(reachability, "check", fail)
    with (
        pytest.raises(BenchError, match=r"^this \(.*\): no message came through"),
        ring_of(this(), 1, CORE, environment(tmp_path, seed=0)),
    ):
        pass
