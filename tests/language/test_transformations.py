"""Transformations by hand, and every one that would change a program's meaning."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dlcp_client.fused import language as fl
from dlcpd.contract.errors import BadConfig
from tests.language.random_programs import inputs

L, R = fl.local, fl.replicated
Change = Callable[[fl.FusedProgram], Any]


@fl.program(g=L, w=R, m=R, lr=fl.scalar)
def momentum(g: Tensor, w: Tensor, m: Tensor, lr: Tensor) -> Tensor:
    m = fl.update(m, 0.9 * m + fl.all_reduce(g, "avg"))
    return fl.update(w, w - lr * m)


def sliced_momentum(shape: tuple[int, ...] = (5, 4)) -> fl.FusedProgram:
    made = momentum(shape=shape)
    made.reorder(made.split("all_reduce")[1])
    made.as_slice("m")
    return made


def same(one: fl.FusedProgram, two: fl.FusedProgram, rtol: float = 0.0) -> None:
    for ranks in (1, 2, 3, 7):
        fl.check(one, two, inputs(one, 3, ranks), ranks, rtol)


def test_momentum_on_slices_gathers_weights_only() -> None:
    made = sliced_momentum()
    same(momentum(shape=(5, 4)), made)
    assert made.named("all_reduce") == []
    assert len(made.named("all_gather")) == 1
    assert made.inputs["m"] == fl.sliced(0)
    names = made.fuse("reduce_scatter", *made.named("all_gather"))
    assert {"reduce_scatter", "sub"} <= set(names)
    same(momentum(shape=(5, 4)), made)


def test_a_norm_of_slices_is_a_reduction() -> None:
    @fl.program(g=L, w=R)
    def scaled(g: Tensor, w: Tensor) -> Tensor:
        u = fl.all_reduce(g, "avg") * 2
        return fl.update(w, w - fl.norm(w) / fl.norm(u) * u)

    original = scaled(shape=(11,))
    changed = original.copy()
    changed.reorder(changed.split("all_reduce")[1])
    assert len(changed.named("all_reduce")) == 1
    same(original, changed, 1e-6)
    with pytest.raises(BadConfig, match=r"node sum_1 .*: it needs all slices of mul_\d before the"):
        changed.fuse("reduce_scatter", *changed.named("all_gather"))


def test_a_stage_sends_slices_to_the_next() -> None:
    @fl.program(x=L, bias=R, r=R, seed=fl.integer)
    def stage(x: Tensor, bias: Tensor, r: Tensor, seed: Tensor) -> Tensor:
        y = fl.dropout(fl.all_reduce(x) + bias, 0.2, seed) + r
        return torch.relu(fl.receive(fl.send_next(y)))

    original = stage(shape=(6, 4), bias=(4,))
    changed = original.copy()
    changed.reorder(changed.split("all_reduce")[1])
    same(original, changed)
    sent = next(node for node in changed.graph.nodes if node.name == "send_next")
    assert sent.meta["layout"] == fl.sliced(0)
    original = stage(shape=(6, 4), bias=(4,))
    original.reorder(original.split("all_reduce", dim=1)[1])
    assert "own(bias, 0)" in original.text
    same(changed, original)


def test_some_operations_can_be_reordered_alone() -> None:
    made = momentum(shape=(5, 4))
    _, gather = made.split("all_reduce")
    [new] = made.reorder(gather, "add")
    assert "add" in new or new.startswith("all_gather")
    assert made.inputs["m"] == R
    same(momentum(shape=(5, 4)), made)


@fl.program(g=L, h=L, w=R, m=R, lr=fl.scalar)
def bad(g: Tensor, h: Tensor, w: Tensor, m: Tensor, lr: Tensor) -> list[Tensor]:
    """A node for each rule."""
    whole = fl.all_reduce(g)
    counted = (whole * 2).cumsum(0)
    with_local = whole + h
    fl.update(w, counted)
    fl.update(m, w - 1)
    return [counted, with_local, (w * lr).cumsum(0)]


@fl.program(g=L, h=L, w=R, m=R)
def two(g: Tensor, h: Tensor, w: Tensor, m: Tensor) -> list[Tensor]:
    """Two reductions of slices, and all that may not leave a fused operation."""
    one, other = fl.reduce_scatter(g), fl.reduce_scatter(h)
    both = one + other
    alone = fl.reduce_scatter(g * 2) * 3
    twice = fl.reduce_scatter(g * 4) * fl.own(m)
    returned = fl.reduce_scatter(g * 6) * 5
    soft = torch.softmax(fl.reduce_scatter(g * 5), 1)
    narrow = fl.cast(fl.reduce_scatter(g * 7), torch.bfloat16)
    more = fl.reduce_scatter(g * 8)
    cycle = more * fl.all_reduce(more.sum())
    fl.update(w, fl.all_gather(twice))
    return [fl.all_gather(x) for x in (both, alone, twice, returned, soft, narrow, cycle)] + [
        returned
    ]


def gathers(made: fl.FusedProgram) -> list[str]:
    return made.named("all_gather")


def scatters(made: fl.FusedProgram) -> list[str]:
    return made.named("reduce_scatter")


def fused(scatter: int, gather: int) -> Change:
    return lambda made: made.fuse(scatters(made)[scatter], gathers(made)[gather])


@fl.program(x=L, w=L, c=R)
def product(x: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return fl.all_gather(fl.reduce_scatter(x @ w) * 2)


@fl.program(x=L, w=L, c=R)
def read_twice(x: Tensor, w: Tensor, c: Tensor) -> list[Tensor]:
    y = (x @ w) * 1
    return [fl.all_gather(fl.reduce_scatter(y) * 2), y]


@fl.program(x=L, w=L, c=R)
def sorted_first(x: Tensor, w: Tensor, c: Tensor) -> Tensor:
    return fl.all_gather(fl.reduce_scatter((x @ w).cumsum(0)) * 2)


def whole_product(source: fl.Source = product) -> fl.FusedProgram:
    made = source(shape=(6, 6))
    made.fuse("reduce_scatter", "all_gather")
    return made


def overlapped(producer: str, pieces: Any, gather: str = "all_gather") -> Change:
    return lambda made: made.overlap(producer, gather, pieces)


def split_first(name: str = "all_reduce") -> fl.FusedProgram:
    made = bad(shape=(5, 4))
    made.split(name)
    return made


@fl.program(x=L, s=fl.integer)
def dropped_first(x: Tensor, s: Tensor) -> Tensor:
    return fl.all_gather(fl.reduce_scatter(fl.dropout(x, 0.5, s)) * 2)


@fl.program(g=L, w=R)
def gathered(g: Tensor, w: Tensor) -> Tensor:
    return fl.update(w, fl.all_gather(fl.reduce_scatter(g) * 2))


@fl.program(g=L, w=R)
def broadcast(g: Tensor, w: Tensor) -> Tensor:
    return fl.all_gather(fl.reduce_scatter(g)) + w


@fl.program(g=L)
def rows(g: Tensor) -> Tensor:
    return torch.softmax(fl.all_gather(fl.reduce_scatter(g, dim=1)), 1)


@fl.program(g=L, m=R)
def returned(g: Tensor, m: Tensor) -> list[Tensor]:
    return [fl.all_gather(fl.reduce_scatter(g) * fl.own(m)), m]


@fl.program(g=L, m=fl.sliced(0))
def cycle(g: Tensor, m: Tensor) -> Tensor:
    x = fl.reduce_scatter(g)
    y = fl.all_gather(x * 2)
    fl.update(m, x * fl.norm(y))
    return y


@fl.program(g=L, row=R)
def shapes(g: Tensor, row: Tensor) -> Tensor:
    return fl.all_gather(fl.reduce_scatter(g, dim=1) + fl.own(row) * 2)


@fl.program(g=L, m=fl.sliced(0))
def elsewhere(g: Tensor, m: Tensor) -> list[Tensor]:
    return [fl.all_gather(fl.reduce_scatter(g) * m), fl.all_gather(m * 2)]


def updated() -> fl.FusedProgram:
    made = gathered(shape=(6,))
    made.fuse("reduce_scatter", "all_gather")
    return made


def owned() -> fl.FusedProgram:
    made = returned(shape=(6,))
    made.fuse("reduce_scatter", "all_gather")
    return made


ILLEGAL: list[tuple[str, Callable[[], fl.FusedProgram], Change, str]] = [
    ("split of a mul", lambda: bad(shape=(5, 4)), lambda p: p.split("mul"),
     "node mul .*: only an all_reduce can be split"),
    ("split of an input", lambda: bad(shape=(5, 4)), lambda p: p.split("g"),
     "node g: only an all_reduce"),
    ("split of a number", lambda: two(shape=(5, 4)), lambda p: p.split("all_reduce"),
     r"node all_reduce .*: its shape \[\] has no dimension 0"),
    ("split along no dimension", lambda: bad(shape=(5, 4)), lambda p: p.split("all_reduce", 2),
     r"has no dimension 2 to slice"),
    ("an unknown name", lambda: bad(shape=(5, 4)), lambda p: p.split("nothing"),
     "no node 'nothing': its nodes are g, h"),
    ("reorder of a mul", split_first, lambda p: p.reorder("mul"),
     "node mul .*: only an all_gather"),
    ("reorder past a cumsum", split_first, lambda p: p.reorder("all_gather"),
     "node cumsum .*: it is not elementwise: it needs whole"),
    ("reorder with a local operand", split_first, lambda p: p.reorder("all_gather", "add"),
     "node add .*: it reads h, which is local"),
    ("reorder of what does not read it", split_first,
     lambda p: p.reorder("all_gather", "mul", "sub"), "node sub .*: it does not depend on slices"),
    ("reorder of a gather that nothing reads", lambda: two(shape=(5, 4)),
     lambda p: p.reorder("all_gather"), "nothing to reorder"),
    ("reorder of what is broadcast along the slices", lambda: broadcast(g=(1, 4), w=(5, 4)),
     lambda p: p.reorder("all_gather"), "all_gather is broadcast along its sliced dimension"),
    ("reorder of a softmax along the slices", lambda: rows(shape=(5, 4)),
     lambda p: p.reorder("all_gather"), "node _softmax .*: it needs dimension 1 whole"),
    ("as_slice of what is read whole", lambda: bad(shape=(5, 4)), lambda p: p.as_slice("m"),
     "node update_1 .*: m is updated as a whole"),
    ("as_slice of an operand", lambda: bad(shape=(5, 4)), lambda p: p.as_slice("w"),
     "node (update|sub|mul_1) .*: (w is updated as a whole|it uses all of w)"),
    ("as_slice of a local input", lambda: bad(shape=(5, 4)), lambda p: p.as_slice("g"),
     "node g: only a replicated input"),
    ("as_slice of a number", lambda: bad(shape=(5, 4)), lambda p: p.as_slice("lr"),
     "node lr: only a replicated input with dimensions"),
    ("as_slice of a node", lambda: bad(shape=(5, 4)), lambda p: p.as_slice("mul"),
     "node mul .*: only a replicated input"),
    ("as_slice of an input that nothing reads", lambda: product(shape=(6, 6)),
     lambda p: p.as_slice("c"), "node c: it is sliced along 0 dimensions"),
    ("as_slice of a returned input", lambda: returned(shape=(6,)), lambda p: p.as_slice("m"),
     "node output: it uses all of m"),
    ("fuse of two reductions", lambda: two(shape=(5, 4)), fused(0, 1),
     "node reduce_scatter_1 .*: its slices meet those of reduce_scatter: one"),
    ("fuse with another's gather", lambda: two(shape=(5, 4)), fused(2, 3),
     "does not gather what is computed from reduce_scatter_2"),
    ("fuse from a mul", lambda: two(shape=(5, 4)), lambda p: p.fuse("mul", "all_gather"),
     "node mul .*: a fused operation begins with a reduce_scatter"),
    ("fuse to a mul", lambda: two(shape=(5, 4)), lambda p: p.fuse("reduce_scatter", "mul"),
     "node mul .*: a fused operation ends with an all_gather"),
    ("fuse of two gathers", lambda: two(shape=(5, 4)), fused(3, 0),
     "node all_gather_3 .*: one operation gathers once, and all_gather does"),
    ("fuse of returned slices", lambda: two(shape=(5, 4)), fused(4, 4),
     "the program returns its slices"),
    ("fuse of a softmax", lambda: two(shape=(5, 4)), fused(5, 5),
     "node _softmax .*: it is not elementwise: a fused operation"),
    ("fuse of two dtypes", lambda: two(shape=(5, 4)), fused(6, 6),
     "it gathers another dtype than reduce_scatter_6 reduces"),
    ("fuse across a sum", lambda: two(shape=(5, 4)), fused(7, 7),
     "node sum_1 .*: it needs all slices of reduce_scatter_7"),
    ("fuse of a cycle", lambda: cycle(shape=(6,)), fused(0, 0),
     "node linalg_vector_norm .*: a cycle: it needs mul, and mul_1 of the same"),
    ("fuse of another shape", lambda: shapes(shape=(5, 4), row=(4,)), fused(0, 0),
     r"node mul .*: its shape \[4\] is not that of reduce_scatter, \[5, 4\]"),
    ("fuse of state that is read elsewhere", lambda: elsewhere(shape=(6,)), fused(0, 0),
     "node mul_1 .*: m has its slices in all_gather: read it there only"),
    ("a transformation after fuse", whole_product, lambda p: p.reorder("all_gather"),
     "node all_gather .*: it is part of all_gather: transform before fuse"),
    ("as_slice after fuse", owned, lambda p: p.as_slice("m"),
     "it is part of all_gather: use as_slice before fuse"),
    ("as_slice of what a fused operation gathers", updated, lambda p: p.as_slice("w"),
     "node all_gather .*: w is updated by it: use as_slice before fuse"),
    ("overlap without fuse", lambda: product(shape=(6, 6)), overlapped("mm", 2),
     "'all_gather' is not a fused operation"),
    ("overlap with what is not read", whole_product, overlapped("x", 2),
     "node x: reduce_scatter does not read it"),
    ("overlap of unequal pieces", whole_product, overlapped("mm", 4),
     "node mm .*: 4 pieces of 6 rows: give a divisor"),
    ("overlap of one piece", whole_product, overlapped("mm", 1), "1 pieces of 6 rows"),
    *((f"overlap of {n!r} pieces", whole_product, overlapped("mm", n), f"{n!r} pieces of 6 rows")
      for n in (None, 1.5, 2.0, "2", True, 0, -2, math.nan)),
    *((f"split along {dim!r}", lambda: bad(shape=(5, 4)),
       lambda p, dim=dim: p.split("all_reduce", dim), f"has no dimension {dim!r} to slice")
      for dim in (None, 0.0, "0", True, -1)),
    ("fuse of no elements", lambda: returned(shape=(0,)),
     lambda p: p.fuse("reduce_scatter", "all_gather"), "it has no elements: there is nothing"),
    ("overlap of what is read as a whole", lambda: whole_product(read_twice),
     overlapped("mul", 2), "node output: it reads all of mul"),
    ("overlap of a dropout", lambda: whole_product(dropped_first), overlapped("dropout", 2),
     "node dropout .*: rows of it cannot be computed alone"),
    ("overlap of a cumsum", lambda: whole_product(sorted_first), overlapped("cumsum", 2),
     "node cumsum .*: rows of it cannot be computed alone"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("made", "change", "said"), [row[1:] for row in ILLEGAL], ids=[row[0] for row in ILLEGAL]
)
def test_what_would_change_the_meaning_is_refused(
    made: Callable[[], fl.FusedProgram], change: Change, said: str
) -> None:
    program = made()
    before = program.text
    with pytest.raises(BadConfig, match=said):
        change(program)
    assert program.text == before


def test_an_operation_has_all_operands_before_its_gather() -> None:
    """State may be computed after the gather in the text of a program."""

    def body(g: Tensor, h: Tensor, w: Tensor, m: Tensor) -> None:
        x = fl.reduce_scatter(g)
        fl.update(w, fl.all_gather(x * 2))
        fl.update(m, x * m * fl.norm(fl.all_reduce(h)))

    declared: dict[str, Any] = {"g": L, "h": L, "w": R, "m": fl.sliced(0)}
    original = fl.program(**declared)(returning(body))(shape=(6,))
    made = original.copy()
    names = made.fuse("reduce_scatter", "all_gather")
    assert names == ["reduce_scatter", "mul", "mul_1", "mul_2", "all_gather"]
    order = [node.name for node in made.graph.nodes]
    assert order.index("linalg_vector_norm") < order.index("all_gather")
    same(original, made)


def returning(body: Callable[..., None]) -> Callable[..., Tensor]:
    """A function that returns its third tensor."""

    def call(g: Tensor, h: Tensor, w: Tensor, m: Tensor) -> Tensor:
        body(g, h, w, m)
        return w * 1

    return call


def test_names_stay() -> None:
    """Also those of built-in functions, which fx changes."""

    def body(input: Tensor, sum: Tensor) -> Tensor:
        return fl.update(sum, fl.all_reduce(input) * sum)

    made = fl.program(input=L, sum=R)(body)(shape=(4,))
    made.reorder(made.split("all_reduce")[1])
    again = made.copy().copy()
    assert list(again.inputs) == ["input", "sum"]
    assert again.text == made.text
    assert again.fingerprint == made.fingerprint
    given: dict[str, Any] = {"input": [torch.ones(4)] * 2, "sum": torch.full((4,), 3.0)}
    assert torch.equal(
        torch.as_tensor(fl.simulate(again, given, 2).updated["sum"]), torch.full((4,), 6.0)
    )
