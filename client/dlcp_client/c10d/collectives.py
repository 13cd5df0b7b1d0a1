"""The collectives of a process group: flatten tensors, submit, copy results back.

Each public method is one that torch.distributed or its C++ side calls, in any form that PyTorch
documents (`overloads`); `asked` holds the root, the reduction and the timeout. Lists date from
processes with several devices: they have one entry per device (`devices_of_a_rank`).
"""

from collections.abc import Sequence

import torch

from dlcpd.contract.errors import BadTensor

from .checks import (
    bytes_of_rows,
    check_alike,
    check_count,
    check_dtype,
    check_empty,
    check_lists,
    check_parts,
    check_root,
    check_root_tensor,
    check_same,
    only,
    paired,
)
from .coalescing import by_rank, room_by_rank, shared
from .devices_of_a_rank import copied_to_all, reduced_here, rooms_of_all
from .group_calls import GroupCalls, operation
from .overloads import CallOptions
from .reduction import Reduction
from .staging import BYTES, Buffer, copied, lent, room
from .work import GroupWork, joined

Tensors = list[torch.Tensor]
Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # output and input


class Collectives(GroupCalls):
    """One method per collective."""

    # --- reductions -------------------------------------------------------------------

    @operation
    def allreduce(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        if len(tensors) == 1:
            return self._all_reduce(tensors, asked)
        check_alike(tensors)
        whole = reduced_here(tensors, Reduction.of(asked.op, tensors[0].dtype))
        return copied_to_all(self._all_reduce([whole], asked), whole, tensors)

    @operation
    def allreduce_coalesced(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        if not tensors:
            raise BadTensor("requires non-empty tensor list")
        alike: dict[torch.dtype, Tensors] = {}
        for tensor in tensors:
            alike.setdefault(tensor.dtype, []).append(tensor)
        return joined([self._all_reduce(some, asked) for some in alike.values()])

    @operation
    def reduce(self, tensors: Tensors, asked: CallOptions) -> GroupWork:
        root = check_root(asked.root, self.group.size)
        check_root_tensor(asked.root_tensor, len(tensors))
        reduction = Reduction.of(asked.op, only(tensors, "tensor list").dtype)
        scaled = reduction.factor is not None and root != self.group.rank
        buffer = (copied if scaled else lent)(tensors, reduction.carried)
        if reduction.factor is not None:
            buffer.multiply(reduction.factor)
        part = self.group.reduce(buffer.whole, root, reduction.op, policy=self.policy(asked))
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
        root = check_root(asked.root, self.group.size)
        if len(tensors) == 1 and not asked.root_tensor:
            chosen = tensors[0]
        else:
            chosen = tensors[check_root_tensor(asked.root_tensor, len(tensors))]
            check_alike(tensors)
        buffer = lent([chosen], BYTES)
        part = self.group.broadcast(buffer.whole, root, policy=self.policy(asked))
        work = GroupWork([part], tensors, None if root == self.group.rank else buffer.copy_back)
        return work if len(tensors) == 1 else copied_to_all(work, chosen, tensors)

    @operation
    def allgather(self, outputs: list[Tensors], inputs: Tensors, asked: CallOptions) -> GroupWork:
        """`outputs`: one list per input, with one tensor per rank and input."""
        paired(outputs, inputs)
        if len(inputs) == 1:
            return self._all_gather(outputs[0], inputs[0], asked)
        check_alike(inputs)
        source, targets = lent(inputs, BYTES), rooms_of_all(outputs, inputs, self.group.size)
        target = targets[0].whole
        part = self.group.all_gather(target, source.whole, None, policy=self.policy(asked))

        def finish() -> None:
            for each in targets:
                each.copy_back()

        return GroupWork([part], outputs, finish)

    @operation
    def allgather_coalesced(
        self, outputs: list[Tensors], inputs: Tensors, asked: CallOptions
    ) -> GroupWork:
        """`outputs`: one list per rank, with one tensor per input."""
        check_lists(outputs, inputs, self.group.size)
        by_input = zip(*outputs, strict=True)
        return joined(
            [self._all_gather(list(o), i, asked) for o, i in zip(by_input, inputs, strict=True)]
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
        root = check_root(asked.root, self.group.size)
        only(inputs, "input tensor list")
        source, policy = lent(inputs, BYTES), self.policy(asked)
        if root != self.group.rank:
            check_empty(outputs, "output")
            return GroupWork([self.group.gather(None, source.whole, root, policy=policy)], [])
        target = room(only(outputs, "output list"), BYTES)
        check_parts(target, source, self.group.size, "output")
        part = self.group.gather(target.whole, source.whole, root, policy=policy)
        return GroupWork([part], outputs[0], target.copy_back)

    @operation
    def scatter(self, outputs: Tensors, inputs: list[Tensors], asked: CallOptions) -> GroupWork:
        root = check_root(asked.root, self.group.size)
        only(outputs, "output tensor list")
        target = room(outputs, BYTES)
        source = None
        if root == self.group.rank:
            source = lent(only(inputs, "input list"), BYTES)
            check_parts(source, target, self.group.size, "input")
        else:
            check_empty(inputs, "input")
        part = self.group.scatter(
            target.whole, None if source is None else source.whole, root, policy=self.policy(asked)
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
            bytes_of_rows(output, output_splits, self.group.size),
            bytes_of_rows(given, input_splits, self.group.size),
            asked,
        )

    @operation
    def alltoall(self, outputs: Tensors, inputs: Tensors, asked: CallOptions) -> GroupWork:
        target, source = room(outputs, BYTES), lent(inputs, BYTES)
        check_count(target, self.group.size, "output")
        check_count(source, self.group.size, "input")
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
        if reduction.factor is not None:
            buffer.multiply(reduction.factor)
        part = self.group.all_reduce(
            buffer.whole, reduction.op, policy=self.policy(asked), layers=self.layers
        )
        return GroupWork([part], tensors, buffer.copy_back)

    def _all_gather(self, outputs: Tensors, given: torch.Tensor, asked: CallOptions) -> GroupWork:
        target, source = room(outputs, BYTES), lent([given], BYTES)
        sizes = None if len(outputs) == 1 else target.uneven
        check_dtype(given, outputs[0])
        if len(outputs) > 1:
            check_count(target, self.group.size, "output")
            check_same(target.sizes[self.group.rank], source.sizes[0])
        else:
            check_same(target.count, source.count * self.group.size)
        part = self.group.all_gather(target.whole, source.whole, sizes, policy=self.policy(asked))
        return GroupWork([part], outputs, target.copy_back)

    def _all_gather_together(self, pairs: Pairs, asked: CallOptions) -> GroupWork:
        """Gather pairs of one dtype in one operation. Each output holds all ranks' parts."""
        outputs, inputs = [output for output, _ in pairs], [given for _, given in pairs]
        if len(pairs) == 1:
            return self._all_gather(outputs, inputs[0], asked)
        for output, given in pairs:
            check_dtype(given, output)
            check_same(output.nbytes, given.nbytes * self.group.size)
        source = lent(inputs, BYTES)
        target, copy_back = room_by_rank(outputs, self.group.size)
        part = self.group.all_gather(target, source.whole, None, policy=self.policy(asked))
        return GroupWork([part], outputs, copy_back)

    def _reduce_scatter(
        self, output: torch.Tensor, inputs: Tensors, asked: CallOptions
    ) -> GroupWork:
        reduction = Reduction.of(asked.op, output.dtype)
        stage = lent if reduction.factor is None else copied  # PREMUL_SUM scales in place
        target, source = room([output], reduction.carried), stage(inputs, reduction.carried)
        sizes = None if len(inputs) == 1 else source.uneven
        if len(inputs) > 1:
            check_count(source, self.group.size, "input")
            check_same(source.sizes[self.group.rank], target.count)
        else:
            check_same(source.count, target.count * self.group.size)
        if reduction.factor is not None:
            source.multiply(reduction.factor)
        part = self.group.reduce_scatter(
            target.whole,
            source.whole,
            reduction.op,
            sizes,
            policy=self.policy(asked),
            layers=self.layers,
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
        stage = lent if reduction.factor is None else copied
        source = stage(by_rank(inputs, self.group.size), reduction.carried)
        target = room(outputs, reduction.carried)
        if reduction.factor is not None:
            source.multiply(reduction.factor)
        part = self.group.reduce_scatter(
            target.whole, source.whole, reduction.op, None, policy=self.policy(asked)
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
        check_dtype(source.tensors[0], target.tensors[0])
        part = self.group.all_to_all(
            target.whole, source.whole, output_sizes, input_sizes, policy=self.policy(asked)
        )
        return GroupWork([part], list(target.tensors), target.copy_back)
