"""Rules of a user's own operations: used, checked, and each mistake named."""

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from dlcp_client import spmd
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.rules.own import OWN
from dlcpd.contract.errors import BadConfig
from tests.spmd.one_device import assert_equal, counts

MESHES = [Mesh({"a": 2}), Mesh({"a": 3}), Mesh({"a": 2, "b": 2})]


@torch.library.custom_op("dlcptest::decay", mutates_args=())
def decay(x: Tensor, keep: Tensor) -> Tensor:
    """Each row of time is the one before, times `keep`, plus x."""
    rows = [x[:, 0]]
    for row in x.unbind(1)[1:]:
        rows.append(rows[-1] * keep + row)
    return torch.stack(rows, 1)


@decay.register_fake
def _(x: Tensor, keep: Tensor) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("dlcptest::decay_backward", mutates_args=())
def decay_backward(grad: Tensor, y: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    rows = [grad[:, -1]]
    for row in grad.unbind(1)[-2::-1]:
        rows.append(rows[-1] * keep + row)
    of_x = torch.stack(rows[::-1], 1)
    return of_x, (of_x[:, 1:] * y[:, :-1]).sum((0, 1))


@decay_backward.register_fake
def _(grad: Tensor, y: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(grad), torch.empty_like(keep)


@torch.library.custom_op("dlcptest::sum_exp", mutates_args=())
def sum_exp(x: Tensor) -> Tensor:
    return x.exp().sum(1)


def setup(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(output, inputs[1])


def backward(ctx: Any, grad: Tensor) -> Any:
    return decay_backward(grad, *ctx.saved_tensors)


decay.register_autograd(backward, setup_context=setup)
FORWARD = "b _ c, c -> b _ c"
BACKWARD = "b _ c, b _ c, c -> b _ c, c"
GRAD, KEEP = torch.randn(5, 4, 6).double(), torch.rand(6).double()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(6).double())
        self.keep = nn.Parameter(KEEP.clone())

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, decay(x * self.scale, self.keep)).square().sum()


@pytest.fixture(autouse=True)
def no_rules_of_others() -> Iterator[None]:
    before = dict(OWN)
    yield
    OWN.clear()
    OWN.update(before)


def planned(
    mesh: Mesh, dims: Any, costs: spmd.Costs | None = None
) -> tuple[Any, Model, tuple[Tensor]]:
    torch.manual_seed(0)
    model, arguments = Model(), (torch.randn(71, 4, 6).double(),)
    made = spmd.plan(model, mesh, example=arguments, inputs=[dims], costs=costs)
    return made, model, arguments


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_ranks_divide_an_operation_by_its_rule(mesh: Mesh) -> None:
    """Batches of 71 rows, so that shards are padded; without a gather, and equal to one device."""
    spmd.add_rule(decay, FORWARD)
    spmd.add_rule(torch.ops.dlcptest.decay_backward.default, BACKWARD, linear=[0])
    made, model, arguments = planned(mesh, ("a", None, None), spmd.Costs(latency=0.0))
    assert_equal(made, model, arguments)
    assert set(counts(made)) == {"all_reduce"}
    assert json.loads(spmd.explain(made, "json"))["without a rule"] == []


def test_a_function_chooses_the_rule_by_the_call() -> None:
    """None: as without a rule."""
    spmd.add_rule(decay, lambda call: FORWARD if call.first.shape[1] == 4 else None)
    spmd.add_rule(decay_backward, lambda call: None)
    made, model, arguments = planned(MESHES[0], ("a", None, None))
    assert_equal(made, model, arguments)
    (row,) = json.loads(spmd.explain(made, "json"))["without a rule"]
    assert row["operation"] == "dlcptest.decay_backward.default"


def test_true_rules_pass_their_check() -> None:
    spmd.add_rule(decay, FORWARD, linear=[0])
    spmd.check_rule(decay, GRAD, KEEP)
    spmd.add_rule(decay_backward, BACKWARD, linear=[0])
    spmd.check_rule(decay_backward, GRAD, decay(GRAD, KEEP), KEEP)


@pytest.mark.parametrize(
    ("dims", "linear", "words"),
    [
        ("b t c, c -> b t c", [], r"parts of 't' do not make the whole: write _ for it"),
        (FORWARD, [1], r"it is not linear in 1: leave that out of linear="),
        (FORWARD, [(0, 1)], r"it is not linear in 0, 1: leave"),
    ],
)
def test_a_wrong_rule_is_found_by_its_check(dims: str, linear: Any, words: str) -> None:
    spmd.add_rule(decay, dims, linear=linear)
    with pytest.raises(BadConfig, match="the rule of dlcptest.decay.default: " + words):
        spmd.check_rule(decay, GRAD, KEEP)


def test_a_sum_that_zeros_change_is_found_by_its_check() -> None:
    """Sums of parts may be right, but shards are padded with zeros, and exp(0) is 1."""
    operation = torch.ops.aten.logsumexp.default
    spmd.add_rule(operation, "i k -> i")
    with pytest.raises(BadConfig, match="of 'k' do not make the whole"):
        spmd.check_rule(operation, torch.randn(4, 4), [1])
    spmd.add_rule(sum_exp, "i k -> i")
    with pytest.raises(BadConfig, match="a row of zeros of 'k' changes the others: write _"):
        spmd.check_rule(sum_exp, torch.randn(4, 3))
    spmd.add_rule(sum_exp, "i _ -> i")
    spmd.check_rule(sum_exp, torch.randn(4, 3))


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ("b _ c, c", r"is 'b _ c, c': write operands, '->', results"),
        ("b _ c -> b _ c", "has 1 operands, and this call 2"),
        ("b _ c, c -> b _ c, c", "has 2 results, and this call 1"),
        ("b c, c -> b _ c", "has 2 dimensions for operand 0, which has 3"),
        ("b c c, c -> b _ c", "has 'c' twice in one tensor"),
        ("b _ c, b -> b _ c", "has 'b' for 71 rows, and for 6 of operand 1"),
        ("b _ c, c -> b _ k", "has 'k' in a result only"),
        ("b _ c, c -> b _ c*", r"has the dimension 'c\*': use letters and digits, or _"),
        (3, "is 3: write a text such as 'b c, c -> b c'"),
    ],
)
def test_each_mistake_in_a_rule_is_named(dims: Any, words: str) -> None:
    def use() -> None:
        spmd.add_rule(decay, dims)
        planned(MESHES[0], ("a", None, None))

    with pytest.raises(BadConfig, match=f"the rule of dlcptest.decay.default {words}"):
        use()


