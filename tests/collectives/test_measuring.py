"""A large operation is looked at in pieces, which do not show in what is found."""

import numpy as np
import pytest

from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.bounded import Bounded
from dlcpd.collectives.loss.stretch import Stretch
from dlcpd.collectives.order import Group, Loss, Order
from dlcpd.core.transfer.layers import Layers

SEGMENT = 256
SPANS = {1: (0, 9_000, SEGMENT), 4: (9_000, 0, SEGMENT), 5: (10_000, 64, SEGMENT)}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("piece", [1, 1_000, 4_096])
def test_pieces_do_not_show(dtype: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = np.random.default_rng(3).integers(0, 60, 12_000, np.uint8)
    order = Order(
        1, Group(0, (0, 1), 0), "", 0, 1.0, dtype, "sum", Layers.new([], 0, 0.1), Loss(0.1, "x")
    )
    found = []
    for size in (1 << 30, piece):
        monkeypatch.setattr("dlcpd.collectives.loss.bounded.PIECE", size)
        loss = Bounded(order, tensor, Accounts())
        pieces = list(loss.measure(SPANS))
        assert sum(pieces) == 9_064
        assert max(pieces) <= max(size, SEGMENT)
        stretches = {at: Stretch(order.layers, (), *SPANS[at][:2]) for at in (1, 5)}
        marks = [loss.marks(at, stretch, SEGMENT) for at, stretch in stretches.items()]
        found.append(
            [(m.weight.tobytes(), np.asarray(m.drop_precedences).tobytes()) for m in marks]
        )
    assert found[0] == found[1]
