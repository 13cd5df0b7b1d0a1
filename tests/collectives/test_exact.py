"""P1: exact is exact. Bit for bit the rank-ordered sum on every rank, on any network."""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw, rank_ordered
from dlcpd.contract.messages import DTYPES, REDUCE_OPS
from dlcpd.numerics.elements import STORAGE
from dlcpd.numerics.reduce import supports

WORLDS = (2, 3, 4, 7)
LOSSES = (0.0, 0.01, 0.05, 0.2)
SEGMENT, CHUNK_SEGMENTS = 64, 4


def awkward_sizes(world: int, itemsize: int) -> list[int]:
    """Elements: tiny, around a segment, around a chunk, several chunks per rank, a ragged end."""
    segment = SEGMENT // itemsize
    chunk = segment * CHUNK_SEGMENTS
    return [
        1,
        world - 1,
        63,
        segment - 1,
        segment,
        segment + 1,
        world * chunk - 1,
        world * chunk,
        world * chunk + 1,
        2 * world * chunk + 17,
    ]


def ops_of(dtype: str) -> list[str]:
    return [op for op in REDUCE_OPS if supports(dtype, op)]


def check(net: SimNetwork, cases: list[tuple[str, str, int]], seed: int) -> None:
    """All operations at once; every rank must hold the reference of each."""
    parts, held = {}, {}
    for number, (dtype, op, count) in enumerate(cases, 1):
        parts[number] = draw(dtype, net.world_size, count, seed + number)
        held[number] = copies(parts[number])
        net.submit_all(number, held[number], dtype=dtype, op=op)
    net.run()
    for number, (dtype, op, _) in enumerate(cases, 1):
        expected = rank_ordered(parts[number], dtype, op).tobytes()
        for rank, tensor in enumerate(held[number]):
            assert tensor.tobytes() == expected, f"operation {number} on rank {rank}"
    for rank in range(net.world_size):
        done = net.done(rank)
        assert sorted(done) == list(held)
        assert not any(d.stats.lost or d.stats.waived for d in done.values())
        assert net.released(rank) == set(held)
        assert net.one_shot or all(d.released for d in done.values())  # done once all have it
        assert not net.sessions[rank].operations


@pytest.mark.parametrize("one_shot", [False, True])
@pytest.mark.parametrize("paths", [1, 2])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("world", [*WORLDS[:-1], pytest.param(WORLDS[-1], marks=pytest.mark.heavy)])
def test_every_size_and_type(world: int, loss: float, paths: int, one_shot: bool) -> None:
    net = SimNetwork(
        world,
        SimLink(loss=loss, duplicate=0.02, jitter=40e-6),
        seed=world,
        segment_size=SEGMENT,
        chunk_segments=CHUNK_SEGMENTS,
        paths=paths,
        one_shot=one_shot,
    )
    cases = []
    for index, dtype in zip(range(len(DTYPES)), cycle(DTYPES), strict=False):
        size = awkward_sizes(world, STORAGE[dtype].itemsize)[(index + world + paths) % 10]
        ops = ops_of(dtype)
        cases.append((dtype, ops[index % len(ops)], size))
    check(net, cases, seed=int(loss * 100) + paths)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_chunks_of_many_segments(loss: float, seed: int) -> None:
    """Longer than the marked end of a pass, than a window and than a receive call."""
    net = SimNetwork(
        2 + seed % 2,
        SimLink(loss=loss, duplicate=0.01, jitter=100e-6),
        seed=seed,
        segment_size=64,
        chunk_segments=300,
        paths=1 + seed % 2,
    )
    check(net, [("float32", "sum", 12_000 + seed)], seed)


@given(
    world=st.integers(2, 5),
    loss=st.sampled_from(LOSSES),
    duplicate=st.sampled_from([0.0, 0.1]),
    jitter=st.sampled_from([0.0, 30e-6, 3e-3]),
    paths=st.integers(1, 3),
    cases=st.lists(
        st.tuples(
            st.sampled_from(DTYPES), st.sampled_from(["sum", "min", "max"]), st.integers(1, 1500)
        ),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 1 << 16),
    one_shot=st.booleans(),
)
@settings(max_examples=40)
def test_any_job_on_any_network(  # noqa: PLR0917  # hypothesis passes them by name
    world: int,
    loss: float,
    duplicate: float,
    jitter: float,
    paths: int,
    cases: list[tuple[str, str, int]],
    seed: int,
    one_shot: bool,
) -> None:
    link = SimLink(loss=loss, duplicate=duplicate, jitter=jitter)
    net = SimNetwork(
        world, link, seed=seed, segment_size=64, chunk_segments=6, paths=paths, one_shot=one_shot
    )
    check(net, cases, seed)


def test_the_same_seed_is_the_same_run() -> None:
    def run() -> tuple[int, float, list[object]]:
        net = SimNetwork(3, SimLink(loss=0.1, jitter=50e-6), seed=4)
        net.submit_all(1, draw("float32", 3, 3000, 1), max_loss=0.1, name="n")
        net.run()
        return net.carried, net.now, [list(events) for events in net.events]

    assert run() == run()


def test_a_bottleneck_with_a_short_queue_slows_but_does_not_stop() -> None:
    """Incast into a port of 20,000 datagrams per second that holds 32."""
    link = SimLink(rate=20_000.0, queue=32)
    net = SimNetwork(4, link, segment_size=64, chunk_segments=64)
    check(net, [("float32", "sum", 12_000)], seed=1)
    assert net.dropped  # else this tested nothing


@pytest.mark.parametrize("rate_bps", [5e6, 50e6])
def test_a_capped_engine_keeps_to_its_rate_and_finishes(rate_bps: float) -> None:
    """The cap allows less at once than what is worth a system call."""
    net = SimNetwork(2, segment_size=1408, chunk_segments=100, rate_bps=rate_bps)
    parts = draw("float32", 2, 200_000, 1)
    held = copies(parts)
    begin = net.now
    net.submit_all(1, held)
    net.run()
    expected = rank_ordered(parts, "float32", "sum")
    assert all((tensor == expected).all() for tensor in held)
    bits = 8 * 800_000  # half of it pushed, half of it pulled, per rank
    last = max(session.operations == {} for session in net.sessions)
    assert last
    assert net.now - begin > 0.9 * bits / rate_bps