def test_a_rule_that_does_not_fit_is_named_with_the_line() -> None:
    spmd.add_rule(decay, "b _ c -> b _ c")
    with pytest.raises(BadConfig, match=r"\(test_own_rules\.py:\d+: return cast\("):
        planned(MESHES[0], ("a", None, None))
    spmd.add_rule(decay, FORWARD, linear=[2])
    with pytest.raises(BadConfig, match="is linear in operand 2: it has 2 tensors, from 0 on"):
        planned(MESHES[0], ("a", None, None))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (torch.tanh, "add_rule needs an operation such as torch.ops.mylib.scan.default, not"),
        (torch.ops.aten.add, "add_rule needs an operation"),  # it has several overloads
        (torch.ops.aten.add_.Tensor, "aten.add_.Tensor changes an argument in place"),
        (torch.ops.aten.bernoulli.default, "aten.bernoulli.default draws random numbers"),
    ],
)
def test_other_operations_are_refused(operation: Any, words: str) -> None:
    with pytest.raises(BadConfig, match=words):
        spmd.add_rule(operation, "i -> i")


def test_an_operation_without_an_own_rule_has_no_check() -> None:
    with pytest.raises(
        BadConfig, match=r"aten\.tanh\.default has no rule: give it one by add_rule"
    ):
        spmd.check_rule(torch.ops.aten.tanh.default, KEEP)
