"""What one rank does in a test of model parallelism: runs in a process of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dlcp_client import Session, connect, fused
from dlcp_client.fused.language.operations import dropped
from tests.client.ddp_ranks import group
from tests.client.real import TIMEOUT

ROWS, BATCH, INNER, OUTER = 36, 3, 24, 48  # rows and features divide by 2, 3 and 4
SEED, P = 7, 0.3
PIECES = (0, 1, 5)
SHAPES = {
    "x": (ROWS, BATCH, INNER),
    "weight": (OUTER, INNER),
    "bias": (OUTER,),
    "residual": (ROWS, BATCH, OUTER),
    "result": (ROWS, BATCH, OUTER),  # its gradient
}
Program = Callable[..., Tensor]
Values = dict[str, Tensor]


def session_of(arena_bytes: int = 64 << 20) -> Session:
    return connect(timeout=TIMEOUT, arena_bytes=arena_bytes)


def drawn(names: tuple[str, ...]) -> Values:
    """Whole tensors, equal on all ranks."""
    generator = torch.Generator().manual_seed(3)
    made = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in SHAPES.items()
    }
    return {name: made[name] for name in (*names, "result")}


def trained(program: Program, given: Values) -> Values:
    """The result, and gradients by name."""
    leaves = {name: t.clone().requires_grad_() for name, t in given.items() if name != "result"}
    y = program(**leaves)
    gradients = torch.autograd.grad(y, list(leaves.values()), given["result"])
    return {"result": y.detach()} | dict(zip(leaves, gradients, strict=True))


def parts(whole: Values, session: Session, dims: dict[str, int]) -> Values:
    """This rank's part along a dimension of those that are named; the whole of others."""
    return {
        name: t.chunk(session.world_size, dims[name])[session.rank] if name in dims else t
        for name, t in whole.items()
    }


def difference(
    session: Session, one_device: Program, layer: Program, names: str, dims: dict[str, int]
) -> float:
    """Of results and gradients of a layer of all ranks and the program of one device."""
    given = drawn(tuple(names.split()))
    wanted = parts(trained(one_device, given), session, dims)
    found = trained(layer, parts(given, session, dims))
    return max(float((found[name] - wanted[name]).abs().max()) for name in wanted)


def linear(p: float = 0.0, **given: Any) -> Tensor:
    """On one device; the dropout is that of the language."""
    residual = given.pop("residual", 0)
    y = F.linear(given["x"], given["weight"], given.get("bias"))
    if p:
        y = dropped(y, p, torch.tensor(SEED), torch.arange(y.numel()).view(y.shape))
    out: Tensor = y + residual
    return out


def layers(rank: int, store: str, world: int) -> dict[str, float]:
    """Differences to one device, by case."""
    found = {}
    with group(rank, store, world), session_of() as session:
        common: dict[str, Any] = {"group": session.world}
        for pieces in PIECES:
            for p, names in ((0.0, "x weight"), (P, "x weight bias residual")):
                for gather in (True, False):
                    dims = {"x": 2, "weight": 1} | ({} if gather else {"result": 0, "residual": 0})
                    layer = partial(
                        fused.row_parallel,
                        **common,
                        dropout=p,
                        seed=SEED,
                        gather=gather,
                        pieces=pieces,
                    )
                    found[f"row {p}, {gather}, {pieces}"] = difference(
                        session, partial(linear, p=p), layer, names, dims
                    )
            for names in ("x weight", "x weight bias"):
                dims = {"weight": 0, "bias": 0, "result": 2}
                layer = partial(fused.column_parallel, **common, pieces=pieces)
                key = f"column {names}, {pieces}"
                found[key] = difference(session, linear, layer, names, dims)
                layer = partial(fused.all_gather_linear, **common, pieces=pieces)
                key = f"gather {names}, {pieces}"
                found[key] = difference(session, linear, layer, names, dims | {"x": 0})
    return found


def bounds(rank: int, store: str, world: int) -> dict[str, Any]:
    """Results larger than the arena; seeds without `seed=`."""
    torch.manual_seed(rank)  # ranks may have different ones
    with group(rank, store, world), session_of(2 << 20) as session:
        x, weight = torch.ones(4000, 2), torch.full((500, 2), 0.5)  # the sum has 8 MB
        call = partial(fused.row_parallel, x, weight, group=session.world, pieces=16)
        whole = bool((call() == float(world)).all())
        drops = [call(dropout=0.5) for _ in range(2)]
        some = torch.cat(drops)[::40].contiguous()
        first = some.clone()
        session.world.broadcast(first, 0).wait()
        return {
            "whole": whole,
            "same on all ranks": torch.equal(some, first),
            "another at each call": not torch.equal(*drops),
            "kept": float((drops[0] != 0).double().mean()),
            "used": float(drops[0].max()) == 2.0 * world,
        }
