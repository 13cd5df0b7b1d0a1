"""The collectives of a process group: flatten, submit, and put results where the caller wants them.

Each public method is one that torch.distributed or its C++ side calls, with its arguments;
`opts` holds the root, the reduction and the timeout. A list of lists comes from the time of
one process with several devices: it has one entry per device, here one.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch

from dlcpd.contract.errors import BadOperation, BadTensor
from dlcpd.contract.policy import LossPolicy

from . import transport
from .coalescing import by_rank, room_by_rank, shared
from .errors import torch_errors
from .reduction import Reduction
from .staging import BYTES, Buffer, copied, lent, room
from .work import Work, joined

P = ParamSpec("P")
G = TypeVar("G", bound="Calls")
Tensors = list[torch.Tensor]
Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # output and input


class Calls:
    """What operations need of the process group that they are mixed into."""

    group: transport.Group

    def policy(self, opts: Any = None) -> LossPolicy:
        """That of an operation with `opts`: exact, with its timeout."""
        raise NotImplementedError

    def begin(self) -> None:
        """Raises: what ended the group."""
        raise NotImplementedError

    def begun(self, work: Work) -> None:
        """Take note of a work that the caller gets."""
        raise NotImplementedError


def operation(method: Callable[Concatenate[G, P], Work]) -> Callable[Concatenate[G, P], Work]:
    """A method that PyTorch calls: only on an open group, with errors that PyTorch expects."""

    @wraps(method)
    def call(self: G, /, *args: P.args, **kwargs: P.kwargs) -> Work:
        with torch_errors():
            self.begin()
            work = method(self, *args, **kwargs)
        self.begun(work)
        return work

    return call


class Collectives(Calls):
    """One method per collective."""

    # --- reductions -------------------------------------------------------------------

    @operation
    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        return joined([self._all_reduce([tensor], opts) for tensor in tensors])

    @operation
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        alike: dict[torch.dtype, Tensors] = {}
        for tensor in tensors:
            alike.setdefault(tensor.dtype, []).append(tensor)
        return joined([self._all_reduce(some, opts) for some in alike.values()])

    @operation
    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        asked = Reduction.of(opts.reduceOp, tensors[0].dtype)
        root = self._peer(opts.rootRank)
        # A copy where this is not the root: the transport may use the tensor as scratch.
        stage = lent if root == self.group.rank else copied
        buffer = stage(tensors, asked.carried)
        asked.scale(buffer.flat)
        part = self.group.reduce(buffer.flat, root, asked.op, policy=self.policy(opts))
        return Work([part], tensors, buffer.copy_back if root == self.group.rank else None)

    @operation
    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        return joined(
            [self._reduce_scatter(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        )

    @operation
    def reduce_scatter_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Work:
        return self._reduce_scatter(output, [given], opts)

    @operation
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        pairs = list(zip(outputs, inputs, strict=True))
        return joined(
            [self._reduce_scatter_together([pairs[i] for i in at], opts) for at in shared(inputs)]
        )

    # --- copies -----------------------------------------------------------------------

    @operation
    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        buffer = lent(tensors, BYTES)
        root = self._peer(opts.rootRank)
        part = self.group.broadcast(buffer.flat, root, policy=self.policy(opts))
        return Work([part], tensors, buffer.copy_back)

    @operation
    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        return joined([self._all_gather(o, i, opts) for o, i in zip(outputs, inputs, strict=True)])

    @operation
    def allgather_coalesced(
        self, outputs: list[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        """`outputs`: one list per rank, with one tensor per input."""
        by_input = zip(*outputs, strict=True)
        return joined(
            [self._all_gather(list(o), i, opts) for o, i in zip(by_input, inputs, strict=True)]
        )

    @operation
    def all_gather_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Work:
        return self._all_gather([output], given, opts)

    @operation
    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        pairs = list(zip(outputs, inputs, strict=True))
        return joined(
            [self._all_gather_together([pairs[i] for i in at], opts) for at in shared(outputs)]
        )

    @operation
    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work:
        root = self._peer(opts.rootRank)
        source, policy = lent(inputs, BYTES), self.policy(opts)
        if root != self.group.rank:
            return Work([self.group.gather(None, source.flat, root, policy=policy)], [])
        target = room(outputs[0], BYTES)
        self._check_parts(target, source.sizes[0])
        part = self.group.gather(target.flat, source.flat, root, policy=policy)
        return Work([part], outputs[0], target.copy_back)

    @operation
    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work:
        root = self._peer(opts.rootRank)
        target = room(outputs, BYTES)
        source = None
        if root == self.group.rank:
            source = lent(inputs[0], BYTES)
            self._check_parts(source, target.sizes[0])
        part = self.group.scatter(
            target.flat, None if source is None else source.flat, root, policy=self.policy(opts)
        )
        return Work([part], outputs, target.copy_back)

    @operation
    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Splits are rows of the first dimension by rank; none = the same for all."""
        target, source = room([output], BYTES), lent([given], BYTES)
        return self._all_to_all(
            target,
            source,
            self._bytes_of_rows(output, output_splits),
            self._bytes_of_rows(given, input_splits),
            opts,
        )

    @operation
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        target, source = room(outputs, BYTES), lent(inputs, BYTES)
        for buffer in (target, source):
            self._check_count(buffer)
        return self._all_to_all(target, source, target.sizes, source.sizes, opts)

    # Names of PyTorch before 2.13 for the same.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # --- one operation each -----------------------------------------------------------

    def _all_reduce(self, tensors: Tensors, opts: Any) -> Work:
        asked = Reduction.of(_op(opts), tensors[0].dtype)
        buffer = lent(tensors, asked.carried)
        asked.scale(buffer.flat)
        part = self.group.all_reduce(buffer.flat, asked.op, policy=self.policy(opts))
        return Work([part], tensors, buffer.copy_back)

    def _all_gather(self, outputs: Tensors, given: torch.Tensor, opts: Any) -> Work:
        target, source = room(outputs, BYTES), lent([given], BYTES)
        sizes = None if len(outputs) == 1 else target.uneven
        if len(outputs) > 1:
            self._check_count(target)
            _check_same(target.sizes[self.group.rank], source.sizes[0])
        else:
            _check_same(target.flat.numel(), source.flat.numel() * self.group.size)
        part = self.group.all_gather(target.flat, source.flat, sizes, policy=self.policy(opts))
        return Work([part], outputs, target.copy_back)

    def _all_gather_together(self, pairs: Pairs, opts: Any) -> Work:
        """As one operation: outputs of one dtype, for all ranks, and their inputs."""
        outputs, inputs = [output for output, _ in pairs], [given for _, given in pairs]
        if len(pairs) == 1:
            return self._all_gather(outputs, inputs[0], opts)
        for output, given in pairs:
            _check_same(output.nbytes, given.nbytes * self.group.size)
        source = lent(inputs, BYTES)
        target, copy_back = room_by_rank(outputs, self.group.size)
        part = self.group.all_gather(target, source.flat, None, policy=self.policy(opts))
        return Work([part], outputs, copy_back)

    def _reduce_scatter(self, output: torch.Tensor, inputs: Tensors, opts: Any) -> Work:
        asked = Reduction.of(_op(opts), output.dtype)
        stage = lent if asked.factor is None else copied  # the caller's input stays as it is
        target, source = room([output], asked.carried), stage(inputs, asked.carried)
        sizes = None if len(inputs) == 1 else source.uneven
        if len(inputs) > 1:
            self._check_count(source)
            _check_same(source.sizes[self.group.rank], target.flat.numel())
        else:
            _check_same(source.flat.numel(), target.flat.numel() * self.group.size)
        asked.scale(source.flat)
        part = self.group.reduce_scatter(
            target.flat, source.flat, asked.op, sizes, policy=self.policy(opts)
        )
        return Work([part], [output], target.copy_back)

    def _reduce_scatter_together(self, pairs: Pairs, opts: Any) -> Work:
        """As one operation: outputs and their inputs, of one dtype, for all ranks."""
        outputs, inputs = [output for output, _ in pairs], [given for _, given in pairs]
        if len(pairs) == 1:
            return self._reduce_scatter(outputs[0], inputs, opts)
        for output, given in pairs:
            _check_same(given.numel(), output.numel() * self.group.size)
        asked = Reduction.of(_op(opts), outputs[0].dtype)
        source = copied(by_rank(inputs, self.group.size), asked.carried)
        target = room(outputs, asked.carried)
        asked.scale(source.flat)
        part = self.group.reduce_scatter(
            target.flat, source.flat, asked.op, None, policy=self.policy(opts)
        )
        return Work([part], outputs, target.copy_back)

    def _all_to_all(
        self,
        target: Buffer,
        source: Buffer,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: Any,
    ) -> Work:
        part = self.group.all_to_all(
            target.flat, source.flat, output_sizes, input_sizes, policy=self.policy(opts)
        )
        return Work([part], list(target.tensors), target.copy_back)

    # --- checks -----------------------------------------------------------------------

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.group.size:
            raise BadOperation(f"rank {rank} of a group of {self.group.size}")
        return rank

    def _check_count(self, buffer: Buffer) -> None:
        if len(buffer.tensors) != self.group.size:
            raise BadOperation(
                f"{len(buffer.tensors)} tensors for a group of {self.group.size}: give one by rank"
            )

    def _check_parts(self, buffer: Buffer, size: int) -> None:
        """One tensor by rank, each of `size` bytes."""
        self._check_count(buffer)
        for found in buffer.sizes:
            _check_same(found, size)

    def _bytes_of_rows(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        rows = tensor.size(0) if tensor.dim() else 1
        if not splits:
            if rows % self.group.size:
                raise BadOperation(f"{rows} rows do not divide by {self.group.size} ranks")
            splits = [rows // self.group.size] * self.group.size
        if len(splits) != self.group.size or sum(splits) != rows or min(splits) < 0:
            raise BadOperation(
                f"splits {list(splits)} of {rows} rows: give one by rank, {rows} in all"
            )
        row = tensor.nbytes // rows if rows else 0
        return [count * row for count in splits]


def _op(opts: Any) -> Any:
    return torch.distributed.ReduceOp.SUM if opts is None else opts.reduceOp


def _check_same(found: int, needed: int) -> None:
    if found != needed:
        raise BadTensor(
            f"{found} where {needed} elements (bytes, where nothing is reduced) belong: inputs "
            f"and outputs of all ranks must match"
        )
