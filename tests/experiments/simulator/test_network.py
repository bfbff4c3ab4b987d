"""The network has the delays and faults of its weather."""

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringmq.experiments.simulator.network import DELAYS_S, Network, Weather
from ringmq.overlay.core.ids import MASK, Id
from ringmq.overlay.core.timing import PRESETS

ids = st.integers(0, MASK).map(Id)
A, B = Id(1 << 100), Id(1 << 60 | 5)


def network(seed: int = 1, **weather: object) -> Network:
    return Network(Weather(**weather), Random(seed))  # type: ignore[arg-type]


@given(ids, ids, st.sampled_from(list(DELAYS_S.values())))
@example(Id(0), Id(0xFFFFFFFFFFFFFC00), (0.001, 0.01))
def test_pair_has_the_same_delay_in_both_directions(first: Id, second: Id, delay_s: tuple[float, float]) -> None:
    net = network(delay_s=delay_s)
    assert net.fates(first, second, 0.0) == net.fates(second, first, 7.0) == (net.delay(first, second),)
    assert delay_s[0] <= net.delay(first, second) <= delay_s[1]


def test_delays_are_uniform_in_their_range() -> None:
    random, net = Random(3), network(delay_s=(1.0, 3.0))
    delays = [net.delay(Id(random.getrandbits(128)), Id(random.getrandbits(128))) for _ in range(4000)]
    assert sum(delays) / 4000 == pytest.approx(2.0, abs=0.05)
    assert min(delays) < 1.05
    assert max(delays) > 2.95


def test_delays_of_each_preset_fit_its_timeouts() -> None:
    assert DELAYS_S.keys() == PRESETS.keys()
    for name, (_, slowest) in DELAYS_S.items():
        assert 2 * slowest < PRESETS[name].hop_s < PRESETS[name].probe_s * 1.01


def test_share_of_lost_messages_is_loss() -> None:
    net = network(loss=0.2)
    arrived = sum(bool(net.fates(A, B, 0.0)) for _ in range(20_000))
    assert arrived == pytest.approx(16_000, rel=0.02)
    assert net.lost == 20_000 - arrived


@pytest.mark.parametrize(("share", "mean_s"), [(0.05, 2.0), (0.3, 0.5)])
def test_bursts_have_the_given_share_and_mean_length(share: float, mean_s: float) -> None:
    net = network(burst_loss=share, burst_s=mean_s)
    step_s, steps = 0.02, 400_000
    bad = [not net.fates(A, B, step * step_s) for step in range(steps)]
    bursts = sum(now and not before for before, now in zip([False, *bad], bad, strict=False))
    assert sum(bad) / steps == pytest.approx(share, rel=0.15)
    assert sum(bad) * step_s / bursts == pytest.approx(mean_s, rel=0.15)


def test_share_of_bursts_does_not_depend_on_the_rate_of_messages() -> None:
    net = network(burst_loss=0.2, burst_s=1.0)
    lost = sum(not net.fates(A, B, step * 50.0) for step in range(5000))
    assert lost / 5000 == pytest.approx(0.2, rel=0.1)


def test_burst_affects_one_direction_only() -> None:
    net = network(burst_loss=0.5, burst_s=1000.0)
    while net.fates(A, B, 0.0) or not net.fates(B, A, 0.0):
        net = network(net.lost + 17, burst_loss=0.5, burst_s=1000.0)
    assert [bool(net.fates(A, B, 0.1)), bool(net.fates(B, A, 0.1))] == [False, True]


def test_duplicates_arrive_later() -> None:
    net = network(duplication=0.1)
    fates = [net.fates(A, B, 0.0) for _ in range(10_000)]
    twice = [fate for fate in fates if len(fate) == 2]
    assert len(twice) / 10_000 == pytest.approx(0.1, rel=0.1)
    assert all(first <= second <= 2 * first for first, second in twice)
    assert net.lost == 0


def test_jitter_lets_messages_overtake_each_other() -> None:
    net = network(jitter=0.5)
    delays = [delay for _ in range(1000) for delay in net.fates(A, B, 0.0)]
    least = net.delay(A, B)
    assert all(least <= delay <= 1.5 * least for delay in delays)
    assert len(set(delays)) > 900
    assert delays != sorted(delays)
    assert {network().fates(A, B, now) for now in range(100)} == {(least,)}


def test_split_separates_the_sides_until_it_heals() -> None:
    net, other = network(), Id(77)
    net.split({A: 1, B: 2})
    assert net.fates(A, B, 0.0) == net.fates(A, other, 0.0) == net.fates(other, B, 0.0) == ()
    assert net.lost == 3
    net.split({A: 1, B: 1})
    assert net.fates(A, B, 0.0) != ()
    assert net.fates(other, Id(78), 0.0) != (), "both on side 0"
    net.heal()
    assert net.fates(A, other, 0.0) != ()


@pytest.mark.parametrize(
    ("weather", "lossless"),
    [({}, True), ({"jitter": 1.0, "duplication": 0.5}, True), ({"loss": 0.1}, False), ({"burst_loss": 0.1}, False)],
)
def test_weather_is_lossless_without_loss_and_bursts(weather: dict[str, float], lossless: bool) -> None:
    assert Weather(**weather).lossless is lossless  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_weather() -> None:
    rough = {"loss": 0.1, "burst_loss": 0.1, "jitter": 0.5, "duplication": 0.1}
    networks = [network(seed, **rough) for seed in (5, 5, 6)]
    fates = [[net.fates(A, B, step * 0.1) for step in range(500)] for net in networks]
    assert fates[0] == fates[1] != fates[2]


def test_send_takes_the_longer_of_gap_and_bytes() -> None:
    assert Weather().takes_s(1 << 20) == 0.0
    assert Weather(gap_s=0.5).takes_s(1 << 20) == 0.5
    slow = Weather(gap_s=0.5, uplink_bits_per_s=800.0)
    assert slow.takes_s(10) == 0.5
    assert slow.takes_s(100) == 1.0


@pytest.mark.parametrize(("weather", "expected"), [({}, False), ({"gap_s": 1e-6}, True)])
def test_parcels_wait_for_each_other_only_if_sending_takes_time(weather: dict[str, float], expected: bool) -> None:
    assert network(**weather).in_turn is expected
    assert network(uplink_bits_per_s=1e6).in_turn


def test_a_cut_loses_one_direction_of_one_pair_for_a_while() -> None:
    network = Network(Weather(), Random(1))
    one, other, third = Id(1), Id(2), Id(3)
    network.cut(one, other, until=2.0)
    assert network.fates(one, other, 1.0) == ()
    assert network.fates(other, one, 1.0)
    assert network.fates(one, third, 1.0)
    assert network.fates(one, other, 2.0)
    assert network.lost == 1
