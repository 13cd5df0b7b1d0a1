"""Layers that are divided among ranks, over real daemons: equal to the program of one device."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch._C._distributed_c10d import HashStore

from dlcp_client import fused
from dlcp_client.fused.model_parallel.messages import Description
from dlcpd.contract.errors import BadConfig, BadOperation, BadTensor
from tests import examples
from tests.client import compiled_ranks, model_parallel_ranks
from tests.client.stand_in import StandIn
from tests.client.test_ddp import on_each_rank, on_hosts


@pytest.mark.parametrize("world", [2, 3, 4])
def test_layers_equal_one_device(tmp_path: Path, world: int) -> None:
    for rank in on_hosts(model_parallel_ranks.layers, tmp_path, world, world=world):
        apart = {name: most for name, most in rank.items() if not most < 1e-12}
        assert not apart
        assert len(rank) == 24


def test_a_small_arena_and_seeds_of_dropout(tmp_path: Path) -> None:
    for rank in on_hosts(model_parallel_ranks.bounds, tmp_path, 2, world=2):
        assert 0.49 < rank.pop("kept") < 0.51
        assert all(rank.values()), rank


def test_stages_equal_one_device_and_send_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "0")  # a daemon for each rank, which counts its bytes
    for rank in on_each_rank(model_parallel_ranks.two_stages, tmp_path, 4, world=4):
        sent, whole = rank.pop("bytes")
        assert whole / 2 <= sent < 1.05 * whole / 2
        apart = {name: most for name, most in rank.items() if not most < 1e-12}
        assert not apart
        assert len(rank) == 6


@pytest.mark.heavy
def test_graphs_of_dtensor_overlap_and_equal_eager(tmp_path: Path) -> None:
    for rank in on_each_rank(compiled_ranks.compiled, tmp_path, 2, world=2):
        assert rank.pop("sequence False") == (0.0, {"product_reduced": 2, "gradients meanwhile": 3})
        assert rank.pop("sequence True") == (
            0.0,
            {"gathered_products": 2, "product_scattered": 2, "gradients meanwhile": 3},
        )


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "ranks"), [("train_tensor_parallel.py", 2), ("train_pipeline.py", 4)]
)
def test_the_examples_learn(name: str, ranks: int) -> None:
    printed = examples.output(name, ranks)
    losses = [float(line.split()[-1]) for line in printed.splitlines() if "loss" in line]
    assert losses[-1] < 0.7 * losses[0], losses
    assert printed.count(": True") == ranks


X, WEIGHT = torch.ones(4, 3), torch.ones(2, 3)
REFUSED: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("x", {"x": torch.ones(4, 2)}, BadTensor, "last dimensions must be equal"),
    ("bias", {"bias": torch.ones(3)}, BadTensor, "the weight has 2 rows"),
    ("residual", {"residual": torch.ones(4, 3)}, BadTensor, r"shape \[4, 3\], and the result"),
    (
        "residual's type",
        {"residual": torch.ones(4, 2).double()},
        BadTensor,
        "residual is of torch.float64, and x of",
    ),
    ("dtype", {"x": X.double()}, BadTensor, "weight is of torch.float32, and x of torch.float64"),
    ("integers", {"x": X.int(), "weight": WEIGHT.int()}, BadTensor, "torch.int32"),
    *(
        ("dropout", {"dropout": p}, BadConfig, "dropout=.* is not valid: use a number, 0 or more")
        for p in (1.0, -0.1, math.nan, None, "0.5", True, torch.tensor(0.1))
    ),
    *(
        ("seed", {"seed": seed}, BadConfig, "seed=.* is not valid: use a whole number")
        for seed in ("a", 1.5, True, math.nan, torch.tensor(3), 1 << 63)
    ),
    ("gather", {"gather": "no"}, BadConfig, "gather='no' is not valid: use True or False"),
    ("rows", {"x": torch.ones(5, 3), "gather": False}, BadTensor, "among 2 ranks: pad it"),
    ("group", {"group": "tp"}, BadConfig, 'init_process_group\\("dlcp"\\)'),
]


@pytest.mark.parametrize(
    ("more", "error", "text"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refusals(world: StandIn, more: dict[str, Any], error: type[Exception], text: str) -> None:
    given: dict[str, Any] = {"x": X, "weight": WEIGHT, "group": world.sessions[0].world} | more
    with pytest.raises(error, match=text):
        fused.row_parallel(**given)


# Of each layer: what replaces an argument, and what the error says
MISTAKEN: list[tuple[dict[str, Any], type[Exception], str]] = [
    *(
        ({"pieces": pieces}, BadConfig, "pieces=.* is not valid: use a whole number, 0 or more")
        for pieces in (None, 1.5, 2.0, "2", True, -1, math.nan, torch.tensor(2))
    ),
    *(
        ({name: given}, BadTensor, f"{name} is {type(given).__name__}: give a tensor")
        for name in ("x", "weight")
        for given in (None, 3, [[1.0] * 3] * 4)
    ),
    ({"bias": 3}, BadTensor, "bias is int: give a tensor"),
    *(
        ({name: given}, BadTensor, f"{name} is of .* it must be dense, on the CPU, and of float32")
        for name, one in {"x": X, "weight": WEIGHT, "bias": torch.ones(2)}.items()
        for given in (one.to("meta"), one.to_sparse(), one.int(), one + 1j)
    ),
    (
        {"bias": torch.ones(2).double()},
        BadTensor,
        "bias is of torch.float64, and x of torch.float32",
    ),
    ({"group": None}, BadConfig, "group=None is not of dlcpd"),
]


@pytest.mark.parametrize("name", ["row_parallel", "column_parallel", "all_gather_linear"])
def test_mistaken_arguments_of_each_layer(world: StandIn, name: str) -> None:
    for more, error, text in MISTAKEN:
        given = {"x": X, "weight": WEIGHT, "group": world.sessions[0].world} | more
        with pytest.raises(error, match=text):
            getattr(fused, name)(**given)
    with pytest.raises(BadConfig, match="pieces='2' is not valid"):
        fused.inductor_options("2")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(BadTensor, match="residual is list: give a tensor"):
        fused.row_parallel(X, WEIGHT, group=world.sessions[0].world, residual=[1.0])  # type: ignore[arg-type]  # on purpose


def test_rows_are_a_dimension(world: StandIn) -> None:
    with pytest.raises(BadTensor, match=r"shape \[3\] has no rows"):
        fused.all_gather_linear(torch.ones(3), WEIGHT, group=world.sessions[0].world)


@pytest.mark.usefixtures("group_of_one")
def test_a_group_of_another_backend_is_refused() -> None:
    gloo: Any = dist.group.WORLD
    with pytest.raises(BadConfig, match="not of dlcpd"):
        fused.all_gather_linear(X, WEIGHT, group=gloo)


@pytest.fixture
def alone() -> Iterator[Any]:
    dist.init_process_group("dlcp", store=HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_a_group_of_one_rank_needs_no_communication(alone: Any) -> None:
    x, bias = torch.randn(4, 3), torch.randn(2)
    wanted = F.linear(x, WEIGHT, bias)
    for call in (fused.row_parallel, fused.column_parallel, fused.all_gather_linear):
        assert torch.equal(call(x, WEIGHT, bias, group=alone), wanted)
    drop: dict[str, Any] = {"dropout": 0.5, "seed": 1, "residual": torch.ones(4, 2)}
    found = fused.row_parallel(x, WEIGHT, bias, group=alone, **drop) - 1
    assert bool(((found == 0) | ((found - 2 * wanted).abs() < 1e-6)).all())
    none = fused.row_parallel(x, torch.ones(0, 3), group=alone, dropout=0.5)
    assert none.shape == (4, 0)


STAGES: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("integers", {"x": X.int()}, BadTensor, "x is of torch.int32 and torch.strided on cpu"),
    ("no tensor", {"x": None}, BadTensor, "send_next: x is NoneType: give a tensor"),
    ("pieces", {"pieces": 1.5}, BadConfig, "pieces=1.5 is not valid: use a whole number"),
    ("no rows", {"x": torch.ones(())}, BadTensor, "have 1 to 8 dimensions"),
    ("group", {"stages": "pp"}, BadConfig, 'init_process_group\\("dlcp"\\)'),
]


@pytest.mark.parametrize(
    ("more", "error", "text"), [row[1:] for row in STAGES], ids=[row[0] for row in STAGES]
)
def test_what_cannot_be_sent_is_refused(
    world: StandIn, more: dict[str, Any], error: type[Exception], text: str
) -> None:
    given: dict[str, Any] = {"x": X, "stages": world.sessions[0].world} | more
    with pytest.raises(error, match=text):
        fused.send_next(**given)


def test_the_ends_of_a_pipeline_are_named(world: StandIn, alone: Any) -> None:
    first, last = world.sessions[0].world, world.sessions[-1].world
    with pytest.raises(BadConfig, match="stage 1 is the last one: compute the loss"):
        fused.send_next(X, stages=last)
    with pytest.raises(BadConfig, match="stage 0 is the first one: give it the inputs"):
        fused.receive(stages=first)
    with pytest.raises(BadConfig, match="has one rank: a pipeline has at least two stages"):
        fused.send_next(X, stages=alone)


def test_another_message_than_that_of_a_stage_is_refused() -> None:
    """Each number of a description, changed to one that none has."""
    description = Description.of(torch.ones(4, 3), 2)
    assert Description.decoded(description.encoded()) == description
    wrong = {0: (-1, 4), 1: (0, -1, 1 << 62), 2: (0, -1, 9), 3: (-1, 1 << 62)}
    for place, numbers in wrong.items():
        for number in numbers:
            encoded = description.encoded()
            encoded[place] = number
            with pytest.raises(BadOperation, match="something else than `send_next`"):
                Description.decoded(encoded)
