"""Which parameters a forward pass needs first, and what class follows."""

import pickle

import torch
from torch import nn

from dlcp_client.hooks.forward_order import ForwardOrder, in_order, thirds


class Backwards(nn.Module):
    """Registers its layers in another order than it uses them; one is never called itself."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 8, bias=False)
        self.never = nn.Linear(8, 8, bias=False)
        self.first = nn.Linear(8, 8, bias=False)
        self.swapped = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.linear(x, self.never.weight)
        pair = (self.last, self.first) if self.swapped else (self.first, self.last)
        return torch.as_tensor(pair[1](pair[0](x)))


def classes(order: ForwardOrder, model: nn.Module) -> dict[str, str]:
    return {name: order.class_of(p) for name, p in model.named_parameters()}


def test_classes_follow_first_use_and_not_registration() -> None:
    model = Backwards()
    order = ForwardOrder(model)
    model(torch.ones(1, 8))
    assert classes(order, model) == {
        "first.weight": "front",
        "last.weight": "middle",
        "never.weight": "back",
    }


def test_the_first_order_stands() -> None:
    model = Backwards()
    order = ForwardOrder(model)
    model(torch.ones(1, 8))
    model.swapped = True
    model(torch.ones(1, 8))
    assert classes(order, model)["first.weight"] == "front"
    model(torch.ones(1, 8))
    assert classes(order, model)["first.weight"] == "front"


def test_without_a_forward_pass_the_order_is_that_of_registration() -> None:
    model = Backwards()
    assert list(classes(ForwardOrder(model), model).values()) == ["front", "middle", "back"]


def test_a_tied_parameter_counts_at_its_first_use() -> None:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    tied = nn.Sequential(model[1], model[0], model[1])
    tied[2].weight = tied[0].weight
    order = ForwardOrder(tied)
    tied(torch.ones(1, 8))
    assert order.class_of(next(tied[0].parameters())) == "front"


def test_watching_leaves_nothing_on_the_model() -> None:
    model = nn.Linear(2, 2)
    order = ForwardOrder(model)
    assert not model._forward_pre_hooks  # noqa: SLF001
    pickle.dumps(model)
    order.stop()
    model(torch.ones(1, 2))
    assert order._first_use == {}  # noqa: SLF001


def test_thirds_are_of_bytes() -> None:
    sizes = [700, 10, 10, 10]
    ordered = [nn.Parameter(torch.empty(size)) for size in sizes]
    assert list(thirds(ordered).values()) == ["front", "back", "back", "back"]
    assert list(thirds(ordered[1:]).values()) == ["front", "middle", "back"]
    assert thirds([]) == {}


def test_what_was_never_used_follows_its_neighbour() -> None:
    a, b, c, d = (nn.Parameter(torch.empty(1)) for _ in range(4))
    assert [id(p) for p in in_order([a, b, c, d], {id(c): 0, id(a): 1})] == [
        id(p) for p in (c, d, a, b)
    ]
    assert [id(p) for p in in_order([a, b], {id(b): 0})] == [id(a), id(b)]
