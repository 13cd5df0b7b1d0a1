"""The collectives of a process group: flatten tensors, submit, copy results back.

Each public method is one that torch.distributed or its C++ side calls, in any form that PyTorch
documents (`overloads`); `asked` holds the root, the reduction and the timeout. Lists of lists date
from processes with several devices: they have one entry per device, here one.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final, cast

import torch

from dlcp_client.device.registry import kind_of
from dlcp_client.ranges import RANGES
from dlcpd.contract.errors import BadOperation
from dlcpd.contract.policy import LossPolicy

from . import transport
from .checks import check_same, only, paired
from .coalescing import by_rank, room_by_rank, shared
from .dispatch import count
from .errors import torch_errors
from .overloads import FORMS, CallOptions
from .reduction import Reduction
from .staging import BYTES, Buffer, copied, lent, room
from .work import GroupWork, joined

Tensors = list[torch.Tensor]
MESSAGES: Final = ("send", "recv", "recv_anysource")
Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # output and input


class GroupCalls:
    """The members of the process group that the collectives use."""

    group: transport.TransportGroup
    getGroupName: Callable[[], str]  # as PyTorch calls it
    other: Callable[[str], Any]  # the group that serves a device type; None: this one

    def policy(self, asked: CallOptions) -> LossPolicy:
        """The policy of an operation: exact, with the call's timeout."""
        raise NotImplementedError

    def begin(self) -> None:
        """Check that the group is open. Raises: the error that ended it."""
        raise NotImplementedError

    def begun(self, work: GroupWork, *, message: bool) -> None:
        """Register a work that is handed to the caller."""
        raise NotImplementedError


def operation(method: Callable[..., GroupWork]) -> Callable[..., GroupWork]:
    """Wrap a method that PyTorch calls: bind any documented form of its arguments, require an open
    group, and raise errors as PyTorch expects them."""
    name = method.__name__
    form, message = FORMS[name], name in MESSAGES

    def shown(self: GroupCalls, first: list[Any], asked: CallOptions) -> GroupWork:
        if not RANGES.on():
            return method(self, *first, asked)
        with RANGES.collective(name, self.group, self.getGroupName(), first, form.depths):
            return method(self, *first, asked)

    @wraps(method)
    def call(self: GroupCalls, /, *args: Any, **kwargs: Any) -> GroupWork:
        with torch_errors():
            self.begin()
            first, asked = form.bind(name, args, kwargs)
            other = self.other(_device_of(first) if first else asked.device)
            if other is None:
                work = shown(self, first, asked)
        if other is not None:
            return cast("GroupWork", getattr(other, name)(*args, **kwargs))
        self.begun(work, message=message)
        count(name)
        return work

    return call


