"""Simulated training steps with updates inside the reduction: the part of the bound they reach."""

from dlcp_lab.simulation.operation import SimHardware, network_of
from dlcp_lab.simulation.training import SimTraining, share, train

HOSTS, RATE, SIZE = 4, 200e6, 4 << 20
LINE = SIZE * 8 * 2 * (HOSTS - 1) / HOSTS / RATE  # seconds that a wire carries a step's bytes


def test_weights_of_updates_within_the_backward_pass_keep_no_gradient_from_the_wire() -> None:
    """Computation takes as long as communication. In the order of their updates, weights keep back
    gradients that step() waits for: then it is 0.65."""
    network = network_of(SimHardware(HOSTS, RATE, 200e-6, 50e-6))
    training = SimTraining(SIZE, LINE, layers=8, eager=True)
    trainers = train(network, training, 3)
    assert share(network, training, trainers) > 0.74
