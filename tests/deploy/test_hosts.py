"""Three machines on a network that is slow and loses frames: clients talk, one machine is lost, one is cut off.

What is held here is what docs/ring.md and docs/durability.md promise of messages with QoS 1 that were acknowledged.
"""

from __future__ import annotations

import itertools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ringmq.experiments.hosts.host import LACKS_IP, lacking
from ringmq.experiments.hosts.network import USUAL
from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.engines.partitioned.subscribing.home_lease import RENEWALS
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.space import key_of_partition
from tests.conftest import Eventually, Usage
from tests.deploy.clients import Publisher, Retainer, Sent, Subscriber, Traffic
from tests.deploy.hosts import Host, Network
from tests.mqtt_front.real_clients.missing import cannot
from tests.overlay.core.distances import distance

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(200)]

HOSTS = 3
CUT_S = 60.0
SHORT_CUT_S = 6.0
"""With the time in which the ring gets whole again, less than a peer stays on the lists."""
ON_THE_LISTS_S = LAN.entry_s * (RENEWALS - 1) / RENEWALS
"""For so long at least a peer that fell silent is waited for: its entries were renewed a while before."""
OFF_THE_LISTS_S = LAN.entry_s + 10.0
"""After so long nobody waits for it any more."""
WHOLE_S = 20.0
"""A split ring is one again once one of the dead was tried, which each peer does every 5 s."""
PINGS = 40
PINGS_AT_ONCE = 50
RETAINED = {"kept/one": b"1", "kept/other": b"1", "kept/first": b"2", "kept/last": b"2"}
ROOT = Path(__file__).resolve().parents[2]

Promised = Callable[[Sent, Publisher, Subscriber], bool]


def everything(sent: Sent, publisher: Publisher, subscriber: Subscriber) -> bool:
    return True


def nothing(sent: Sent, publisher: Publisher, subscriber: Subscriber) -> bool:
    return False


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    why = lacking()
    if why == LACKS_IP:
        cannot(why)
    if why:
        pytest.skip(f"NO TEST OF SEVERAL HOSTS: {why}")
    with Network(HOSTS, tmp_path_factory.mktemp("hosts")) as made:
        for host in made.hosts:
            made.start(host)
        yield made


@pytest.fixture
def traffic() -> Iterator[Traffic]:
    made = Traffic()
    yield made
    made.close()


@pytest.fixture
def ring(network: Network, traffic: Traffic) -> Network:
    """All hosts are there, and nothing is between them, whatever the test before has done."""
    for host in network.hosts:
        network.heal(host)
        if host.peer is None:
            network.start(host)
    traffic.until(lambda: network.are_one_ring(*network.hosts), "one ring of all", 2 * WHOLE_S)
    return network


