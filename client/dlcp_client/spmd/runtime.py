"""The collectives of a divided graph over the process groups of torch.distributed."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from hashlib import sha256
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dlcp_client.c10d import ProcessGroup
from dlcp_client.c10d.errors import torch_errors
from dlcp_client.group import Group
from dlcp_client.products import ReducedProduct
from dlcpd.contract.errors import ArenaFull, BadConfig, RanksDisagree

from .collectives import Position, shards
from .meshes import Mesh
from .overlapped import pieces_of
from .windows import (
    Numbers,
    Window,
    counts_for,
    row_bytes,
    rows_back,
    rows_for,
    sent_rows,
    shard_of,
    window_of,
)

T = TypeVar("T")
SMALL: Final = 16 << 10  # bytes: to copy less takes less time than to allocate it in the arena


def device_mesh(mesh: Mesh, device_type: str) -> DeviceMesh:
    """The mesh with its process groups. Every rank of the job calls this.

    Raises: BadConfig if the job has another number of ranks.
    """
    if not dist.is_initialized():
        raise BadConfig(
            "spmd needs process groups: call torch.distributed.init_process_group first"
        )
    if dist.get_world_size() != mesh.ranks:
        raise BadConfig(
            f"the mesh {mesh} has {mesh.ranks} ranks, and the job {dist.get_world_size()}: "
            "they must be equal"
        )
    return init_device_mesh(device_type, tuple(mesh.sizes.values()), mesh_dim_names=mesh.names)


class Pending(NamedTuple):
    """A collective of several tensors that has begun. Its tensors may not be read before `end`."""

    work: Any  # of torch.distributed
    results: Callable[[], list[Tensor]]

    def end(self) -> list[Tensor]:
        """The results, when all of them are there."""
        self.work.wait()
        return self.results()


class GroupRanks(Position):
    """This rank and its groups, one per axis. The methods are those of `Ranks`."""

    def __init__(self, mesh: Mesh, devices: DeviceMesh) -> None:
        super().__init__(mesh, dist.get_rank())
        self.seed = _of_all(torch.initial_seed() % 2**31)[0]
        self._groups = {name: devices.get_group(name) for name in mesh.names}

    def all_gather(self, x: Tensor, axis: str, dim: int, size: int) -> Tensor:
        rows = _bytes(x.movedim(dim, 0).contiguous())
        out = rows.new_empty((self.mesh.sizes[axis] * rows.shape[0], *rows.shape[1:]))
        dist.all_gather_into_tensor(out, rows, group=self._groups[axis])
        return out.view(x.dtype).narrow(0, 0, size).movedim(0, dim)

    def all_reduce(self, x: Tensor, axis: str) -> Tensor:
        out = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(out, group=self._groups[axis])
        return out

    def reduced_product(
        self, factors: Sequence[tuple[Tensor, Tensor]], axis: str, pieces: int
    ) -> Tensor:
        """The `all_reduce` of the sum of products; over dlcpd in `pieces`, or fewer."""
        a, b = factors[0]
        nbytes = a.shape[0] * b.shape[1] * a.itemsize
        inner, count = self._inner(axis), pieces_of(nbytes, pieces)
        if inner is not None and a.device.type == "cpu" and count > 1:
            # The arena keeps gradients in one half; several pieces fit into the other one.
            count = max(count, 8 * nbytes // inner.session.arena_bytes)
            with torch_errors():
                return ReducedProduct(inner, factors, pieces=count).result()
        made = torch.mm(a, b)
        for one, other in factors[1:]:
            made.addmm_(one, other)
        dist.all_reduce(made, group=self._groups[axis])
        return made

    def sum_numbers(self, given: Sequence[Tensor], axis: str) -> list[Tensor]:
        """The sums of numbers of several types, in one operation: as float64."""
        both = torch.stack([one.double() for one in given])
        dist.all_reduce(both, group=self._groups[axis])
        return [one.to(x.dtype) for one, x in zip(both, given, strict=True)]

    def begin_sums(self, given: Sequence[Tensor], axis: str, classes: Sequence[str]) -> Pending:
        """Start the sum of several tensors of one type, in one operation. `classes`: of traffic;
        backends other than dlcp have none."""
        flat = self._room(given[0], axis, sum(one.numel() for one in given))
        parts = _parts(flat, [one.shape for one in given])
        torch._foreach_copy_(parts, [*given])
        with self._classed(axis, [one.nbytes for one in given], classes):
            work = dist.all_reduce(flat, group=self._groups[axis], async_op=True)
        return Pending(work, lambda: parts)

    def begin_scatters(
        self, given: Sequence[Tensor], axis: str, dims: Sequence[int], classes: Sequence[str]
    ) -> Pending:
        """Start `reduce_scatter` of several tensors of one type along `dims`, in one operation."""
        parts = self.mesh.sizes[axis]
        each = [shards(x, dim, parts) for x, dim in zip(given, dims, strict=True)]
        rows = [one[at] for at in range(parts) for one in each]
        flat = self._room(given[0], axis, sum(one.numel() for one in rows))
        torch._foreach_copy_(_parts(flat, [one.shape for one in rows]), rows)
        out = self._room(flat, axis, flat.numel() // parts)
        sizes = [one[0].nbytes for one in each]
        with self._classed(axis, sizes * parts, [*classes] * parts):
            work = dist.reduce_scatter_tensor(out, flat, group=self._groups[axis], async_op=True)
        return Pending(work, lambda: _parts(out, [one[0].shape for one in each]))

    def begin_gathers(
        self, given: Sequence[Tensor], axis: str, dims: Sequence[int], sizes: Sequence[int]
    ) -> Pending:
        """Start `all_gather` of several tensors along `dims`, in one operation."""
        if len({one.dtype for one in given}) > 1:
            return self._begin_gathers_of_types(given, axis, dims, sizes)
        flat = _bytes(torch.cat([one.reshape(-1) for one in given]))
        out = flat.new_empty((self.mesh.sizes[axis], flat.numel()))
        work = dist.all_gather_into_tensor(
            out.view(-1), flat, group=self._groups[axis], async_op=True
        )

        def results() -> list[Tensor]:
            shapes = [one.shape for one in given]
            each = [_parts(row, shapes) for row in out.view(given[0].dtype)]
            rows = zip(zip(*each, strict=True), dims, sizes, strict=True)
            return [torch.cat(one, dim).narrow(dim, 0, size) for one, dim, size in rows]

        return Pending(work, results)

    def _begin_gathers_of_types(
        self, given: Sequence[Tensor], axis: str, dims: Sequence[int], sizes: Sequence[int]
    ) -> Pending:
        """The same of several types, as bytes."""
        parts, count = self.mesh.sizes[axis], len(given)
        flat = [one.reshape(-1).view(torch.uint8) for one in given]
        pending = self.begin_gathers(flat, axis, [0] * count, [parts * x.numel() for x in flat])

        def results() -> list[Tensor]:
            rows = zip(pending.results(), given, dims, sizes, strict=True)
            return [
                torch.cat(made.view(x.dtype).view(parts, *x.shape).unbind(), dim).narrow(dim, 0, n)
                for made, x, dim, n in rows
            ]

        return Pending(pending.work, results)

    def _inner(self, axis: str) -> Group[Tensor] | None:
        """The group of dlcpd of an axis; None: its backend is another one."""
        group = self._groups[axis]
        inner: Any = group.group if isinstance(group, ProcessGroup) else None
        return inner if isinstance(inner, Group) else None

    def _room(self, like: Tensor, axis: str, count: int) -> Tensor:
        """Memory for a collective of an axis, of the type of `like`: in the arena, which takes no
        copy, while that is not half full. Gradients stay there as long as the user keeps them."""
        inner, size = self._inner(axis), count * like.itemsize
        if inner is not None and like.device.type == "cpu" and size >= SMALL:
            session = inner.session
            if 2 * (session.arena_used + size) <= session.arena_bytes:
                with torch_errors(), suppress(ArenaFull):
                    found: Tensor = session.empty(count, like.dtype)
                    return found
        return like.new_empty(count)

    def _classed(
        self, axis: str, sizes: Sequence[int], classes: Sequence[str]
    ) -> AbstractContextManager[None]:
        """The traffic classes of an operation on tensors of `sizes` bytes that lie one after
        another."""
        group = self._groups[axis]
        if not isinstance(group, ProcessGroup):
            return nullcontext()
        starts = accumulate(sizes, initial=0)
        pairs = zip(starts, sizes, classes, strict=False)  # the end of the last one is a start too
        return group.with_layers([(start, one) for start, size, one in pairs if size])

    def reduce_scatter(self, x: Tensor, axis: str, dim: int) -> Tensor:
        rows = torch.cat(shards(x.movedim(dim, 0), 0, self.mesh.sizes[axis]))
        out = rows.new_empty((rows.shape[0] // self.mesh.sizes[axis], *rows.shape[1:]))
        dist.reduce_scatter_tensor(out, rows, group=self._groups[axis])
        return out.movedim(0, dim)

    def all_to_all(self, x: Tensor, axis: str, dim: int, to: int, size: int) -> Tensor:
        given = _bytes(torch.stack(shards(x, to, self.mesh.sizes[axis])))
        out = torch.empty_like(given)
        dist.all_to_all_single(out, given, group=self._groups[axis])
        return torch.cat(out.view(x.dtype).unbind(), dim).narrow(dim, 0, size)

    def halo_exchange(self, x: Tensor, axis: str, dim: int, window: Numbers, fill: float) -> Tensor:
        of, parts, rank = Window(*window), self.mesh.sizes[axis], self.at[axis]
        sent = rows_for(x, dim, of, rank, parts)
        return window_of(self._exchanged(sent, axis, dim, of), dim, of, rank, parts, fill=fill)

    def halo_reduce(self, x: Tensor, axis: str, dim: int, window: Numbers) -> Tensor:
        of, parts, rank = Window(*window), self.mesh.sizes[axis], self.at[axis]
        sent = rows_back(x, dim, of, rank, parts)
        received = self._exchanged(sent, axis, dim, of, back=True)
        return shard_of(received, dim, of, rank, parts)

    def _exchanged(
        self, sent: list[Tensor], axis: str, dim: int, window: Window, *, back: bool = False
    ) -> list[Tensor]:
        """The rows that each rank has sent to this one; its own stay here. Without a byte to send
        and to receive, the rank takes part all the same, unless no rank has any."""
        if not sent_rows(window, self.mesh.sizes[axis]):
            return sent
        rank, own = self.at[axis], sent[self.at[axis]]
        row = row_bytes(own.shape, dim, 1)  # elements
        out, into = counts_for(window, rank, self.mesh.sizes[axis])
        if back:
            out, into = into, out
        flat = [one.reshape(-1) for at, one in enumerate(sent) if at != rank]
        given = _bytes(flat[0].contiguous() if len(flat) == 1 else torch.cat(flat))
        made = given.new_empty(sum(into) * row)
        dist.all_to_all_single(
            made, given, [n * row for n in into], [n * row for n in out], group=self._groups[axis]
        )
        shape = list(own.shape)
        found = []
        parts = torch.split(made.view(own.dtype), [n * row for n in into])
        for at, part in enumerate(parts):
            shape[dim] = into[at]
            found.append(own if at == rank else part.view(shape))
        return found


def _parts(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    """The tensors that lie one after another in a flat one."""
    parts = torch.split(flat, [one.numel() for one in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _bytes(x: Tensor) -> Tensor:
    """Booleans as bytes: not every backend moves them."""
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def check_equal(text: str) -> None:
    """Every rank must have the same program.

    Raises: RanksDisagree naming the ranks that differ from rank 0, and the first line.
    """
    digest = sha256(text.encode()).hexdigest()
    if all(other == digest for other in _of_all(digest)):
        return
    first, *others = _of_all(text)
    apart = [rank for rank, other in enumerate(others, 1) if other != first]
    other = others[apart[0] - 1]
    pairs = zip(f"{first}\n(end)".splitlines(), f"{other}\n(end)".splitlines(), strict=False)
    here, there = next(pair for pair in pairs if pair[0] != pair[1])
    several = f"ranks {', '.join(map(str, apart))} have other programs"
    one = f"rank {apart[0]} has another program"
    raise RanksDisagree(
        f"{one if len(apart) == 1 else several} than rank 0: {there.strip()!r} on rank {apart[0]} "
        f"instead of {here.strip()!r}; model, mesh, annotations and shapes must be the same"
    )


def _of_all(value: T) -> Sequence[T]:
    found = [value] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found
