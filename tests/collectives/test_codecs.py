"""Codecs over a lossy network: the result is the reference's bit for bit, nothing is lost for ever,
and what was no number arrives as none."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import Tensor, copies, draw
from dlcpd.core.wire.header import Header, Kind
from dlcpd.numerics.codecs.names import codec_of
from dlcpd.numerics.elements import NARROW, STORAGE, widen
from dlcpd.numerics.returning import add_back
from dlcpd.schedules.builders.reduce_scatter import reduce_scatter
from dlcpd.schedules.proof.interpreter import interpret

NAME = "layer.weight"
SEGMENT, CHUNK_SEGMENTS = 64, 160  # a chunk is 2,560 values: of int8 40 segments and their scales
CODECS = ("bf16", "fp16", "int8", "fp8_e4m3", "fp8_e5m2", "topk:0.1")
BYTE_CODECS = CODECS[2:]
COUNT = 12_000
LOSSY = SimLink(loss=0.05, jitter=40e-6, duplicate=0.02)
Net = SimNetwork


def network(link: SimLink = LOSSY, *, world: int = 3, seed: int = 0, **options: Any) -> Net:
    return SimNetwork(
        world, link, seed=seed, segment_size=SEGMENT, chunk_segments=CHUNK_SEGMENTS, **options
    )


def reference(net: Net, parts: list[Tensor], codec: str, dtype: str, op: str) -> Tensor:
    """What ranks that lose nothing get of the programs of operation 1."""
    size = parts[0].nbytes
    results = interpret(
        [net.programs[rank, 1] for rank in range(net.world_size)],
        [part.view(np.uint8) for part in parts],
        outputs=[size] * net.world_size,
        dtype=dtype,
        op=op,
        input_at=[0] * net.world_size,
        codec=codec_of(codec),
    )
    assert len({result.tobytes() for result in results}) == 1
    return results[0].view(STORAGE[dtype])


def kept(net: Net, dtype: str = "float32", count: int = COUNT) -> NDArray[np.float64]:
    """The residuals of all ranks, added up, without their loss scale; they stay where they are."""
    total = np.zeros(count)
    for accounts in net.accounts:
        tensor = np.zeros(count, STORAGE[dtype])
        holes = accounts.residuals.take((NAME, dtype, count))
        add_back(tensor.view(np.uint8), holes, dtype)
        accounts.residuals.put((NAME, dtype, count), holes)
        total += widen(tensor, dtype)
    return total


def sum_of(parts: list[Tensor], dtype: str) -> NDArray[np.float64]:
    total: NDArray[np.float64] = np.sum([widen(part, dtype) for part in parts], axis=0, dtype=float)
    return total


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("dtype", "op", "hosts"),
    [
        ("float32", "avg", ()),
        ("float64", "sum", ((0, 1), (2,))),  # two of them exchange in memory
    ],
)
def test_the_result_is_the_references(
    codec: str, dtype: str, op: str, hosts: tuple[tuple[int, ...], ...]
) -> None:
    net = network(hosts=hosts)
    parts = draw(dtype, 3, COUNT, seed=1)
    held = copies(parts)
    net.submit_all(1, held, dtype=dtype, op=op, name=NAME, codec=codec)
    net.run()
    expected = reference(net, parts, codec, dtype, op)
    assert all(tensor.tobytes() == expected.tobytes() for tensor in held)
    plain = sum_of(parts, dtype) / (3 if op == "avg" else 1)
    apart = np.linalg.norm(expected - plain) / np.linalg.norm(plain)
    assert 0 < apart < (1 if codec.startswith("topk") else 0.1)


@pytest.mark.parametrize("codec", BYTE_CODECS)
@pytest.mark.parametrize("dtype", sorted(NARROW))
def test_16_bit_floats(codec: str, dtype: str) -> None:
    net = network()
    parts = draw(dtype, 3, COUNT, seed=2)
    held = copies(parts)
    net.submit_all(1, held, dtype=dtype, name=NAME, codec=codec)
    net.run()
    expected = reference(net, parts, codec, dtype, "sum")
    assert all(tensor.tobytes() == expected.tobytes() for tensor in held)


@pytest.mark.parametrize("max_loss", [0.0, 0.2])
@pytest.mark.parametrize("codec", CODECS)
def test_what_was_put_in_comes_out_or_waits(codec: str, max_loss: float) -> None:
    """Sums of the inputs of all ranks = results + residuals, under loss scales that change."""
    net = network(SimLink(loss=0.1, jitter=40e-6) if max_loss else SimLink())
    produced, delivered = np.zeros(COUNT), np.zeros(COUNT)
    for number in range(1, 5):
        scale = 2.0**number
        parts = draw("float32", 3, COUNT, seed=number)
        produced += sum_of(parts, "float32")
        held = [part * np.float32(scale) for part in parts]
        op = "avg" if number % 2 else "sum"
        net.submit_all(number, held, op=op, max_loss=max_loss, name=NAME, codec=codec, scale=scale)
        net.run()
        assert len({tensor.tobytes() for tensor in held}) == 1
        delivered += held[0].astype(float) * (3 if op == "avg" else 1) / scale
        left = kept(net)
        np.testing.assert_allclose(delivered + left, produced, rtol=0, atol=2e-5)
        if not codec.startswith("topk"):
            assert np.abs(left).max() < np.abs(produced).max()
    stats = [net.done(rank)[number].stats for rank in range(3) for number in range(1, 5)]
    assert sum(s.lost for s in stats) == sum(s.waived for s in stats)
    assert bool(max_loss) == any(s.waived for s in stats)
    reapplied = sum(net.done(rank)[n].stats.reapplied for rank in range(3) for n in range(2, 5))
    assert reapplied == sum(net.done(rank)[n].stats.waived for rank in range(3) for n in (1, 2, 3))


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk:0.1"])
def test_an_operation_without_the_codec_brings_all_home(codec: str) -> None:
    net = network(SimLink(loss=0.1))
    first, second = draw("float32", 3, COUNT, 1), draw("float32", 3, COUNT, 2)
    produced = sum_of([*first, *second], "float32")
    net.submit_all(1, first, max_loss=0.2, name=NAME, codec=codec)
    net.run()
    net.submit_all(2, second, name=NAME)
    net.run()
    delivered = first[0].astype(float) + second[0]
    np.testing.assert_allclose(delivered, produced, rtol=0, atol=2e-5)
    assert not kept(net).any()


@pytest.mark.parametrize("codec", ["fp16", "fp8_e4m3", "topk:0.1"])
def test_a_failed_operation_keeps_what_it_brought_back(codec: str) -> None:
    net = network(SimLink())
    net.submit_all(1, draw("float32", 3, COUNT, 1), name=NAME, codec=codec)
    net.run()
    before = kept(net)
    net.cut = {2}
    net.submit_all(2, draw("float32", 3, COUNT, 2), name=NAME, codec=codec, deadline=5.0)
    net.run()
    assert all(2 in net.failed(rank) for rank in range(2))
    np.testing.assert_array_equal(kept(net), before)


def test_without_feedback_nothing_is_kept() -> None:
    net = network()
    net.submit_all(1, draw("float32", 3, COUNT, 1), max_loss=0.2, fill="zero", codec="int8")
    net.run()
    assert all(accounts.residuals.size == 0 for accounts in net.accounts)


@pytest.mark.parametrize("codec", CODECS)
def test_a_lost_segment_takes_its_own_values_only(codec: str) -> None:
    """The results are the reference's where nothing was waived."""
    net = network(SimLink(loss=0.2))
    parts = draw("float32", 3, COUNT, 5)
    held = copies(parts)
    net.submit_all(1, held, max_loss=0.1, name=NAME, codec=codec)
    net.run()
    waived = sum(net.done(rank)[1].stats.waived for rank in range(3))
    assert waived
    expected = reference(net, parts, codec, "float32", "sum")
    each = SEGMENT // codec_of(codec).item
    changed = np.count_nonzero(held[0] != expected)
    if codec in ("bf16", "fp16"):  # the others scale, or choose, by what else is in a block
        assert 0 < changed <= waived * each
    assert changed < COUNT / 2


