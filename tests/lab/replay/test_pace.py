"""What an order of gradients can be worth: cases that one can work out by hand."""

import pytest

from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.pace import (
    Pace,
    compute,
    crossing_at_best,
    on_the_line,
    paces,
    waiting_at_best,
)
from dlcp_lab.replay.shapes import Layer

ROUNDING = 1e-9  # of sums in another order


def test_two_hosts_send_each_gradient_once() -> None:
    network = (Layer("one", ((1_000_000,),), 1),)
    assert on_the_line(network, bits_per_second=32e6, hosts=2) == pytest.approx(1.0)
    assert on_the_line(network, bits_per_second=32e6, hosts=4) == pytest.approx(1.5)


@pytest.mark.parametrize("name", NETWORKS)
def test_computation_is_shared_out_by_arithmetic(name: str) -> None:
    network = NETWORKS[name]()
    found = paces(network, 3.0, 1.5)
    assert compute(found) == pytest.approx(2.0)
    assert sum(pace.line for pace in found) == pytest.approx(3.0)
    for layer, pace in zip(network, found, strict=True):
        assert pace.backward == pytest.approx(2 * pace.forward)
        assert (pace.forward > 0) == (layer.macs > 0)


def test_one_layer_has_nothing_to_cross() -> None:
    only = [Pace(1.0, 2.0, 3.0)]
    assert waiting_at_best(only) == crossing_at_best(only) == 6.0


def test_the_last_layers_gradients_hide_in_the_next_forward_pass() -> None:
    """The heavy layer's gradient is ready first and needed last: backward 2 + forward 2 of the
    first layer lie between."""
    found = [Pace(2.0, 2.0, 0.0), Pace(0.0, 0.0, 4.0)]
    assert waiting_at_best(found) == 6.0
    assert crossing_at_best(found) == 4.0


def test_what_is_ready_last_and_needed_first_hides_nowhere() -> None:
    found = [Pace(0.0, 0.0, 4.0), Pace(2.0, 2.0, 0.0)]
    assert waiting_at_best(found) == crossing_at_best(found) == 8.0


@pytest.mark.parametrize("ratio", [0.2, 1.0, 1.5, 5.0])
@pytest.mark.parametrize("name", NETWORKS)
def test_crossing_is_never_slower(name: str, ratio: float) -> None:
    found = paces(NETWORKS[name](), 1.0, ratio)
    waiting, crossing = waiting_at_best(found), crossing_at_best(found)
    assert max(compute(found), 1.0) <= crossing <= waiting + ROUNDING
    assert waiting <= compute(found) + 1.0 + ROUNDING
