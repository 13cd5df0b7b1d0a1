"""What cross_step refuses, by name."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Optimizer

from dlcp_client import cross_step
from dlcp_client.cross_step.suitability import SEPARABLE, check_optimizer
from dlcpd.contract.errors import BadConfig, BadTensor


class Mine(SGD):
    """Someone's own."""


class Special(nn.Parameter):
    """A parameter class of someone's own."""


def refused(net: Any, optimizer: Any, text: str, error: type[Exception] = BadConfig) -> None:
    with pytest.raises(error, match=text):
        cross_step.register(net, optimizer)


def sgd(net: nn.Module, **options: Any) -> SGD:
    return SGD(net.parameters(), lr=0.1, **options)


def test_only_a_ddp_model_is_taken() -> None:
    net = nn.Linear(1, 1)
    refused(net, sgd(net), "this is a Linear: wrap the model first")


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph"])
def test_options_that_hide_what_was_used(option: str) -> None:
    net = DistributedDataParallel(nn.Linear(1, 1), **{option: True})  # type: ignore[arg-type]
    refused(net, sgd(net), rf"DistributedDataParallel\({option}=...\).*use ddp.register")


@pytest.mark.usefixtures("group_of_one")
def test_mixed_precision_of_ddp() -> None:
    net = DistributedDataParallel(nn.Linear(1, 1))
    net.mixed_precision = object()  # type: ignore[assignment]  # DDP itself wants a GPU for it
    refused(net, sgd(net), r"mixed_precision=...\).*torch.autocast")


@pytest.mark.usefixtures("group_of_one")
def test_modules_that_wait_for_nobody() -> None:
    traced: Any = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))  # type: ignore[no-untyped-call]
    for module, text in (
        (traced, "runs outside Python"),
        (nn.Embedding(2, 2, sparse=True), "sparse=False"),
        (nn.EmbeddingBag(2, 2, sparse=True), "sparse=False"),
    ):
        net = DistributedDataParallel(nn.Sequential(module))
        refused(net, sgd(net), text)


@pytest.mark.usefixtures("group_of_one")
def test_parameters_of_another_class() -> None:
    net = nn.Linear(2, 2)
    net.bias = Special(torch.zeros(2))
    wrapped = DistributedDataParallel(net)
    refused(wrapped, sgd(wrapped), "parameter 'bias' has the class Special", BadTensor)


@pytest.mark.usefixtures("group_of_one")
def test_a_model_with_a_hook_of_its_own() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    net.register_comm_hook(None, allreduce_hook)
    refused(net, sgd(net), "a communication hook")


@pytest.mark.usefixtures("group_of_one")
def test_an_optimizer_of_another_model() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    refused(net, sgd(nn.Linear(2, 2)), "no parameter of this model")


@pytest.mark.usefixtures("group_of_one")
def test_a_sharded_optimizer() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    sharded = ZeroRedundancyOptimizer(net.parameters(), SGD, lr=0.1)
    refused(net, sharded, "ZeroRedundancyOptimizer may read all gradients at once")


@pytest.mark.parametrize("kind", [torch.optim.LBFGS, torch.optim.SparseAdam, Mine])
def test_optimizers_that_may_compare_parameters(kind: type[Optimizer]) -> None:
    optimizer = kind(nn.Linear(2, 2).parameters(), lr=0.1)  # type: ignore[call-arg]
    with pytest.raises(BadConfig, match=rf"{kind.__name__} may read all gradients at once"):
        check_optimizer(optimizer)


@pytest.mark.parametrize("option", ["fused", "differentiable"])
def test_options_that_cannot_be_deferred(option: str) -> None:
    with pytest.raises(BadConfig, match=rf"cannot defer SGD\({option}=True\)"):
        check_optimizer(sgd(nn.Linear(2, 2), **{option: True}))


@pytest.mark.usefixtures("group_of_one")
def test_nothing_of_a_refused_one_is_changed() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = sgd(net, fused=True)
    refused(net, optimizer, "fused")
    assert "step" not in vars(optimizer)
    assert "zero_grad" not in vars(net)


@pytest.mark.usefixtures("group_of_one")
def test_a_world_of_one_trains_as_ever() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    optimizer = sgd(net)
    handle = cross_step.register(net, optimizer)
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    handle.synchronize()
    handle.close()
    assert handle.session is None and handle.step == 0 and handle.ledger.operations == 0


@pytest.mark.parametrize("kind", SEPARABLE)
def test_updating_one_by_one_gives_the_same(kind: type[Optimizer]) -> None:
    """What the list of optimizers promises."""
    results = []
    for apart in (False, True):
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(4, 4)) for _ in range(3)]
        optimizer = kind(parameters, lr=0.1)  # type: ignore[call-arg]
        for _ in range(4):
            for parameter in parameters:
                parameter.grad = torch.randn(4, 4)
            for members in [[p] for p in parameters] if apart else [parameters]:
                optimizer.param_groups[0]["params"] = members
                optimizer.step()
        results.append(torch.stack([p.detach() for p in parameters]))
    assert torch.equal(*results)
