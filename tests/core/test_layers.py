"""A segment has the class and bound of the layer in which it begins."""

import numpy as np

from dlcpd.contract.messages import LayerRow
from dlcpd.core.transfer.layers import Layers

ROWS = [LayerRow(0, 3, 5_000), LayerRow(1000, 2, 0), LayerRow(1064, 1, 10_000)]


def test_without_rows_there_is_one_layer() -> None:
    layers = Layers.new([], 4, 0.01)
    assert layers.of_segments(0, 1000, 64).tolist() == [0] * 16
    assert (layers.classes[0], layers.bounds[0], layers.most_urgent) == (4, 10_000, 4)
    assert not layers.lossless
    assert Layers.new([], 4, 0.0).lossless


def test_segments_take_after_their_first_byte() -> None:
    layers = Layers.new(ROWS, 4, 0.01)
    # chunk of bytes 896..1216: segments begin at 896, 960, 1024, 1088, 1152
    assert layers.of_segments(896, 320, 64).tolist() == [0, 0, 1, 2, 2]
    assert layers.classes[layers.of_segments(0, 64, 64)].tolist() == [3]
    assert layers.most_urgent == 1


def test_a_layer_starts_exactly_where_it_says() -> None:
    layers = Layers.new([LayerRow(0, 3, 0), LayerRow(128, 1, 0)], 4, 0.0)
    assert layers.of_segments(0, 256, 64).tolist() == [0, 0, 1, 1]
    assert layers.lossless
    assert np.array_equal(layers.starts, [0, 128])
