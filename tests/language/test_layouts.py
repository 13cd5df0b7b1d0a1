"""What operations need and give, and what they mean on several ranks."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dlcp_client.fused import language as fl
from dlcp_client.fused.language.operations import kept
from dlcpd.contract.errors import BadConfig

Body = Callable[..., Any]


def of(body: Body, **layouts: fl.Layout) -> fl.FusedProgram:
    """A program of tensors of 6 x 4 elements, by the names of their layouts."""
    declared: dict[str, Any] = dict(layouts)
    if "seed" in body.__code__.co_varnames:
        declared["seed"] = fl.integer
    return fl.program(**declared)(body)(shape=(6, 4))


def test_each_collective_gives_its_layout() -> None:
    def body(x: Tensor, y: Tensor) -> list[Tensor]:
        part = fl.reduce_scatter(x, "avg", dim=1)
        return [
            fl.all_reduce(x),
            part,
            fl.all_gather(part),
            fl.own(y, 1) + part,
            fl.broadcast(x, 1),
            x + y,
            y.sum(),
            part.sum(),
            fl.receive(fl.send_next(part)),
            torch.softmax(part, 0),
        ]

    made = of(body, x=fl.local, y=fl.replicated)
    layouts = [str(node.meta["layout"]) for node in made.outputs]
    part = "sliced(1)"
    whole = "replicated"
    assert layouts == [whole, part, whole, part, whole, "local", whole, "local", part, part]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_collectives_mean_what_they_say(ranks: int) -> None:
    def body(x: Tensor, y: Tensor, z: Tensor) -> list[Tensor]:
        part = fl.reduce_scatter(x, "avg", dim=1)
        return [
            fl.all_reduce(x),
            part,
            fl.all_gather(z) * 2,
            fl.own(y, 1) + part,
            fl.broadcast(x, 0),
            fl.update(y, y + 1),
            part.sum(),
        ]

    made = of(body, x=fl.local, y=fl.replicated, z=fl.sliced(0))
    every = [torch.arange(24.0).view(6, 4) * (rank + 1) for rank in range(ranks)]
    y, z = torch.ones(6, 4), torch.arange(24.0).view(6, 4)
    found = fl.simulate(made, {"x": every, "y": y, "z": z}, ranks)
    total = torch.stack(every).sum(0)
    right = [total, total / ranks, z * 2, y + total / ranks, every[0], y + 1]
    for one, two in zip(found.outputs, right, strict=False):
        assert isinstance(one, Tensor)
        assert torch.allclose(one, two)
    parts: Any = found.outputs[-1]
    assert len(parts) == ranks
    assert torch.allclose(torch.stack(parts).sum(), total.sum() / ranks)
    assert list(found.updated) == ["y"]


def test_an_update_without_a_reader_is_carried_out() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        fl.update(y, fl.all_reduce(x))
        return y * 2

    made = of(body, x=fl.local, y=fl.replicated)
    found = fl.simulate(made, {"x": [torch.ones(6, 4)] * 3, "y": torch.ones(6, 4)}, 3)
    assert torch.equal(torch.as_tensor(found.updated["y"]), torch.full((6, 4), 3.0))
    assert torch.equal(torch.as_tensor(found.outputs[0]), torch.full((6, 4), 2.0))


def test_dropout_drops_by_index_and_seed() -> None:
    index, seed = torch.arange(1 << 16), torch.tensor(7)
    for p in (0.0, 0.1, 0.5, 0.9):
        share = kept(index, p, seed).double().mean().item()
        assert abs(share - (1 - p)) < 0.01
    one, two = kept(index, 0.5, seed), kept(index, 0.5, torch.tensor(8))
    assert abs((one == two).double().mean().item() - 0.5) < 0.01
    assert torch.equal(kept(index[100:200], 0.5, seed), one[100:200])
    far = kept(index + (1 << 32), 0.5, seed)
    assert abs((one == far).double().mean().item() - 0.5) < 0.01
    with pytest.raises(BadConfig, match=r"dropout p=1\.0 is not valid: use a number, 0 or more"):
        fl.dropout(torch.ones(2), 1.0, seed)


def moved(x: Tensor) -> Tensor:
    return fl.receive(fl.send_next(x))


OUTSIDE = torch.ones(4)
L, R, S = fl.local, fl.replicated, fl.sliced(0)
untyped: Any = fl  # for arguments of wrong types
EMPTY: dict[str, Tensor] = {}

# Each is refused: the function, layouts of its inputs, and what the error says.
REFUSED: list[tuple[Body, dict[str, fl.Layout], str]] = [
    (lambda x: [fl.all_reduce(x)], {"x": R}, "all_reduce needs a local tensor, and x is rep"),
    (lambda x: [fl.all_reduce(x)], {"x": S}, r"needs a local tensor, and x is sliced\(0\)"),
    (lambda x: [fl.reduce_scatter(x)], {"x": R}, "reduce_scatter needs a local tensor"),
    (lambda x: fl.reduce_scatter(x, dim=2), {"x": L}, r"no dimension 2 in the shape \[6, 4\]"),
    (lambda x: fl.reduce_scatter(x, dim=-1), {"x": L}, "count dimensions from the first"),
    (lambda x: [fl.all_gather(x)], {"x": R}, "all_gather needs a sliced tensor, and x is repl"),
    (lambda x: [fl.own(x)], {"x": L}, "own needs a replicated tensor, and x is local"),
    (lambda x: [fl.broadcast(x)], {"x": S}, "broadcast needs a local tensor"),
    (lambda x: fl.all_reduce(x, "max"), {"x": L}, "op 'max': use sum or avg"),
    (lambda x, y: x + y, {"x": L, "y": S}, r"x is local and y is sliced\(0\): reduce or gather"),
    (lambda x, y: x + y, {"x": R, "y": S}, r"x is replicated .* use own\(x, 0\)"),
    (lambda x, y: x + y, {"x": fl.sliced(1), "y": S}, r"x is sliced\(1\) and y is sliced\(0\)"),
    (lambda x: x[:1] + x, {"x": S}, "it is not elementwise"),
    (lambda x: x.cumsum(0), {"x": S}, r"not elementwise, and x is sliced\(0\): use all_gather"),
    (lambda x: [fl.norm(x)], {"x": S}, "it is not elementwise"),
    (lambda x: torch.softmax(x, 0), {"x": S}, "it needs dimension 0 whole"),
    (lambda x, y: x @ y.t(), {"x": fl.sliced(1), "y": R}, r"a product of sliced\(1\) by repl"),
    (lambda x, y: [fl.update(x, y)], {"x": R, "y": L}, "x, which is replicated, with y, which"),
    (lambda x, y: fl.update(x, y.sum()), {"x": R, "y": R}, "shape and dtype must be equal"),
    (lambda x, y: fl.update(x * 2, y), {"x": R, "y": R}, "mul, which is not an input"),
    (
        lambda x, y: [fl.update(x, y), fl.update(x, y * 2)],
        {"x": R, "y": R},
        "x is updated twice",
    ),
    (lambda x: x.add_(1), {"x": R}, "changes a tensor in place: use update"),
    (lambda x: x + torch.rand(4), {"x": R}, "different numbers: use dropout"),
    (lambda x: [fl.receive(x)], {"x": R}, "receive of x, which send_next did not send"),
    (lambda x: fl.send_next(x) * 2, {"x": R}, "on its way: use receive"),
    (
        lambda x: moved(x) + moved(moved(x)),
        {"x": R},
        "receive and receive_2 are on different stages",
    ),
    (lambda x: x * OUTSIDE, {"x": R}, r"test_layouts.py:\d+: it uses a tensor from outside"),
    (lambda x: x * torch.tensor([1.0, 2, 3, 4]), {"x": R}, "from outside the program: make it"),
    (lambda x: "text", {"x": R}, "> cannot be traced: it must return tensors, and returned str"),
    (lambda x: [x.fill_(0), x][1:], {"x": R}, "changes a tensor in place: use update"),
    (lambda x: (x[0].fill_(0), x)[1], {"x": R}, "fill_ .*changes a tensor in place: use update"),
    (lambda x: x * x.sum().item(), {"x": R}, "_local_scalar_dense .*reads a value of a tensor"),
    (lambda x: x[x > 0], {"x": R}, "node index .*its shape depends on values: use torch.where"),
    (lambda x: x.to("meta"), {"x": R}, "node _to_copy .*it is on meta: programs compute on the"),
    (lambda x: x + torch.empty(4), {"x": R}, "node empty .*those of its memory: use zeros"),
    (lambda x: x * float(x.sum()), {"x": R}, r"test_layouts.py:\d+: branches, numbers and shapes"),
    (lambda x: EMPTY["y"], {"x": R}, r"cannot be traced at test_layouts.py:\d+: KeyError: 'y'"),
    (lambda x: fl.all_reduce(x, "max"), {"x": L}, r"at test_layouts.py:\d+: a reduction with op"),
    (lambda x: fl.all_reduce(x.long(), "avg"), {"x": L}, "average of torch.int64 would round"),
    (lambda x: fl.reduce_scatter(x.long(), "avg"), {"x": L}, "average of torch.int64 would round"),
    (lambda x: untyped.reduce_scatter(x, dim=1.0), {"x": L}, r"dim=1\.0 is not valid: use a whole"),
    (lambda x: untyped.own(x, True), {"x": R}, "dim=True is not valid: use a whole number"),
    (lambda x: untyped.broadcast(x, -1), {"x": L}, "root=-1 is not valid: use a whole"),
    (lambda x: [untyped.all_reduce(None)], {"x": L}, "x=None of all_reduce: give a tensor"),
    (lambda x: untyped.update(x, None), {"x": L}, "value=None of update: give a tensor"),
    (lambda x: untyped.update(x, 3), {"x": L}, "value=3 of update: give a tensor"),
    (lambda x: [untyped.norm([1.0])], {"x": L}, r"norm\(\[1.0\]\): give a tensor"),
    (lambda x: untyped.cast(x, "float64"), {"x": L}, r"'float64'\): give a tensor, and a dtype"),
    (lambda x: untyped.cast(3, torch.double), {"x": L}, r"cast\(3, torch.float64\): give a tensor"),
    (lambda x, seed: untyped.dropout(x, "a", seed), {"x": L}, "dropout p='a' is not valid"),
    (lambda x, seed: untyped.dropout(x, 0.1, None), {"x": L}, "seed=None of dropout: give a"),
    (lambda x, seed: fl.dropout(x, 0.1, seed + 0.5), {"x": L}, "its seed add is .*: give an"),
    (lambda x, seed: fl.dropout(x, 0.1, x.long()), {"x": R}, "_to_copy is replicated, .*give an"),
    (lambda x, y, seed: fl.dropout(x, 0.1, y.sum().long()), {"x": R, "y": L}, "is local, .*give"),
    (lambda x, seed: fl.dropout(x.long(), 0.1, seed), {"x": R}, "int64: cast it to a float dtype"),
    (lambda x: x.reshape(5), {"x": R}, "cannot be traced"),
    (lambda x: x if x.sum() > 0 else -x, {"x": R}, "cannot be traced"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "layouts", "said"), REFUSED, ids=range(len(REFUSED)))
def test_a_wrong_program_is_refused(body: Body, layouts: dict[str, fl.Layout], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        of(body, **layouts)


def test_an_error_names_node_and_line() -> None:
    def body(x: Tensor) -> Tensor:
        y = x * 2
        return fl.all_reduce(y)

    said = r"node all_reduce \(test_layouts\.py:\d+: return fl\.all_reduce\(y\)\): all_reduce needs"
    with pytest.raises(BadConfig, match=said):
        of(body, x=R)


def test_declarations_and_inputs_are_checked() -> None:
    def body(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    with pytest.raises(BadConfig, match="program body has inputs x, y and declares x: declare"):
        fl.program(x=R)(body)
    with pytest.raises(BadConfig, match="input 'y' has no shape"):
        fl.program(x=R, y=R)(body)(x=(3,))
    with pytest.raises(BadConfig, match=r"node x: no dimension 1 in the shape \[6\] to slice"):
        fl.program(x=fl.sliced(1), y=R)(body)(shape=(6,))
    with pytest.raises(BadConfig, match="all_reduce is called outside a program"):
        fl.all_reduce(torch.ones(3))
    made = fl.program(x=R, y=L)(body)(shape=(6,))
    x, y = torch.ones(6), [torch.ones(6)] * 2
    for given, said in (
        ({"x": x}, "input y is missing"),
        ({"x": x[:5], "y": y}, r"input x is \[5\] torch.float32: the program needs \[6\]"),
        ({"x": x.double(), "y": y}, "input x is .* torch.float64"),
        ({"x": x, "y": x}, "input y is local: give a list of 2 tensors"),
        ({"x": x, "y": 3}, "input y is local: give a list of 2 tensors"),
        (
            {"x": x.to("meta"), "y": y},
            "input x is torch.strided on meta: make it dense, on the CPU",
        ),
        ({"x": x.to_sparse(), "y": y}, "input x is torch.sparse_coo on cpu: make it dense"),
        ({"x": 1.0, "y": y}, r"input x is float: the program needs \[6\]"),
        (5, "inputs=5 is not valid: give a dict of tensors by name"),
    ):
        inputs: Any = given
        with pytest.raises(BadConfig, match=said):
            fl.simulate(made, inputs, 2)
    for ranks in (None, 0, -1, 2.0, "2", True):
        with pytest.raises(BadConfig, match=f"ranks={ranks!r} is not valid: use a whole number"):
            untyped.simulate(made, {"x": x, "y": y}, ranks)
    program: Any
    for program, said in (
        (None, "None is not a program"),
        (fl.program(x=R)(one), r"no shapes yet"),
    ):
        with pytest.raises(BadConfig, match=said):
            fl.simulate(program, {"x": x}, 2)


def one(x: Tensor) -> Tensor:
    return x * 2


def total(x: Tensor) -> Tensor:
    return fl.all_reduce(x)


def several(*x: Tensor) -> Tensor:
    return x[0]


def any_named(**x: Tensor) -> Tensor:
    return x["x"]


def defaulted(x: Tensor, y: Tensor = OUTSIDE) -> Tensor:
    return x + y


def scaled(x: Tensor, lr: Tensor, *, factor: float) -> Tensor:
    return x * lr * factor


DECLARATIONS: list[tuple[Callable[[], Any], str]] = [
    (lambda: untyped.program(x=5)(one), "x=5 is not a declaration: use local, replicated"),
    (lambda: untyped.program(x="local")(one), "x='local' is not a declaration"),
    (lambda: untyped.program(x=None)(one), "x=None is not a declaration"),
    (lambda: untyped.sliced(1.5), "sliced dim=1.5 is not valid: use a whole number, 0 or more"),
    (lambda: fl.sliced(True), "sliced dim=True is not valid"),
    (lambda: fl.sliced(-1), "sliced dim=-1 is not valid"),
    (lambda: fl.Layout("halves"), "layout 'halves' is not known: use local, replicated or"),
    (lambda: fl.Layout("local", 0), "layout 'local' is not known"),
    (lambda: untyped.program(x=L, kernel=5)(one), "kernel=5 is not a function"),
    (lambda: fl.program(x=L)(torch.abs), "is not a function of Python: declare a `def`"),
    (lambda: fl.program(x=L)(fl.program(x=L)(one)), "is not a function of Python"),
    (lambda: fl.program(x=L)(several), r"program several has \*x: .*: name each input"),
    (lambda: fl.program(x=L)(any_named), r"program any_named has \*\*x: .*: name each input"),
    (lambda: fl.program(x=L, y=L)(defaulted), "input 'y' of program defaulted has a default"),
]  # fmt: skip
SHAPES: list[tuple[dict[str, Any], str]] = [
    *(({"shape": shape}, "is not the shape of input 'x': give a tuple of whole numbers")
      for shape in (3, "ab", (1.5,), (-1,), (True,), (None,), ((3,),), (1 << 70,), (1 << 60,))),
    *(({"shape": (3,), "dtype": dtype}, f"dtype={dtype!r} is not valid: use a dtype of torch")
      for dtype in ("float32", float, None)),
    ({"shape": (3,), "lr": 0.1}, "input 'lr' is a number: give its value when the program runs"),
    ({"shape": (3,), "other": 1}, "takes no value 'other' here; its constants, .*: factor"),
    ({"shape": (3,), "factor": "a"}, "cannot be traced at test_layouts.py"),
    ({"shape": (3,)}, "program scaled has a constant 'factor': give its value"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "said"), DECLARATIONS, ids=range(len(DECLARATIONS)))
def test_a_wrong_declaration_is_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        call()


@pytest.mark.parametrize(("given", "said"), SHAPES, ids=range(len(SHAPES)))
def test_a_wrong_shape_is_refused(given: dict[str, Any], said: str) -> None:
    more = {} if "constant 'factor'" in said else {"factor": 2}
    with pytest.raises(BadConfig, match=said):
        fl.program(x=R, lr=fl.scalar)(scaled)(**more | given)


NAMES: list[Body] = [
    lambda mul, y: mul * y * 2,
    lambda mul_1, y: mul_1 * y * 2,
    lambda output, y: output * y * 2,
    lambda own, y: own * y * 2,
]


@pytest.mark.parametrize("body", NAMES, ids=range(len(NAMES)))
def test_an_input_may_have_the_name_of_an_operation(body: Body) -> None:
    name: str = body.__code__.co_varnames[0]
    declared: dict[str, Any] = {name: R, "y": R}
    made = fl.program(**declared)(body)(shape=(3,)).copy()
    assert list(made.inputs) == [name, "y"]
    found = fl.simulate(made, {name: torch.full((3,), 3.0), "y": torch.full((3,), 5.0)}, 2)
    assert torch.equal(torch.as_tensor(found.outputs[0]), torch.full((3,), 30.0))


def test_an_input_may_be_updated_with_itself() -> None:
    made = of(lambda x: fl.update(x, x), x=R)
    found = fl.simulate(made, {"x": torch.ones(6, 4)}, 2)
    assert torch.equal(torch.as_tensor(found.updated["x"]), torch.ones(6, 4))


def test_programs_that_differ_are_told_apart() -> None:
    one_of, two_of = of(lambda x: x * 2, x=R), of(lambda x: [x * 2, x], x=R)
    given: dict[str, Any] = {"x": torch.ones(6, 4)}
    with pytest.raises(BadConfig, match="returns another number of tensors than"):
        fl.check(one_of, two_of, given, 2)
    for rtol in ("a", -1.0, math.nan, None, True, math.inf):
        with pytest.raises(BadConfig, match=f"rtol={rtol!r} is not valid: use a number, 0 or more"):
            untyped.check(one_of, one_of, given, 2, rtol)
    whole, each = of(total, x=L), of(one, x=L)
    with pytest.raises(BadConfig, match="output 0 of one differs from that of total"):
        fl.check(whole, each, {"x": [torch.ones(6, 4)] * 2}, 2)
    with pytest.raises(BadConfig, match=r"node broadcast .*there is no rank 2 among 2"):
        fl.simulate(of(lambda x: fl.broadcast(x, 2), x=L), {"x": [torch.ones(6, 4)] * 2}, 2)
