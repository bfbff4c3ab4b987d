"""Hosts in network namespaces on a switch: addresses, and cuts of one direction. Needs root; else it is skipped."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from ringmq.experiments.hosts.host import Host, lacking
from ringmq.experiments.hosts.network import HostNetwork, LineWeather

CALM = LineWeather(delay_s=0.0, jitter_s=0.0, loss=0.0)


@pytest.fixture
def network() -> Iterator[HostNetwork[Host]]:
    why = lacking()
    if why:
        pytest.skip(why)
    with HostNetwork(2, Host, CALM) as made:
        yield made


def test_a_cut_in_one_direction_lets_the_other_pass(
    network: HostNetwork[Host], eventually: Callable[..., object]
) -> None:
    first, second = network.hosts
    with contextlib.ExitStack() as stack:
        ends = []
        for host in network.hosts:
            end = stack.enter_context(host.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
            end.bind((host.address, 9))
            end.setblocking(False)
            ends.append(end)

        def passes(source: int, target: int) -> bool:
            ends[source].sendto(b"x", (network.hosts[target].address, 9))
            with contextlib.suppress(BlockingIOError):
                return ends[target].recv(10) == b"x"
            return False

        eventually(lambda: passes(0, 1) and passes(1, 0), what="datagrams pass both ways")
        network.block([(0, 1)])
        eventually(lambda: passes(1, 0), what="the other direction passes")
        with contextlib.suppress(BlockingIOError):
            while ends[1].recv(10):  # those from before the cut
                pass
        assert not any(passes(0, 1) for _ in range(20))
        network.block([])
        network.change(CALM)
        eventually(lambda: passes(0, 1), what="healed")
    assert (first.address, second.address) == ("10.83.0.1", "10.83.0.2")


def test_descriptors_of_hosts_are_closed_when_the_network_ends() -> None:
    why = lacking()
    if why:
        pytest.skip(why)
    with HostNetwork(1, Host) as made:
        line = made.hosts[0].line
        process = made.switch
    assert process.poll() is not None
    with pytest.raises(OSError, match="Bad file descriptor"):
        made.hosts[0].inside(lambda: None)
    assert line > 0
