"""Systems of each kind: their servers and addresses."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringmq.experiments.benchmarks.topics.systems import MOSQUITTO, Source
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.checkouts import Checkout, this
from ringmq.experiments.processes.servers import why_not

CORE = min(os.sched_getaffinity(0))


def test_peers_of_a_checkout_share_a_core(tmp_path: Path) -> None:
    with Source("this", this()).opened(2, (), CORE, tmp_path, 1) as system:
        assert len(system.servers) == 2
        assert all(os.sched_getaffinity(pid) == {CORE} for pid in system.pids)
        assert system.address(3) == system.addresses[1]
        assert system.ring is not None
        system.ring.kill(system.ring.peers[0])
        assert system.addresses == [system.ring.peers[1].mqtt]


def test_peers_that_do_not_start_name_their_checkout(tmp_path: Path) -> None:
    program = tmp_path / "ringmq"
    program.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
    program.chmod(0o755)
    source = Source("other", Checkout("other", tmp_path, program))
    expected = rf"a peer of other \({tmp_path}\) does not accept connections"
    with pytest.raises(BenchError, match=expected), source.opened(1, (), CORE, tmp_path, 1):
        pass


@pytest.mark.skipif(why_not(MOSQUITTO) is not None, reason="needs mosquitto")
def test_mosquittos_are_bridged(tmp_path: Path) -> None:
    with Source(MOSQUITTO).opened(2, (), CORE, tmp_path, 1) as system:
        assert system.ring is None
        assert len(set(system.pids)) == 2