@pytest.mark.parametrize("codec", CODECS)
def test_the_bound_holds_and_heads_and_exempt_ranges_arrive(codec: str) -> None:
    net = network(SimLink(loss=0.2), seed=4)
    coder, losses = codec_of(codec), 0
    exempt = [[0, 400], [20_000, 24_000]]
    net.submit_all(
        1,
        draw("float32", 3, COUNT, 5),
        max_loss=0.2,
        name=NAME,
        codec=codec,
        exempt=exempt,
        layers=[(0, 1, 100_000), (30_000, 2, 200_000)],
    )
    net.run()
    for rank, accounts in enumerate(net.accounts):
        for row in accounts.ledger:
            if row.owner == rank:
                assert 0 < row.segments <= 0.2 * row.out_of
                losses += row.segments
        for hole in accounts.residuals.take((NAME, "float32", COUNT)):
            left = hole.values
            for low, high in exempt:
                a, b = (min(max(x - hole.start, 0), hole.segment_size) // 4 for x in (low, high))
                if b > a and codec in ("bf16", "fp16"):  # a tenth of a value is no rounding
                    assert np.abs(left[a:b]).max() < 0.1
    assert losses
    assert coder.head(COUNT) == 0 or all(accounts.ledger for accounts in net.accounts)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("codec", CODECS)
def test_no_number_arrives_as_no_number(codec: str, bad: float) -> None:
    """On every rank, whoever had it; and no residual carries it on."""
    net = network(SimLink(loss=0.2))
    parts = draw("float32", 3, COUNT, 6)
    where = [100, 5_000, 11_999]
    for part, at in zip(parts, where, strict=True):
        part[at] = bad
    net.submit_all(1, parts, max_loss=0.3, name=NAME, codec=codec)
    net.run()
    for tensor in parts:
        assert not np.isfinite(tensor[where]).any()
        assert np.isfinite(tensor).sum() == COUNT - 3
    assert np.isfinite(kept(net)).all()
    assert len({tensor.tobytes() for tensor in parts}) == 1


@pytest.mark.parametrize("codec", CODECS)
def test_finite_values_stay_finite(codec: str) -> None:
    """What is beyond a codec's range is its largest value; the rest waits for the next step."""
    net = network(SimLink())
    parts = draw("float32", 3, COUNT, 7)
    for part in parts:
        part[0], part[1] = 1e38, -1e38
    produced = sum_of(parts, "float32")
    net.submit_all(1, parts, name=NAME, codec=codec)
    net.run()
    assert np.isfinite(parts[0]).all()
    apart = parts[0] + kept(net) - produced
    assert np.abs(apart[:2]).max() < 1e32
    assert np.abs(apart[256:]).max() < 2e-5


def test_less_crosses_the_network() -> None:
    sent = {}
    for codec in ("", *CODECS):
        net = network(SimLink())
        net.recorded = []
        net.submit_all(1, draw("float32", 3, COUNT, 8), name=NAME, codec=codec)
        net.run()
        data = [one.data for one in net.recorded if one.data[1] == Kind.DATA]
        headers = [Header.unpack_untrusted(one) for one in data]
        sent[codec] = sum(len(one) - 40 for one in data)
        assert all(header.segment < 4096 for header in headers)
    ratios = {codec: size / sent[""] for codec, size in sent.items()}
    assert ratios["bf16"] == ratios["fp16"] == 0.5
    assert all(0.25 < ratios[codec] < 0.26 for codec in ("int8", "fp8_e4m3", "fp8_e5m2"))
    assert 0.15 <= ratios["topk:0.1"] < 0.16


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk:0.1"])
def test_reduce_scatter_rounds_at_the_senders_only(codec: str) -> None:
    net = network(SimLink(loss=0.1))
    sizes = (16_000, 24_000, 8_000)
    parts = draw("float32", 3, COUNT, 9)
    produced = sum_of(parts, "float32")
    outputs = [np.zeros(size // 4, np.float32) for size in sizes]
    for rank in range(3):
        program = reduce_scatter(rank, sizes, SEGMENT * CHUNK_SEGMENTS)
        net.submit(
            rank,
            1,
            parts[rank],
            program=program,
            output=outputs[rank],
            in_place=False,
            max_loss=0.2,
            name=NAME,
            codec=codec,
        )
    net.run()
    delivered = np.concatenate(outputs)
    np.testing.assert_allclose(delivered + kept(net), produced, rtol=0, atol=2e-5)
