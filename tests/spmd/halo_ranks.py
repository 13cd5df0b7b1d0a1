"""One rank of each halo operation over Gloo, forward and backward: compared with one device, and
the bytes of its TCP connections counted."""

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.module import Partitioned
from dlcp_client.spmd.planning import plan
from dlcp_client.spmd.program import Program
from dlcp_client.spmd.runtime import GroupRanks, device_mesh
from tests.spmd.halo_cases import CASES, LISTED, RANKS, WIDTHS, Of, halo_rows
from tests.spmd.ranks import shard
from tests.spmd.wire_ranks import bytes_sent

HEIGHT: Final = 2000  # a column of 64 KB: headers of messages are few bytes beside it
DEAR: Final = Costs(latency=0.0, bytes_per_s=1e3)
SPACE: Final = (None, None, None, "space")


class Found(NamedTuple):
    """`sent`: bytes that this rank sent; `halo`: those of the halos of all ranks."""

    is_equal: bool
    sent: int
    halo: int


def counted(rank: int, size: int) -> dict[str, Found]:
    """By operation and width."""
    assert size == RANKS
    mesh = Mesh({"space": size})
    devices = device_mesh(mesh, "cpu")
    ranks = GroupRanks(mesh, devices)
    found = {}
    for name in LISTED:
        for width in WIDTHS:
            function, shapes = CASES[name]
            x = torch.randn(2, 2, HEIGHT, width).double()
            model = Of(function, *shapes)
            right = gradients(model, x)
            made = plan(model, mesh, example=(x,), inputs=[SPACE], costs=DEAR)
            parallel = Partitioned(Program(made, ranks), model, devices)
            before = bytes_sent()
            values = gradients(parallel, shard(x, SPACE, mesh))
            sent = bytes_sent() - before
            # The backward pass sends as many rows back.
            halo = 2 * halo_rows(function, shapes, x[:, :, :24]) * x[..., 0].nbytes
            found[f"{name} {width}"] = Found(are_equal(values, right), sent, halo)
    return found


def gradients(model: Any, x: Tensor) -> list[Tensor]:
    """The loss, and the gradient of each parameter."""
    loss = model(x)
    loss.backward()
    made = [loss.detach(), *(one.grad for one in model.parameters())]
    return [one.full_tensor() if isinstance(one, DTensor) else one for one in made]


def are_equal(made: list[Tensor], right: list[Tensor]) -> bool:
    """Of equal shapes, to 1e-9."""
    return all(
        one.shape == of.shape and torch.allclose(one, of, rtol=1e-9, atol=1e-9)
        for one, of in zip(made, right, strict=True)
    )
