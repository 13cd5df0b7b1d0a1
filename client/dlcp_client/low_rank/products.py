"""PowerSGD over dlcpd: the gradients of a backward pass as products of two narrow matrices.

For each matrix M, the sum of a gradient and the error of earlier steps, P = M Q is averaged and
orthonormalised; all ranks project on its columns: Q = M^T P is averaged, and P Q^T is the result.
Every rank keeps the error of its own projection, so nothing is lost permanently.

One rank orthonormalises and broadcasts the columns, and products are added column by column: linear
algebra libraries round differently on different machines, and replicas must not (P2). Source:
Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

import torch
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future

from dlcp_client.hooks.buckets import PlacedGradient, contents
from dlcp_client.hooks.rules import Rules
from dlcp_client.low_rank import PowerSGD
from dlcp_client.operations.work import Work
from dlcp_client.session import Session

LEAST_EXPONENT: Final = 120  # 2**120 is a float32
ROOT: Final = 0  # the rank that orthonormalises
FLOATS: Final = (torch.float32, torch.float64)  # narrower dtypes are sent unchanged


@dataclass(slots=True, eq=False)
class MatrixState:
    """The state of one matrix between steps."""

    right: torch.Tensor  # m x rank: the last Q, the start of the next step; equal on all ranks
    missed: torch.Tensor  # n x m, error of this rank, without a loss scale


@dataclass(slots=True, eq=False)
class Matrix:
    """One gradient in one step."""

    placed: PlacedGradient
    memory: MatrixState
    values: torch.Tensor  # n x m: gradient plus error of earlier steps


class PackedTensors:
    """Tensors, concatenated in the arena, for one operation."""

    def __init__(
        self, session: Session, shapes: Sequence[torch.Size], like: torch.Tensor, wait: float
    ) -> None:
        sizes = [shape.numel() for shape in shapes]
        self.all = session.empty(sum(sizes), like.dtype, wait=wait)
        parts = torch.split(self.all, sizes)
        self.each = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


@dataclass(slots=True, eq=False)
class FactoredBucket:
    """One bucket in one step, and its first operations."""

    bucket: torch.Tensor
    scale: float  # loss scale
    plain: Sequence[PlacedGradient]  # sent unchanged
    rest: PackedTensors  # their averages
    matrices: Sequence[Matrix]
    left: PackedTensors  # P
    works: Sequence[Work]
    done: Future[torch.Tensor]


class LowRank:
    """The PowerSGD of one model. Every rank averages the same buckets in the same order."""

    def __init__(self, asked: PowerSGD, rules: Rules) -> None:
        self.asked, self._rules = asked, rules
        self._memories: dict[int, MatrixState] = {}  # by id of the parameter, which the model keeps
        self._open: list[FactoredBucket] = []  # of the present backward pass

    @property
    def counts(self) -> bool:
        """Whether the warm-up is over."""
        return self._rules.step > self._rules.warmup_steps

    def average(self, session: Session, bucket: GradBucket) -> Future[torch.Tensor]:
        """Submit the first sums of a bucket. The last bucket of a pass waits for all of them and
        does the rest, bucket by bucket: sums end in a different order on each rank, but all ranks
        must submit in the same order.

        Raises: the error that ended an operation.
        """
        if not bucket.index():
            self._open.clear()  # of a failed pass
        share = self._begin(session, bucket)
        self._open.append(share)
        if bucket.is_last():
            shares, self._open = self._open, []
            self._finish(session, shares)
        return share.done

    def _begin(self, session: Session, bucket: GradBucket) -> FactoredBucket:
        buffer, placed = bucket.buffer(), contents(bucket)
        scale = self._rules.request(placed, 0, buffer.nbytes).scale
        ranks = {id(one): self._rank_of(one) for one in placed}
        plain = [one for one in placed if not ranks[id(one)]]
        rest = self._packed(session, [one.gradient.shape for one in plain], buffer)
        for one, place in zip(plain, rest.each, strict=True):
            place.copy_(one.gradient)
        matrices = [self._matrix(one, rank, scale) for one in placed if (rank := ranks[id(one)])]
        left = self._packed(session, [_left(one) for one in matrices], buffer)
        for matrix, place in zip(matrices, left.each, strict=True):
            torch.matmul(matrix.values, matrix.memory.right, out=place)
        world, policy = session.world, self._rules.exact
        works = [world.all_reduce(rest.all, "avg", policy=policy)]
        if matrices:
            works.append(world.reduce(left.all, ROOT, "avg", policy=policy))
        return FactoredBucket(buffer, scale, plain, rest, matrices, left, works, Future())

    def _rank_of(self, one: PlacedGradient) -> int:
        """The rank of the product; 0: not compressed."""
        parameter = one.parameter
        if self._rules.is_exempt(parameter) or one.gradient.dtype not in FLOATS:
            return 0
        rows = parameter.shape[0]
        return self.asked.rank_of(rows, parameter.numel() // rows)

    def _matrix(self, one: PlacedGradient, rank: int, scale: float) -> Matrix:
        gradient = _as_matrix(one.gradient)
        memory = self._memories.get(id(one.parameter))
        if memory is None:
            right = _beginning(self._rules.name_of(one.parameter), gradient.shape[1], rank)
            memory = MatrixState(right.to(gradient.dtype), torch.zeros_like(gradient))
            self._memories[id(one.parameter)] = memory
        return Matrix(one, memory, gradient + memory.missed * scale)

    def _finish(self, session: Session, shares: Sequence[FactoredBucket]) -> None:
        told = [self._tell(session, share) for share in shares]
        rights = [
            self._project(session, share, work) for share, work in zip(shares, told, strict=True)
        ]
        for share, (right, own, work) in zip(shares, rights, strict=True):
            work.wait()
            _settle(share, right, own)

    def _tell(self, session: Session, share: FactoredBucket) -> Work:
        """Broadcast the orthonormal columns of P."""
        for work in share.works:
            work.wait()
        if session.rank == ROOT:
            for place in share.left.each:
                place.copy_(_orthonormal(place))
        return session.world.broadcast(share.left.all, ROOT, policy=self._rules.exact)

    def _project(
        self, session: Session, share: FactoredBucket, told: Work
    ) -> tuple[PackedTensors, list[torch.Tensor], Work]:
        """Q: the averaged one once the operation is done, this rank's own, and the operation."""
        told.wait()
        shapes = [matrix.memory.right.shape for matrix in share.matrices]
        right = self._packed(session, shapes, share.bucket)
        for matrix, left, place in zip(share.matrices, share.left.each, right.each, strict=True):
            torch.matmul(matrix.values.T, left, out=place)
        own = [place.clone() for place in right.each]
        return right, own, session.world.all_reduce(right.all, "avg", policy=self._rules.exact)

    def _packed(
        self, session: Session, shapes: Sequence[torch.Size], like: torch.Tensor
    ) -> PackedTensors:
        return PackedTensors(session, shapes, like, self._rules.policy.deadline)