class Site:
    """On each host a publisher, a subscriber to what all of them publish, and a kept session whose client is away."""

    def __init__(self, ring: Network, traffic: Traffic, name: str) -> None:
        self.traffic = traffic
        self._name = name
        self.live = {host: self.subscriber(host, "live") for host in ring.hosts}
        kept = {host: self.subscriber(host, "kept", kept=True) for host in ring.hosts}
        traffic.add(*self.live.values(), *kept.values())
        traffic.drop(*kept.values())
        self._kept_since = {host: client.subscribed_at for host, client in kept.items()}
        self.publishers = [Publisher(host, f"{name}-{host.number}", f"{name}/{host.number}") for host in ring.hosts]
        traffic.add(*self.publishers)
        traffic.until(lambda: all(one.acknowledged > 20 for one in self.publishers), "messages flow")

    def subscriber(self, host: Host, name: str, *, kept: bool = False, since: float = 0.0) -> Subscriber:
        return Subscriber(host, f"{self._name}-{name}-{host.number}", f"{self._name}/+", kept=kept, since=since)

    def newcomers(self, hosts: Iterable[Host], last_level: str) -> list[Subscriber]:
        """With another filter, so that the ring must be asked."""
        found = [Subscriber(host, f"{self._name}-new-{host.number}", f"{self._name}/{last_level}") for host in hosts]
        self.traffic.add(*found)
        return found

    def fetch(self, *hosts: Host) -> list[Subscriber]:
        """The clients of the kept sessions are back."""
        back = [self.subscriber(host, "kept", kept=True, since=self._kept_since[host]) for host in hosts]
        self.traffic.add(*back)
        for client in back:
            assert client.present, f"{client.name}: the session is gone"
        return back

    def check(self, subscribers: Iterable[Subscriber], promised: Promised, twice: Promised = nothing) -> None:
        """All that was promised arrives, in order, and nothing twice but what may."""
        pairs = [(one, other) for one in self.publishers for other in subscribers]

        def lost() -> dict[str, list[int]]:
            found = {f"{one.name} to {other.name}": missing(one, other, promised) for one, other in pairs}
            return {pair: numbers for pair, numbers in found.items() if numbers}

        with suppress(pytest.fail.Exception):  # what is missing says more
            self.traffic.until(lambda: not lost(), "what was promised arrives")
        assert lost() == {}
        for one, other in pairs:
            numbers = other.numbers(one)
            assert list(dict.fromkeys(numbers)) == sorted(set(numbers)), f"{one.name} to {other.name}: not in order"
            again = [number for number in set(numbers) if numbers.count(number) > 1]
            wrong = [number for number in again if not twice(one.sent[number], one, other)]
            assert wrong == [], f"{one.name} to {other.name}: twice"


def missing(publisher: Publisher, subscriber: Subscriber, promised: Promised) -> list[int]:
    """The messages that were acknowledged and promised, and have not arrived."""
    there = set(subscriber.numbers(publisher))
    return [
        one.number
        for one in publisher.sent
        if one.is_acknowledged and promised(one, publisher, subscriber) and one.number not in there
    ]


def acknowledged_before(at: float, sent: Sent, publisher: Publisher, subscriber: Subscriber) -> bool:
    return sent.acknowledged_at < at


