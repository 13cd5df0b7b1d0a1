"""The cost model: what each part of the time follows, and the choice with its reason."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.planning.choice import DIRECT, ONE_SHOT, candidates, choose
from dlcpd.planning.cost import AROUND, ARRIVALS, EFFICIENCY, ROUND, predict
from dlcpd.schedules.builders.all_reduce import direct, one_shot
from dlcpd.schedules.layout import SEGMENT
from dlcpd.schedules.model import Program
from dlcpd.schedules.network import Costs, Host, JobNetwork, Rack

M = 10**6
FREE = Costs(0, 0, 0, 0)


def _network(rates: list[int], costs: Costs = FREE, racks: tuple[Rack, ...] = ()) -> JobNetwork:
    hosts = tuple(Host(f"h{n}", (rate,), (rate,)) for n, rate in enumerate(rates))
    return JobNetwork(hosts, racks, costs, 1)


def _direct(world: int, size: int) -> list[Program]:
    return [direct(rank, world, size, 1 << 20) for rank in range(world)]


def test_large_tensors_take_their_bytes() -> None:
    size = 4 * 4 * SEGMENT * 64
    found = predict(_direct(4, size), _network([100 * M] * 4))
    moved = size * 3 / 4 * 2 * (1 + AROUND / SEGMENT)
    assert found.bytes_seconds == pytest.approx(moved * 8 / (100 * M * EFFICIENCY))
    assert found.cpu_seconds == 0 and found.link is not None and found.link[0] == "host"


def test_small_tensors_take_their_rounds() -> None:
    costs = Costs(0, 0, 0, 10**6)
    network = _network([10**11] * 4, costs)
    two = predict(_direct(4, 4096), network)
    one = predict([one_shot(rank, 4, 4096) for rank in range(4)], network)
    assert one.seconds == pytest.approx(1e-3, rel=0.01)
    assert two.seconds == pytest.approx(1e-3 * (1 + ROUND), rel=0.01)


def test_the_busiest_host_and_its_cores_give_the_cpu_time() -> None:
    network = _network([10**14] * 2, Costs(1000, 100, 10_000, 0))
    programs = [one_shot(rank, 2, 10 * SEGMENT) for rank in range(2)]
    found = predict(programs, network)
    wake_ups = 1 + 1 / ARRIVALS
    assert found.cpu_seconds == pytest.approx((2 * 1000 + 20 * 100 + wake_ups * 10_000) * 1e-9)
    end = (1000 + 10_000) * 1e-9  # of the last transfer, on the receiver
    assert found.seconds == pytest.approx(found.cpu_seconds + end, rel=0.05)
    assert predict(programs, network, cores=4).cpu_seconds == found.cpu_seconds / 4


def test_an_uplink_is_the_limit_of_all_its_hosts() -> None:
    racks = (Rack(("h0", "h1"), 50 * M, 50 * M), Rack(("h2", "h3"), 50 * M, 50 * M))
    found = predict(_direct(4, 1 << 20), _network([100 * M] * 4, racks=racks))
    assert found.link is not None and found.link[0] == "rack"
    free = predict(_direct(4, 1 << 20), _network([100 * M] * 4))
    assert found.seconds > 2.5 * free.seconds


@pytest.mark.parametrize(
    ("rates", "name", "why"),
    [
        ([100 * M] * 4, DIRECT, "gain 1.00: all hosts are equal, direct is optimal"),
        ([10 * M], DIRECT, "gain 1.00: one host: nothing is sent"),
        ([25 * M] + [100 * M] * 3, "star 64", "gain 1.4"),
        ([25 * M, 100 * M], DIRECT, "gain 1.00: host h0 "),
    ],
)
def test_the_choice_says_why(rates: list[int], name: str, why: str) -> None:
    network = _network(rates, Costs(0, 0, 0, 50_000))
    chosen = choose(candidates(network, 2 << 20), network)
    assert chosen.name == name and chosen.why.startswith(why)


def test_small_tensors_go_in_one_round() -> None:
    network = _network([10**10] * 4, Costs(0, 0, 0, 100_000))
    chosen = choose(candidates(network, 1024), network)
    assert chosen.name == ONE_SHOT
    assert chosen.why.endswith("the tensor is small, and one round is faster than two")


def test_racks_get_trees_of_two_levels_and_both_times() -> None:
    racks = (Rack(("h0", "h2"), 50 * M, 50 * M), Rack(("h1", "h3"), 50 * M, 50 * M))
    network = _network([100 * M] * 4, racks=racks)
    chosen = choose(candidates(network, 4 << 20), network)
    assert chosen.name.startswith("racks ") and chosen.gain > 1.7
    assert "uplink of rack 0" in chosen.why and " ms with equal shares, " in chosen.why


def test_large_chunks_of_a_slow_host_delay_its_first_result() -> None:
    """Its link carries the first chunks of all trees at once; simulated: 1.37 times."""
    network = _network([25 * M] + [100 * M] * 3)
    made = candidates(network, 1 << 20)
    large, small = (predict(made[name], network).seconds for name in ("star 256", "star 64"))
    assert large > 1.1 * small


def test_a_busy_cpu_keeps_direct() -> None:
    network = _network([10**12] * 4, Costs(10**5, 10**4, 0, 0))
    chosen = choose(candidates(network, 4 << 20), network)
    assert chosen.name == DIRECT
    assert chosen.why == "gain 1.00: the CPU is the limit, and direct costs it least"


@given(
    st.lists(st.sampled_from([25 * M, 100 * M, 400 * M]), min_size=1, max_size=6),
    st.integers(4, 1 << 20),
    st.integers(0, 10**5),
)
def test_no_choice_is_predicted_slower_than_direct(rates: list[int], size: int, cost: int) -> None:
    network = _network(rates, Costs(cost, cost // 100, cost, cost))
    made = candidates(network, size)
    chosen = choose(made, network)
    assert chosen.prediction.seconds <= predict(made[DIRECT], network).seconds
    assert chosen.gain >= 1 and chosen.why.startswith(f"gain {chosen.gain:.2f}: ")