def _settle(share: FactoredBucket, right: PackedTensors, own: Sequence[torch.Tensor]) -> None:
    """Write the averages to a tensor like the bucket, and keep the errors.

    A result that is not finite is left to the loss scaler; such a step keeps no state.
    """
    result = torch.empty_like(share.bucket)
    for one, average in zip(share.plain, share.rest.each, strict=True):
        _place(result, share.bucket, one).copy_(average)
    for matrix, left, q, q_own in zip(
        share.matrices, share.left.each, right.each, own, strict=True
    ):
        into = _place(result, share.bucket, matrix.placed)
        into.copy_(_product(left, q).view(into.shape))
        if bool(torch.isfinite(q).all()):
            missed = torch.addmm(matrix.values, left, q_own.T, alpha=-1)
            matrix.memory.right, matrix.memory.missed = _scaled(q), missed.div_(share.scale)
    share.done.set_result(result)


def _place(result: torch.Tensor, bucket: torch.Tensor, one: PlacedGradient) -> torch.Tensor:
    """The view of `result` at the place of a gradient in the bucket."""
    gradient = one.gradient
    offset = gradient.storage_offset() - bucket.storage_offset()
    return result.as_strided(gradient.shape, gradient.stride(), offset)


def _as_matrix(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.reshape(gradient.shape[0], -1)


def _left(matrix: Matrix) -> torch.Size:
    return torch.Size((matrix.values.shape[0], matrix.memory.right.shape[1]))


def _beginning(name: str, columns: int, rank: int) -> torch.Tensor:
    """Q of the first step: random, and the same on all ranks."""
    generator = torch.Generator().manual_seed(crc32(name.encode()))
    return torch.randn(columns, rank, generator=generator)


def _scaled(right: torch.Tensor) -> torch.Tensor:
    """Scale by a power of two to magnitudes of at most 1, which changes no direction: M Q is then
    of the magnitude of M, not of its square, which may be beyond the range."""
    exponent = torch.frexp(right.abs().max()).exponent.clamp(min=-LEAST_EXPONENT)
    return torch.ldexp(right, -exponent)


def _orthonormal(left: torch.Tensor) -> torch.Tensor:
    """Orthonormal columns with the span of `left`; NaN if one of its values is not finite."""
    if not bool(torch.isfinite(left).all()):
        return torch.full_like(left, torch.nan)
    columns: torch.Tensor = torch.linalg.qr(left).Q
    return columns


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """left right^T with the same bits everywhere: one product and one sum of two at a time."""
    total = torch.outer(left[:, 0], right[:, 0])
    for column in range(1, left.shape[1]):
        total += torch.outer(left[:, column], right[:, column])
    return total
