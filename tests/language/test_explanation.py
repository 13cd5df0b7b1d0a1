"""explain(): operations, bytes and state of a schedule."""

from typing import Any

import pytest
from torch import Tensor

from dlcp_client.fused import language as fl
from dlcpd.contract.errors import BadConfig
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


def test_a_program_without_communication_is_explained() -> None:
    """And operations with several results."""

    def largest(x: Tensor) -> Tensor:
        return x.topk(2)[0]

    text = fl.explain(fl.program(x=fl.replicated)(largest)(shape=(6, 4)), 2)
    assert cells(text, "all") == ["0", "0.00"]
    assert cells(text, "topk")[:2] == ["replicated", "0"]


NO_RATES: list[Any] = [5, "a", {}, fl.Rates]
NO_NUMBERS: list[Any] = [None, "a", -1.0, float("nan"), float("inf"), True]


@pytest.mark.parametrize(
    ("ranks", "rates", "said"),
    [
        *(
            (ranks, None, f"ranks={ranks!r} is not valid")
            for ranks in (None, 0, -1, 2.0, "2", True)
        ),
        *((2, rates, "is not valid: give Rates") for rates in NO_RATES),
        *(
            (2, fl.Rates(**{name: value}), f"Rates {name}={value!r} is not valid: use a number")
            for name in fl.Rates.__dataclass_fields__
            for value in NO_NUMBERS
        ),
        (2, fl.Rates(link_bps=0), "Rates link_bps=0 is not valid: use a number above 0"),
        (2, fl.Rates(memory_bytes_per_s=0), "memory_bytes_per_s=0 is not valid"),
    ],
)
def test_what_cannot_be_predicted_is_refused(ranks: Any, rates: Any, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        fl.explain(fl.optimizers.sgd(shape=(4,)), ranks, rates)


def test_what_is_not_a_program_is_refused() -> None:
    given: Any
    for given, said in (
        (None, "None is not a program"),
        (fl.optimizers.sgd, "sgd has no shapes yet"),
    ):
        with pytest.raises(BadConfig, match=said):
            fl.explain(given, 2)
