"""A manual region on one device: a thread per rank, which meet at each collective.

So a model with regions stays a program of one device, that divided ones are compared with.
"""

from collections.abc import Callable, Sequence
from threading import Barrier, BrokenBarrierError, Thread
from typing import Any, Final

import torch
from torch import Tensor

from dlcpd.contract.errors import BadConfig

from .annotations import Annotation
from .collectives import MEANING, Position, all_gather
from .meshes import Mesh
from .regional import meaning_of

MOST: Final = 64  # threads: each holds its shards, and waits for the slowest


class Alone:
    """One rank of a region."""

    def __init__(self, mesh: Mesh, rank: int, meeting: "_Meeting") -> None:
        self.mesh, self._rank, self._meeting = mesh, rank, meeting

    def collective(self, x: Tensor, kind: str, axis: str, dims: list[int]) -> Tensor:
        each = self._meeting.together(self._rank, (kind, axis, dims), x)
        members = self.mesh.members(self._rank, axis)
        given = [each[one] for one in members]
        method, options = meaning_of(kind, dims, x, len(members))
        return MEANING[method](given, *options)[members.index(self._rank)]

    def index(self, axis: str) -> Tensor:
        return torch.tensor(self.mesh.coordinates(self._rank)[axis])


class _Meeting:
    """Ranks bring a value, and go on when all have brought one."""

    def __init__(self, ranks: int, where: str) -> None:
        self._barrier, self._where = Barrier(ranks), where
        self._brought: list[tuple[Any, Any]] = [(None, None)] * ranks

    def together(self, rank: int, call: Any, value: Any) -> list[Any]:
        """The values of all ranks.

        Raises: BadConfig if another rank makes another call.
        """
        self._brought[rank] = call, value
        self._barrier.wait()
        found = list(self._brought)
        self._barrier.wait()  # before the next values come
        for other, (its, _) in enumerate(found):
            if its != call:
                raise BadConfig(
                    f"shard {rank} of {self._where} calls {call}, and shard {other} {its}: all "
                    "must call the same collectives"
                )
        return [one for _, one in found]

    def end(self) -> None:
        """No rank waits any longer: BrokenBarrierError."""
        self._barrier.abort()


def on_one_device(
    shards: Callable[[Alone, Sequence[Tensor]], Sequence[Tensor]],
    mesh: Mesh,
    arguments: Sequence[Tensor],
    said: Sequence[Annotation],
    shardings: Callable[[Sequence[Tensor]], Sequence[Annotation]],
    *,
    where: str,
) -> list[Tensor]:
    """The whole results. `shards`: from the shards of a rank to those of its results; `said`: of
    the arguments; `shardings`: of results.

    Raises: BadConfig for a mesh of more than `MOST` ranks, and the first error of a rank.
    """
    if mesh.ranks > MOST:
        raise BadConfig(f"{where} has {mesh.ranks} shards: one device computes {MOST} at most")
    meeting = _Meeting(mesh.ranks, where)
    each: list[Sequence[Tensor]] = [()] * mesh.ranks
    failed: list[BaseException] = []
    with_gradients = torch.is_grad_enabled()

    def run(rank: int) -> None:
        given = [_shard(x, one, mesh, rank) for x, one in zip(arguments, said, strict=True)]
        try:
            with torch.set_grad_enabled(with_gradients):
                each[rank] = shards(Alone(mesh, rank, meeting), given)
                meeting.together(rank, "no other one", None)
        except BrokenBarrierError:
            pass  # of another's error
        except BaseException as error:
            failed.append(error)
            meeting.end()

    threads = [Thread(target=run, args=(rank,), daemon=True) for rank in range(mesh.ranks)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    if failed:
        raise failed[0]
    every = zip(zip(*each, strict=True), shardings(each[0]), strict=True)
    return [_together(list(one), annotation, mesh) for one, annotation in every]


def _shard(x: Tensor, said: Annotation, mesh: Mesh, rank: int) -> Tensor:
    position = Position(mesh, rank)
    for dim, splits in enumerate(said.sharding):
        for split in splits:
            x = position.shard(x, split.axis, dim)
    return x


def _together(each: list[Tensor], said: Annotation, mesh: Mesh) -> Tensor:
    for dim, splits in enumerate(said.sharding):
        for split in reversed(splits):
            groups = [mesh.members(rank, split.axis) for rank in range(mesh.ranks)]
            rows = each[0].shape[dim] * mesh.sizes[split.axis]
            each = [all_gather([each[one] for one in group], dim, rows)[0] for group in groups]
    return each[0]
