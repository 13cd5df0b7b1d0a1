"""explain(): operations, bytes and state of a schedule."""

import pytest

from dlcp_client.fused import language as fl
from tests.language.random_programs import fused_one
from tests.language.test_lowering import epilogue

COUNT = 1_000_000


def cells(text: str, first: str) -> list[str]:
    """The row that begins with a word, without its first cell."""
    [row] = [line for line in text.splitlines() if line.startswith(f"{first} ")]
    return row.removeprefix(first).split()


@pytest.mark.parametrize("ranks", [2, 4])
def test_bytes_and_state_are_those_of_the_schedule(ranks: int) -> None:
    size = 4 * COUNT
    written = fl.optimizers.adam(shape=(COUNT,))
    text = fl.explain(written, ranks)
    assert cells(text, "all_reduce")[:2] == ["replicated", f"{2 * size * (ranks - 1) // ranks:,}"]
    assert cells(text, "m") == ["replicated", f"{size:,}", f"{size:,}"]
    assert "optimizers.py" in text
    fused = fused_one(fl.optimizers.adam, shape=(COUNT,))
    text = fl.explain(fused, ranks)
    assert cells(text, "m") == ["sliced(0)", f"{size // ranks:,}", f"{size:,}"]
    assert cells(text, "all")[0] == f"{2 * size * (ranks - 1) // ranks:,}"
    assert "reduce_scatter + 15 elementwise + all_gather_3, one operation" in text


def test_times_are_those_of_the_slower_of_network_and_memory() -> None:
    fused = fused_one(fl.optimizers.adam, shape=(COUNT,))
    slow_link = fl.Rates(link_bps=8e6, latency=0.0, memory_bytes_per_s=1e15)
    assert cells(fl.explain(fused, 2, slow_link), "all")[1] == "4000.00"  # 4 MB at 1 MB/s
    slow_memory = fl.Rates(link_bps=1e15, latency=0.0, memory_bytes_per_s=1e6)
    # sums, w, m and v are read, and w, m and v written: 7 x 4 MB, of which a rank has a half
    assert cells(fl.explain(fused, 2, slow_memory), "all")[1] == "14000.00"


def test_pieces_are_named() -> None:
    program = epilogue(x=(6, 2), w=(2, 4), bias=(4,), r=(6, 4))
    scatter, gather = program.split("all_reduce")
    [end] = program.reorder(gather)
    program.fuse(scatter, end)
    program.overlap("mm", end, 3)
    assert "one operation, in 3 pieces after mm" in fl.explain(program, 2)
