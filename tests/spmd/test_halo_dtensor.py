"""DTensor of this torch on the list of halo operations: the table of docs/spmd.md says the same.

`LocalTensorMode` of torch runs all ranks in one process.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._local_tensor import LocalTensor, LocalTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.pages import ROOT
from tests.spmd.halo_cases import CASES, LISTED, RANKS, WIDTHS, Of, halo_rows
from tests.spmd.halo_ranks import are_equal, gradients

HEIGHT = 24


@pytest.fixture(scope="module")
def devices() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def table() -> dict[str, list[str]]:
    """The rows of the page by operation."""
    page = (ROOT / "docs" / "spmd.md").read_text()
    rows = page.partition("| operation | columns")[2].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {name: more for name, *more in cells[: len(LISTED)]}


@pytest.mark.parametrize("name", LISTED)
def test_the_table_shows_halos_and_dtensor(name: str, devices: DeviceMesh) -> None:
    function, shapes = CASES[name]
    rows, said = [], set()
    torch.manual_seed(1)
    for width in WIDTHS:
        x = torch.randn(2, 2, HEIGHT, width).double()
        rows.append(str(halo_rows(function, shapes, x)))
        said.add(by_dtensor(Of(function, *shapes), x, devices))
    assert table()[name] == [", ".join(rows), *said]


def by_dtensor(model: Of, x: Tensor, devices: DeviceMesh) -> str:
    """The outcome of a step, and how often a whole tensor is gathered."""
    right = gradients(model, x)
    model.zero_grad()
    with LocalTensorMode(RANKS):
        for name, one in list(model.named_parameters()):
            holder, _, last = name.rpartition(".")
            made = distribute_tensor(one.detach(), devices, [Replicate()], src_data_rank=None)
            model.get_submodule(holder).register_parameter(last, nn.Parameter(made))
        given = distribute_tensor(x, devices, [Shard(3)], src_data_rank=None)
        given.requires_grad_()  # torch's counter warns without
        try:
            if not all(torch.allclose(one, right[0]) for one in on_ranks(model(given))):
                return "wrong result"
            with CommDebugMode() as counted:  # type: ignore[no-untyped-call]  # of torch
                found = [on_ranks(one) for one in gradients(model, given)]
        except NotImplementedError:
            return "refused"
    assert all(are_equal(list(each), right) for each in zip(*found, strict=True))
    numbers = {str(of).rpartition(".")[2]: n for of, n in counted.get_comm_counts().items()}
    return f"equal, whole tensors gathered: {numbers['all_gather_into_tensor']}"


def on_ranks(x: Any) -> list[Tensor]:
    """The whole tensor as each rank has it."""
    x = x.full_tensor() if isinstance(x, DTensor) else x
    assert isinstance(x, LocalTensor)
    each: dict[int, Tensor] = x._local_tensors  # noqa: SLF001  # torch has no other way
    return [one.detach() for one in each.values()]
