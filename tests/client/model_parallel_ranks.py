"""What one rank does in a test of model parallelism: runs in a process of its own."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dlcp_client import Session, connect, fused
from dlcp_client.fused.language.operations import dropped
from dlcp_client.group import Group
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
MICRO_BATCHES = 3
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
            "no rows, no features": all(_empty(session.world)),
        }


def _empty(ranks: Any) -> Iterator[bool]:
    """Whether products of empty matrices have the shapes, and sums, of torch's."""
    layers = fused.row_parallel, fused.column_parallel, fused.all_gather_linear
    for rows, columns in ((0, 3), (4, 0)):
        x, weight = torch.ones(rows, columns, requires_grad=True), torch.ones(5, columns)
        for layer in layers:
            out = layer(x, weight, group=ranks)
            out.sum().backward()  # type: ignore[no-untyped-call]  # torch
            count = rows * ranks.size if layer is fused.all_gather_linear else rows
            yield torch.equal(out, torch.zeros(count, 5)) and x.grad is not None
    more: dict[str, Any] = {"residual": torch.ones(4, 0), "dropout": 0.5}
    yield fused.row_parallel(torch.ones(4, 3), torch.ones(0, 3), group=ranks, **more).shape == (
        4,
        0,
    )


def two_stages(rank: int, store: str, world: int) -> dict[str, Any]:
    """Two stages of two ranks each, against one device: differences by case, and bytes."""
    found: dict[str, Any] = {}
    with group(rank, store, world), session_of() as session, session_of(2 << 20) as small:
        layers, stages = of_two_stages(session)
        for pieces in PIECES:
            for gathers in (True, False):
                key = f"{pieces}, {gathers}"
                found[key] = differences_of_stage(layers, stages, gathers=gathers, pieces=pieces)
        found["bytes"] = bytes_between_stages(session, layers, stages, torch.ones(1024, 512))
        bytes_between_stages(small, *of_two_stages(small), torch.ones(4096, 512))  # 8 MB
    return found


def of_two_stages(session: Session) -> tuple[Group[Tensor], Group[Tensor]]:
    """The ranks of this rank's stage, and those of its place in both stages."""
    stage, place = divmod(session.rank, 2)
    return session.group([2 * stage, 2 * stage + 1]), session.group([place, place + 2])


class StageTensors(NamedTuple):
    """Of a model of two stages: whole tensors, equal on all ranks."""

    xs: list[Tensor]  # a micro-batch each
    weight: Tensor
    bias: Tensor
    then: Tensor  # the weight of the second stage

    @classmethod
    def drawn(cls) -> "StageTensors":
        generator = torch.Generator().manual_seed(5)
        drawn = partial(torch.randn, generator=generator, dtype=torch.float64)
        xs = [drawn(ROWS, BATCH, INNER) for _ in range(MICRO_BATCHES)]
        return cls(xs, drawn(OUTER, INNER), drawn(OUTER), drawn(INNER, OUTER))

    def residual(self, x: Tensor) -> Tensor:
        return x.repeat(1, 1, OUTER // INNER)

    def losses(self, weight: Tensor, bias: Tensor, then: Tensor) -> list[Tensor]:
        """On one device."""
        return [
            F.linear(linear(P, x=x, weight=weight, bias=bias, residual=self.residual(x)), then)
            .square()
            .sum()
            for x in self.xs
        ]


def differences_of_stage(
    layers: Group[Tensor], stages: Group[Tensor], *, gathers: bool, pieces: int
) -> float:
    """The largest one of this stage's losses and gradients. Backward passes have another order than
    forward passes."""
    given, place = StageTensors.drawn(), layers.rank
    whole = [t.clone().requires_grad_() for t in (given.weight, given.bias, given.then)]
    losses = given.losses(*whole)
    wanted = torch.autograd.grad(list(losses), whole)
    if not stages.rank:
        weight = given.weight.chunk(2, 1)[place].clone().requires_grad_()
        bias = given.bias.clone().requires_grad_()
        outs = [first_stage(given, x, weight, bias, layers) for x in given.xs]
        sent = [fused.send_next(y, stages=stages, pieces=pieces) for y in outs]
        return apart(gradients(sent, weight, bias), (wanted[0].chunk(2, 1)[place], wanted[1]))
    then = given.then.chunk(2)[place].clone().requires_grad_()
    mine = [second_stage(then, layers, stages, gathers=gathers) for _ in given.xs]
    totals = torch.stack([loss.detach() for loss in mine])
    layers.all_reduce(totals).wait()
    found = gradients(mine, then)
    return apart((*found, totals), (wanted[2].chunk(2)[place], torch.stack(losses).detach()))


def gradients(losses: Sequence[Tensor], *leaves: Tensor) -> list[Tensor]:
    """Of the losses of all micro-batches, from the last one on."""
    for loss in reversed(losses):
        torch.autograd.backward(loss)
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def first_stage(
    given: StageTensors, x: Tensor, weight: Tensor, bias: Tensor, layers: Group[Tensor]
) -> Tensor:
    return fused.row_parallel(
        x.chunk(2, 2)[layers.rank],
        weight,
        bias,
        group=layers,
        residual=given.residual(x).chunk(2)[layers.rank],
        dropout=P,
        seed=SEED,
        gather=False,
    )


def second_stage(
    weight: Tensor, layers: Group[Tensor], stages: Group[Tensor], *, gathers: bool
) -> Tensor:
    """This rank's part of the loss."""
    if gathers:
        y = fused.receive(stages=stages, group=layers)
        return fused.column_parallel(y, weight, group=layers).square().sum()
    y = fused.receive(stages=stages)
    return fused.all_gather_linear(y, weight, group=layers).square().sum()


def apart(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest value of its tensor."""
    pairs = zip(found, wanted, strict=True)
    return max(float((one - two).abs().max() / two.abs().max()) for one, two in pairs)


def bytes_between_stages(
    session: Session, layers: Group[Tensor], stages: Group[Tensor], whole: Tensor
) -> tuple[int, int]:
    """Bytes of datagrams that the engine sends to the other stage for a message, or its gradient;
    and those of the whole."""
    peer = stages.ranks[1 - stages.rank]
    before = sent_to(session, peer)
    if stages.rank:
        received = fused.receive(stages=stages, group=layers)
        assert torch.equal(received, whole)
        torch.autograd.backward(received, whole)
    else:
        part = whole.chunk(2)[layers.rank].requires_grad_()
        torch.autograd.backward(fused.send_next(part, stages=stages))
    session.world.barrier().wait()
    return sent_to(session, peer) - before, whole.nbytes


def sent_to(session: Session, peer: int) -> int:
    """Bytes of data datagrams to a rank so far, by the engine's counters."""
    [report] = session.status()["engine"]["sessions"].values()
    [row] = [one for one in report["peers"] if one["rank"] == peer]
    return sum(each["bytes"] for path in row["paths"] for each in path["classes"].values())
