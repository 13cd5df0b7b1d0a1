"""Which layers and exempt ranges the bytes belong to that a codec makes of a transfer."""

import pytest

from dlcpd.collectives.loss.stretch import Stretch, on_the_wire
from dlcpd.contract.messages import LayerRow
from dlcpd.core.transfer.layers import Layers
from dlcpd.numerics.codecs.codec import body_at, wire_size
from dlcpd.numerics.codecs.names import codec_of

COUNT, START = 10_000, 4096  # elements of 4 bytes; where the transfer begins in the tensor
SIZE, SEGMENT = 4 * COUNT, 64
PART = 4096  # values of "topk"


def wired(codec: str, rows: list[tuple[int, int, int]], *exempt: tuple[int, int]) -> Stretch:
    layers = Layers.new([LayerRow(*row) for row in rows], 4, 0.1)
    return on_the_wire(Stretch(layers, exempt, START, SIZE), codec_of(codec), 4)


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk:0.01"])
def test_heads_miss_nothing_and_are_as_urgent_as_any_part(codec: str) -> None:
    coder = codec_of(codec)
    head = body_at(coder, COUNT)
    layers, _, start, size = wired(codec, [(0, 3, 100_000), (20_480, 1, 200_000)])
    assert (start, size) == (0, wire_size(coder, COUNT))
    rows = layers.of_segments(0, size, SEGMENT)
    heads = -(-head // SEGMENT)
    assert (layers.bounds[rows][:heads] == 0).all()
    assert (layers.classes[rows][:heads] == 1).all()
    assert (layers.bounds[rows][heads:] > 0).all()


def test_layers_begin_where_their_values_do() -> None:
    rows = [(0, 3, 100_000), (START + 400, 1, 0), (START + 400, 2, 50_000)][:2]
    layers, exempt, _, _ = wired("bf16", rows)
    assert layers.starts.tolist() == [0, 200]
    assert layers.classes.tolist() == [3, 1]
    assert not exempt
    head = body_at(codec_of("int8"), COUNT)
    layers, exempt, _, _ = wired("int8", rows)
    assert layers.starts.tolist() == [0, head, head + 100]
    assert layers.bounds.tolist() == [0, 100_000, 0]
    assert not exempt


def test_a_part_of_several_layers_is_exempt() -> None:
    codec = codec_of("topk:0.01")
    head, part = body_at(codec, COUNT), codec.body(PART)
    inside = START + 4 * (PART + 10)
    layers, exempt, _, _ = wired("topk:0.01", [(0, 3, 100_000), (inside, 1, 200_000)])
    assert layers.starts.tolist() == [0, head, head + part]
    assert exempt == ((head + part, head + 2 * part),)
    on_the_edge = START + 4 * PART
    layers, exempt, _, _ = wired("topk:0.01", [(0, 3, 100_000), (on_the_edge, 1, 200_000)])
    assert layers.starts.tolist() == [0, head, head + part]
    assert not exempt


def test_exempt_ranges_are_those_of_their_values() -> None:
    ranges = [(0, START), (START + 400, START + 401), (START + SIZE - 4, START + SIZE + 400)]
    assert wired("bf16", [], *ranges).exempt == ((200, 202), (2 * COUNT - 2, 2 * COUNT))
    codec = codec_of("topk:0.01")
    head, part = body_at(codec, COUNT), codec.body(PART)
    assert wired("topk:0.01", [], *ranges).exempt == (
        (head, head + part),
        (head + 2 * part, wire_size(codec, COUNT)),
    )


def test_rows_before_and_behind_do_not_count() -> None:
    rows = [(0, 0, 10), (64, 1, 20), (START + SIZE, 2, 30)]
    layers = wired("fp16", rows).layers
    assert [a.tolist() for a in (layers.starts, layers.classes, layers.bounds)] == [[0], [1], [20]]