class Collectives(GroupCalls):
    """One method per collective."""

    # --- reductions -------------------------------------------------------------------

    @operation
    def allreduce(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        return joined([self._all_reduce([tensor], asked) for tensor in tensors])

    @operation
    def allreduce_coalesced(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        alike: dict[torch.dtype, Tensors] = {}
        for tensor in tensors:
            alike.setdefault(tensor.dtype, []).append(tensor)
        return joined([self._all_reduce(some, asked) for some in alike.values()])

    @operation
    def reduce(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        reduction = Reduction.of(asked.op, tensors[0].dtype)
        root = self._peer(asked.root)
        # The transport may use the tensor as scratch memory: copy it except at the root.
        stage = lent if root == self.group.rank else copied
        buffer = stage(tensors, reduction.carried)
        reduction.scale(buffer.flat)
        part = self.group.reduce(buffer.flat, root, reduction.op, policy=self.policy(asked))
        return GroupWork([part], tensors, buffer.copy_back if root == self.group.rank else None)

    @operation
    def reduce_scatter(
        self, outputs: Tensors, inputs: list[Tensors], asked: CallOptions
    ) -> GroupWork:
        return joined([self._reduce_scatter(o, i, asked) for o, i in paired(outputs, inputs)])

    @operation
    def reduce_scatter_single(
        self, output: torch.Tensor, given: torch.Tensor, asked: CallOptions
    ) -> GroupWork:
        return self._reduce_scatter(output, [given], asked)

    @operation
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, asked: CallOptions
    ) -> GroupWork:
        pairs = paired(outputs, inputs)
        return joined(
            [self._reduce_scatter_together([pairs[i] for i in at], asked) for at in shared(inputs)]
        )

    # --- copies -----------------------------------------------------------------------

    @operation
    def broadcast(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        buffer = lent(tensors, BYTES)
        root = self._peer(asked.root)
        part = self.group.broadcast(buffer.flat, root, policy=self.policy(asked))
        return GroupWork([part], tensors, buffer.copy_back)

    @operation
    def allgather(self, outputs: list[Tensors], inputs: Tensors, asked: CallOptions) -> GroupWork:
        return joined([self._all_gather(o, i, asked) for o, i in paired(outputs, inputs)])

    @operation
    def allgather_coalesced(
        self, outputs: list[Tensors], inputs: Tensors, asked: CallOptions
    ) -> GroupWork:
        """`outputs`: one list per rank, with one tensor per input."""
        by_input = zip(*outputs, strict=True)
        return joined(
            [self._all_gather(list(o), i, asked) for o, i in paired(list(by_input), inputs)]
        )

    @operation
    def all_gather_single(
        self, output: torch.Tensor, given: torch.Tensor, asked: CallOptions
    ) -> GroupWork:
        return self._all_gather([output], given, asked)

    @operation
    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, asked: CallOptions
    ) -> GroupWork:
        pairs = paired(outputs, inputs)
        return joined(
            [self._all_gather_together([pairs[i] for i in at], asked) for at in shared(outputs)]
        )

    @operation
    def gather(self, outputs: list[Tensors], inputs: Tensors, asked: CallOptions) -> GroupWork:
        root = self._peer(asked.root)
        only(inputs, "gather: inputs")
        source, policy = lent(inputs, BYTES), self.policy(asked)
        if root != self.group.rank:
            return GroupWork([self.group.gather(None, source.flat, root, policy=policy)], [])
        target = room(only(outputs, "gather: lists of outputs, at the root"), BYTES)
        self._check_parts(target, source.sizes[0])
        part = self.group.gather(target.flat, source.flat, root, policy=policy)
        return GroupWork([part], outputs[0], target.copy_back)

    @operation
    def scatter(self, outputs: Tensors, inputs: list[Tensors], asked: CallOptions) -> GroupWork:
        root = self._peer(asked.root)
        only(outputs, "scatter: outputs")
        target = room(outputs, BYTES)
        source = None
        if root == self.group.rank:
            source = lent(only(inputs, "scatter: lists of inputs, at the root"), BYTES)
            self._check_parts(source, target.sizes[0])
        part = self.group.scatter(
            target.flat, None if source is None else source.flat, root, policy=self.policy(asked)
        )
        return GroupWork([part], outputs, target.copy_back)

    @operation
    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        asked: CallOptions,
    ) -> GroupWork:
        """Splits are rows of the first dimension by rank; empty: equal for all."""
        target, source = room([output], BYTES), lent([given], BYTES)
        return self._all_to_all(
            target,
            source,
            self._bytes_of_rows(output, output_splits),
            self._bytes_of_rows(given, input_splits),
            asked,
        )

    @operation
    def alltoall(self, outputs: Tensors, inputs: Tensors, asked: CallOptions) -> GroupWork:
        target, source = room(outputs, BYTES), lent(inputs, BYTES)
        for buffer in (target, source):
            self._check_count(buffer)
        return self._all_to_all(target, source, target.sizes, source.sizes, asked)

    # Names of the same methods before PyTorch 2.13.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # --- one operation each -----------------------------------------------------------

    def _all_reduce(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        reduction = Reduction.of(asked.op, tensors[0].dtype)
        buffer = lent(tensors, reduction.carried)
        reduction.scale(buffer.flat)
        part = self.group.all_reduce(buffer.flat, reduction.op, policy=self.policy(asked))
        return GroupWork([part], tensors, buffer.copy_back)

    def _all_gather(self, outputs: Tensors, given: torch.Tensor, asked: CallOptions) -> GroupWork:
        target, source = room(outputs, BYTES), lent([given], BYTES)
        sizes = None if len(outputs) == 1 else target.uneven
        if len(outputs) > 1:
            self._check_count(target)
            check_same(target.sizes[self.group.rank], source.sizes[0])
        else:
            check_same(target.flat.numel(), source.flat.numel() * self.group.size)
        part = self.group.all_gather(target.flat, source.flat, sizes, policy=self.policy(asked))
        return GroupWork([part], outputs, target.copy_back)

    def _all_gather_together(self, pairs: Pairs, asked: CallOptions) -> GroupWork:
        """Gather pairs of one dtype in one operation. Each output holds all ranks' parts."""
        outputs, inputs = [output for output, _ in pairs], [given for _, given in pairs]
        if len(pairs) == 1:
            return self._all_gather(outputs, inputs[0], asked)
        for output, given in pairs:
            check_same(output.nbytes, given.nbytes * self.group.size)
        source = lent(inputs, BYTES)
        target, copy_back = room_by_rank(outputs, self.group.size)
        part = self.group.all_gather(target, source.flat, None, policy=self.policy(asked))
        return GroupWork([part], outputs, copy_back)

    def _reduce_scatter(
        self, output: torch.Tensor, inputs: Tensors, asked: CallOptions
    ) -> GroupWork:
        reduction = Reduction.of(asked.op, output.dtype)
        stage = lent if reduction.factor is None else copied  # PREMUL_SUM scales in place
        target, source = room([output], reduction.carried), stage(inputs, reduction.carried)
        sizes = None if len(inputs) == 1 else source.uneven
        if len(inputs) > 1:
            self._check_count(source)
            check_same(source.sizes[self.group.rank], target.flat.numel())
        else:
            check_same(source.flat.numel(), target.flat.numel() * self.group.size)
        reduction.scale(source.flat)
        part = self.group.reduce_scatter(
            target.flat, source.flat, reduction.op, sizes, policy=self.policy(asked)
        )
        return GroupWork([part], [output], target.copy_back)

    def _reduce_scatter_together(self, pairs: Pairs, asked: CallOptions) -> GroupWork:
        """Reduce and scatter pairs of one dtype in one operation."""
        outputs, inputs = [output for output, _ in pairs], [given for _, given in pairs]
        if len(pairs) == 1:
            return self._reduce_scatter(outputs[0], inputs, asked)
        for output, given in pairs:
            check_same(given.numel(), output.numel() * self.group.size)
        reduction = Reduction.of(asked.op, outputs[0].dtype)
        source = copied(by_rank(inputs, self.group.size), reduction.carried)
        target = room(outputs, reduction.carried)
        reduction.scale(source.flat)
        part = self.group.reduce_scatter(
            target.flat, source.flat, reduction.op, None, policy=self.policy(asked)
        )
        return GroupWork([part], outputs, target.copy_back)

    def _all_to_all(
        self,
        target: Buffer,
        source: Buffer,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        asked: CallOptions,
    ) -> GroupWork:
        part = self.group.all_to_all(
            target.flat, source.flat, output_sizes, input_sizes, policy=self.policy(asked)
        )
        return GroupWork([part], list(target.tensors), target.copy_back)

    # --- checks -----------------------------------------------------------------------

    def _peer(self, rank: int) -> int:
        if not 0 <= rank < self.group.size:
            raise BadOperation(f"rank {rank} is not in this group of {self.group.size} ranks")
        return rank

    def _check_count(self, buffer: Buffer) -> None:
        if len(buffer.tensors) != self.group.size:
            raise BadOperation(
                f"{len(buffer.tensors)} tensors for a group of {self.group.size} ranks: give "
                "one tensor per rank"
            )

    def _check_parts(self, buffer: Buffer, size: int) -> None:
        """Check for one tensor per rank, each of `size` bytes."""
        self._check_count(buffer)
        for found in buffer.sizes:
            check_same(found, size)

    def _bytes_of_rows(self, tensor: torch.Tensor, splits: Sequence[int]) -> list[int]:
        rows = tensor.size(0) if tensor.dim() else 1
        if not splits:
            if rows % self.group.size:
                raise BadOperation(f"{rows} rows for {self.group.size} ranks: give splits")
            splits = [rows // self.group.size] * self.group.size
        if len(splits) != self.group.size or sum(splits) != rows or min(splits) < 0:
            raise BadOperation(
                f"splits {list(splits)} do not fit {rows} rows: give one number per rank, with "
                f"the sum {rows}"
            )
        row = tensor.nbytes // rows if rows else 0
        return [count * row for count in splits]


def _device_of(tensors: Sequence[Any]) -> str:
    """The type of the first tensor's device, in nested lists too; "": no tensor."""
    for each in tensors:
        if isinstance(each, torch.Tensor):
            return kind_of(each)
        if isinstance(each, list | tuple) and (found := _device_of(each)):
            return found
    return ""