def test_frames_are_late_and_get_lost(ring: Network) -> None:
    """Or the others would prove little."""
    sender, receiver = (
        host.inside(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for host in ring.hosts[:2]
    )
    with sender, receiver:
        receiver.bind((ring.hosts[1].address, 0))
        receiver.settimeout(0.1)
        delays: list[float] = []
        for _ in range(PINGS):
            for _ in range(PINGS_AT_ONCE):
                sender.sendto(repr(time.monotonic()).encode(), receiver.getsockname())
            with suppress(TimeoutError):
                for _ in range(PINGS_AT_ONCE):
                    sent = float(receiver.recv(100))
                    delays.append(time.monotonic() - sent)
    lost = 1 - len(delays) / (PINGS * PINGS_AT_ONCE)
    print(f"\n{lost:.1%} lost, {min(delays) * 1000:.1f} ms at least")
    assert USUAL.loss / 5 < lost < USUAL.loss * 5
    assert min(delays) >= USUAL.delay_s - USUAL.jitter_s


def test_clients_on_different_hosts_talk(ring: Network, tmp_path: Path, eventually: Eventually) -> None:
    """mosquitto_pub and mosquitto_sub, as a person would try it."""
    for command in ("mosquitto_pub", "mosquitto_sub"):
        if shutil.which(command) is None:
            cannot(f"{command} is not installed; on Debian: apt-get install mosquitto-clients")
    said = {host: tmp_path / f"{host.number}" for host in ring.hosts}
    listening = [listen(host, said[host]) for host in ring.hosts]
    try:
        for host in ring.hosts:
            eventually(lambda host=host: b"Subscribed" in said[host].read_bytes(), what="there was a SUBACK")
        for host in ring.hosts:
            host.run("mosquitto_pub", "-h", host.address, "-t", f"talk/{host.number}", "-m", "hello", "-q", "1")
        for process in listening:
            assert process.wait(20) == 0
    finally:
        for process in listening:
            process.kill()
            process.wait(10)
    for host in ring.hosts:
        lines = [line for line in said[host].read_text().splitlines() if line.startswith("talk/")]
        assert sorted(lines) == [f"talk/{other.number} hello" for other in ring.hosts]


def listen(host: Host, said: Path) -> subprocess.Popen[bytes]:
    """A mosquitto_sub on this host, until it has a message of each."""
    command = ["mosquitto_sub", "-h", host.address, "-t", "talk/+", "-q", "1", "-v", "-d", "-C", str(HOSTS)]
    with said.open("wb") as out:
        return host.inside(
            # Lines are to come at once, not when a buffer is full.
            lambda: subprocess.Popen(["stdbuf", "-oL", *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        )


def name_for(ring: Network, coordinator: Host) -> str:
    """A topic whose partition this host coordinates: it is nearest to its key."""
    ids = {host: Id.parse(host.status()["id"]) for host in ring.hosts}
    names = (f"lost-{number}" for number in itertools.count())
    return next(
        name
        for name in names
        if min(ids, key=lambda host: distance(ids[host], key_of_partition(partition_of(name)))) is coordinator
    )


def test_short_cut_loses_nothing(ring: Network, traffic: Traffic) -> None:
    """Whoever comes back before its leases have run out has everything."""
    site = Site(ring, traffic, "short")
    ring.cut(ring.hosts[1])
    traffic.through(SHORT_CUT_S)
    ring.heal(ring.hosts[1])
    traffic.until(lambda: ring.are_one_ring(*ring.hosts), "one ring again", WHOLE_S)
    traffic.settle(OFF_THE_LISTS_S)
    site.check([*site.live.values(), *site.fetch(*ring.hosts)], everything)


def test_restarted_peer_misses_nothing(ring: Network, traffic: Traffic) -> None:
    """As for an upgrade."""
    site = Site(ring, traffic, "restart")
    host, *others = ring.hosts
    traffic.drop(*[client for client in traffic.clients if client.host is host])
    host.stop()
    ring.start(host)
    traffic.until(lambda: ring.are_one_ring(*ring.hosts), "one ring again", WHOLE_S)
    traffic.settle(OFF_THE_LISTS_S)
    site.check([*[site.live[other] for other in others], *site.fetch(*ring.hosts)], everything)


def test_ring_survives_a_lost_host_and_readmits_it(ring: Network, traffic: Traffic) -> None:
    """It is the one that the others joined at, and that has the list of subscribers; it says nothing when it goes."""
    victim, *others = ring.hosts
    site = Site(ring, traffic, name_for(ring, victim))
    lost_at = time.monotonic()
    ring.lose(victim)
    traffic.drop(*[client for client in traffic.clients if client.host is victim])

    traffic.until(lambda: ring.are_one_ring(*others), "one ring of those that are left", WHOLE_S)
    print(f"\none ring of two after {time.monotonic() - lost_at:.1f} s")
    begun = time.monotonic()
    publisher = site.publishers[others[0].number]
    fresh = site.newcomers(others, str(publisher.host.number))
    print(f"new subscribers have their SUBACK after {time.monotonic() - begun:.1f} s")
    traffic.through(1.0)
    traffic.settle(OFF_THE_LISTS_S)
    print(f"all is acknowledged after {time.monotonic() - lost_at:.1f} s")
    alive = [site.live[host] for host in others]
    site.check([*alive, *site.fetch(*others)], everything)
    traffic.until(lambda: all(one.newest(publisher) for one in fresh), "new subscribers are served")
    site.check(fresh, lambda sent, its, new: its is publisher and sent.at > new.subscribed_at)

    ring.start(victim)
    traffic.until(lambda: ring.are_one_ring(*ring.hosts), "one ring again", WHOLE_S)
    # What it had on its disk, and could not say any more, it may be sent again.
    before = partial(acknowledged_before, lost_at)
    site.check(site.fetch(victim), before, twice=lambda *sent: not before(*sent))


def retain_on_both_sides(traffic: Traffic, host: Host, other: Host) -> None:
    """Each has a topic of its own, and of two topics that both set the later message counts."""
    one, another = Retainer(host, "one"), Retainer(other, "another")
    traffic.add(one, another)
    orders = [(one, "kept/one"), (another, "kept/other"), (one, "kept/first"), (another, "kept/last")]
    later = [(another, "kept/first"), (one, "kept/last")]
    for payload, who, topic in [*[(b"1", *order) for order in orders], *[(b"2", *order) for order in later]]:
        who.retain(topic, payload)
        traffic.until(lambda who=who: not who.unacknowledged, f"{topic} is kept")


def test_a_cut_network_heals(ring: Network, traffic: Traffic) -> None:
    site = Site(ring, traffic, "cut")
    *rest, alone = ring.hosts
    cut_at = time.monotonic()
    ring.cut(alone)
    traffic.through(OFF_THE_LISTS_S)

    # Each side goes on by itself.
    traffic.until(lambda: ring.are_one_ring(*rest) and ring.are_one_ring(alone), "two rings", WHOLE_S)
    sent = {one: len(one.sent) for one in site.publishers}
    traffic.until(lambda: all(one.acknowledged >= sent[one] for one in site.publishers), "acknowledged on both sides")
    fresh = site.newcomers(ring.hosts, "#")
    retain_on_both_sides(traffic, rest[0], alone)
    traffic.through(cut_at + CUT_S - time.monotonic())
    ring.heal(alone)
    healed_at = time.monotonic()

    traffic.until(lambda: ring.are_one_ring(*ring.hosts), "one ring again", WHOLE_S)
    print(f"\none ring {time.monotonic() - healed_at:.1f} s after the healing")
    everywhere = [*site.live.values(), *fresh]
    traffic.until(
        lambda: all(other.newest(one) > healed_at for one in site.publishers for other in everywhere),
        "what is published on one side gets to the other",
        WHOLE_S,
    )
    merged_at = time.monotonic()
    print(f"messages cross {merged_at - healed_at:.1f} s after the healing")
    traffic.through(2.0)
    traffic.settle(OFF_THE_LISTS_S)

    def promised(sent: Sent, publisher: Publisher, subscriber: Subscriber) -> bool:
        if sent.at < subscriber.subscribed_at:
            return False
        together = (publisher.host is alone) is (subscriber.host is alone)
        return together or sent.acknowledged_at < cut_at + ON_THE_LISTS_S or sent.at > merged_at

    site.check(everywhere, promised)
    site.check(site.fetch(*ring.hosts), promised)
    for host in ring.hosts:
        reader = Subscriber(host, f"reader-{host.number}", "kept/#")
        traffic.add(reader)
        traffic.until(lambda reader=reader: reader.retained == RETAINED, f"{host.number}: what was retained")


BUILDER = """
import os, signal, sys
from pathlib import Path
from tests.deploy.hosts import Network
network = Network(2, Path(sys.argv[1]))
for host in network.hosts:
    network.start(host)
print(network.switch.pid, *[host.peer.pid for host in network.hosts], flush=True)
sys.stdin.read()
"""


def test_killed_tests_leave_nothing(
    network: Network, tmp_path: Path, usage: type[Usage], eventually: Eventually
) -> None:
    """Namespaces and devices live no longer than the processes in them."""
    builder = subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with builder:
        assert builder.stdout is not None
        pids = [int(pid) for pid in builder.stdout.readline().split()]
        builder.kill()
    assert len(pids) == 3
    eventually(lambda: not any(usage(pid).runs for pid in pids), what="the switch and the peers have ended")
