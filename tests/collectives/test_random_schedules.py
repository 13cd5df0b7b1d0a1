"""A thousand random schedules over bad networks: the executor gives what the reference gives."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.collectives.execution import Execution
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.numerics.elements import STORAGE
from dlcpd.schedules.proof.interpreter import interpret
from tests.schedules.random_schedules import RandomSchedule, random_schedule

EACH = 50  # schedules of one case
NETWORKS = [
    SimLink(),
    SimLink(jitter=300e-6),
    SimLink(loss=0.05, jitter=40e-6),
    SimLink(duplicate=0.2, jitter=100e-6),
    SimLink(loss=0.15, duplicate=0.05, jitter=1e-3),
]
CASES = [
    pytest.param(first, marks=[] if first < 2 * EACH else pytest.mark.heavy)
    for first in range(0, 20 * EACH, EACH)
]


class WatchedPool(ScratchPool):
    """Knows which of its buffers are out, and that each comes back once."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.out: list[np.ndarray] = []

    def take(self, size: int) -> np.ndarray:
        buffer = super().take(size)
        assert not any(np.shares_memory(buffer, other) for other in self.out)
        self.out.append(buffer)
        return buffer

    def give(self, buffer: np.ndarray) -> None:
        held = [other for other in self.out if other is not buffer]
        assert len(held) == len(self.out) - 1
        self.out = held
        super().give(buffer)


def network(seed: int) -> SimNetwork:
    """Of two to five ranks; scratch memory is larger than some buffers, smaller than others."""
    link = NETWORKS[seed % len(NETWORKS)]
    net = SimNetwork(2 + seed % 4, link, seed=seed, segment_size=64, paths=1 + seed // 7 % 2)
    net.scratch[:] = [WatchedPool(pool.size) for pool in net.scratch]
    return net


def submit(
    net: SimNetwork, made: RandomSchedule, number: int, *, in_place: bool
) -> list[Execution]:
    """Every rank its program, ranks in an order by chance and not all at once."""
    operations = [
        net.operation(
            rank,
            number,
            given,
            dtype=made.dtype,
            op=made.op,
            program=program,
            in_place=in_place,
            output=np.full(size, 0xEE, np.uint8),
            digest_every=0,
            terms="random",
        )
        for rank, (program, given, size) in enumerate(
            zip(made.programs, typed(made), made.outputs, strict=True)
        )
    ]
    for rank in np.random.default_rng(number).permutation(len(operations)).tolist():
        net.sessions[rank].submit(operations[rank], 0, net.now)
        net.run(until=50e-6 * (number % 3))
    return operations


def typed(made: RandomSchedule) -> list[np.ndarray]:
    """Inputs as elements of their type; copies, since nothing may write them."""
    return [given.copy().view(STORAGE[made.dtype]) for given in made.inputs]


def run(seed: int) -> None:
    net = network(seed)
    made = random_schedule(seed, net.world_size, most=1 << 10 + seed % 4)
    expected = interpret(
        made.programs, made.inputs, outputs=made.outputs, dtype=made.dtype, op=made.op
    )
    operations = submit(net, made, 1, in_place=bool(seed % 2))
    net.run()
    for rank, operation in enumerate(operations):
        given, got = operation.memory
        assert got.tobytes() == expected[rank].tobytes(), f"schedule {seed}, rank {rank}"
        assert given.tobytes() == made.inputs[rank].tobytes()
        assert set(net.done(rank)) == net.released(rank) == {1}
        assert_nothing_left(net, rank, operation)


def assert_nothing_left(net: SimNetwork, rank: int, operation: Execution) -> None:
    """No operation, no timer, no scratch memory, no transfer."""
    session = net.sessions[rank]
    assert not session.operations
    assert session.broken is None
    assert net.endpoints[rank].next_timeout() is None
    assert not operation.buffers.scratch
    pool = net.scratch[rank]
    assert isinstance(pool, WatchedPool)
    assert not pool.out
    assert not operation.receives.staged
    for flow in session.flows.values():
        assert not flow.outgoing
        assert not bool(flow.arrivals)
        assert not flow.arrivals.expected
        assert not flow.arrivals.early.size


@pytest.mark.parametrize("first", CASES)
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + EACH):
        run(seed)
