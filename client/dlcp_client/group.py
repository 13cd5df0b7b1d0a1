"""A group of ranks and its collectives. All are exact except the reductions of gradients."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Unpack

from msgspec.structs import replace

from dlcp_client.arena.blocks import A, Arrays, Block
from dlcp_client.operations.operation import Operation
from dlcp_client.operations.prepared import PreparedRequests
from dlcp_client.operations.requests import ANY, ReductionOptions
from dlcp_client.operations.results import own_part
from dlcp_client.operations.submission import Submission
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import BadTensor, SessionClosed
from dlcpd.contract.messages import CloseGroup
from dlcpd.contract.policy import EXACT, LossPolicy

if TYPE_CHECKING:
    from .session import Session

PAIR: Final = 2  # ranks


class Group(Generic[A]):
    """An ordered set of ranks of a session. All members call the same collectives in the same
    order; send and receive involve two of them. Every method returns before its operation ends.
    Tensors are contiguous, of one dtype, on the CPU or on one CUDA device (the same kind on all
    ranks), and must not be touched until the work is done. One from `Session.empty` is used in
    place; any other is copied to the arena and back. A tuple of CPU tensors stands for their
    values, one after another. Roots, peers and sources are ranks in the group. All raise the errors
    of `Session.all_reduce`."""

    def __init__(
        self,
        session: "Session[A]",
        submission: Submission[A],
        number: int,
        ranks: Sequence[int],
        name: str,
    ) -> None:
        self.session, self.number, self.ranks, self.name = session, number, tuple(ranks), name
        self._submission = submission
        self.rank, self.size = self.ranks.index(session.rank), len(self.ranks)
        self._block = session.library.block
        self._request = PreparedRequests(session.library).request
        self._nowhere = self._block(session.library.nothing)
        self._ranges = session.library.ranges
        self._pair = self.size == PAIR and session.hosts == 1  # on hosts, a plan may add otherwise
        self._closed = False
        self._closing = threading.Lock()

    def all_reduce(
        self,
        tensor: Arrays[A],
        op: Any = "sum",
        *,
        into: A | None = None,
        schedule: str = "",
        result_only: bool = False,
        **options: Unpack[ReductionOptions],
    ) -> Work[A]:
        """Reduce `tensor` over all ranks, in place. See `Session.all_reduce`."""
        given = self._block(tensor)
        message = self._request("all_reduce", given, op, schedule=schedule, **options)
        if into is not None:
            output = self._block(into)
        else:
            output = given if given.writable else self._new_like(given)
        return self._run(Operation(message, output, given, result_only))

    def all_reduce_computed(
        self,
        tensor: A,
        into: A,
        op: Any = "sum",
        *,
        schedule: str = "",
        **options: Unpack[ReductionOptions],
    ) -> Work[A]:
        """Reduce `tensor` over all ranks; each owner of a part computes that part of `into` from
        the sums in `tensor`, in `Session.compute`. Both are tensors of `Session.empty`."""
        given, output = self._block(tensor), self._block(into)
        message = self._request(
            "all_reduce", given, op, computes=True, schedule=schedule, **options
        )
        return self._run(Operation(message, output, given))

    def reduce(
        self, tensor: Arrays[A], root: int, op: Any = "sum", *, policy: LossPolicy = EXACT
    ) -> Work[A]:
        """Reduce `tensor` over all ranks into that of `root`; on other ranks it is unchanged."""
        given = self._block(tensor)
        message = self._request("reduce", given, op, policy=policy, peer=root)
        if self.rank != root:
            output = self._none_of(given)
        else:
            output = given if given.writable else self._new_like(given)
        return self._run(Operation(message, output, given))

    def broadcast(self, tensor: Arrays[A], root: int, *, policy: LossPolicy = EXACT) -> Work[A]:
        """Copy the `tensor` of `root` into that of every rank."""
        block = self._block(tensor)
        message = self._request("broadcast", block, policy=policy, peer=root)
        at_root = self.rank == root
        return self._run(Operation(message, block, block, reads=at_root, writes=not at_root))

    def all_gather(
        self,
        output: Arrays[A],
        input: Arrays[A],
        sizes: Sequence[int] | None = None,
        *,
        policy: LossPolicy = EXACT,
    ) -> Work[A]:
        """Concatenate every rank's `input` in `output`, by rank; `sizes` in elements if unequal.
        In tensors of `Session.empty`, `input` may be this rank's part of `output`, which saves a
        copy."""
        given = self._block(input)
        rows = [(given.count, size) for size in sizes or ()]
        message = self._request("all_gather", given, policy=policy, sizes=rows)
        own = sum(sizes[: self.rank]) if sizes else self.rank * given.count
        return self._run(Operation(message, self._block(output), given, own=own))

    def gather(
        self, output: Arrays[A] | None, input: Arrays[A], root: int, *, policy: LossPolicy = EXACT
    ) -> Work[A]:
        """Concatenate every rank's `input`, of equal size, in the `output` of `root`, by rank."""
        given = self._block(input)
        target = self._none_of(given) if output is None else self._block(output)
        message = self._request("gather", given, policy=policy, peer=root)
        own = self.rank * given.count if self.rank == root else -1
        return self._run(Operation(message, target, given, own=own))

    def scatter(
        self, output: Arrays[A], input: Arrays[A] | None, root: int, *, policy: LossPolicy = EXACT
    ) -> Work[A]:
        """Copy part r of `root`'s `input` to `output` of rank r; parts are of equal size."""
        target = self._block(output)
        given = self._none_of(target) if input is None else self._block(input)
        message = self._request("scatter", target, policy=policy, peer=root)
        own = self.rank * target.count if self.rank == root else -1
        return self._run(Operation(message, target, given, own=own))

    def reduce_scatter(
        self,
        output: Arrays[A],
        input: Arrays[A],
        op: Any = "sum",
        sizes: Sequence[int] | None = None,
        *,
        schedule: str = "",
        **options: Unpack[ReductionOptions],
    ) -> Work[A]:
        """Reduce `input` over all ranks; part r goes to the `output` of rank r. `sizes`: elements
        by part, if they differ. A bounded operation adds its residual to an `input` of
        `Session.empty`. There, `output` may be this rank's part of `input`, which saves a copy.
        Elsewhere, `wait` may still read `input`."""
        given, target = self._block(input), self._block(output)
        rows = [(size, target.count) for size in sizes or ()]
        message = self._request(
            "reduce_scatter", given, op, sizes=rows, schedule=schedule, **options
        )
        own, added = sum(sizes[: self.rank]) if sizes else self.rank * target.count, None
        if self._pair:
            library, first = self.session.library, not self.rank
            added = own_part(library, message, target, given, own, first=first)
        return self._run(Operation(message, target, given, own=own, added=added))

    def all_to_all(
        self,
        output: Arrays[A],
        input: Arrays[A],
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        *,
        policy: LossPolicy = EXACT,
    ) -> Work[A]:
        """Send part r of `input` to rank r; part r of `output` comes from rank r. Splits in
        elements, if parts differ."""
        given, target = self._block(input), self._block(output)
        out_parts = output_splits or self._even(target)
        in_parts = input_splits or self._even(given)
        if len(out_parts) != len(in_parts):
            raise BadTensor(
                f"all_to_all: {len(in_parts)} input splits, {len(out_parts)} output splits: "
                "give one per rank"
            )
        rows = zip(in_parts, out_parts, strict=True)
        message = self._request("all_to_all", given, policy=policy, sizes=rows)
        return self._run(Operation(message, target, given))

    def barrier(self, *, policy: LossPolicy = EXACT) -> Work[A]:
        """Done after every rank of the group has called it."""
        nowhere = self._nowhere
        message = self._request("barrier", nowhere, policy=policy)
        return self._run(Operation(message, nowhere, nowhere))

    def send(
        self, tensor: Arrays[A], peer: int, tag: int = 0, *, policy: LossPolicy = EXACT
    ) -> Work[A]:
        """Send a message. Done when its bytes are copied, whether or not `peer` receives."""
        given = self._block(tensor)
        message = self._request("send", given, policy=policy, peer=peer, tag=tag)
        return self._run(Operation(message, self._none_of(given), given))

    def receive(
        self,
        tensor: Arrays[A],
        peer: int | None = None,
        tag: int = 0,
        *,
        policy: LossPolicy = EXACT,
    ) -> Work[A]:
        """Receive the next message with `tag` from `peer`, or from any rank: see `Work.source`."""
        target = self._block(tensor)
        message = self._request(
            "receive", target, policy=policy, peer=ANY if peer is None else peer, tag=tag
        )
        return self._run(Operation(message, target, self._none_of(target)))

    def close(self) -> None:
        """Close the group; open operations fail. A second call does nothing."""
        with self._closing:
            if self._closed or not self.number:
                return
            self._closed = True
        self._submission.say(CloseGroup(self.number))

    def _none_of(self, like: Block[A]) -> Block[A]:
        """An empty block, for a rank without input or output."""
        return replace(self._nowhere, dtype=like.dtype, itemsize=like.itemsize)

    def _new_like(self, given: Block[A]) -> Block[A]:
        """A new output, for an input that is read-only. Of a tuple, itself: `run` refuses it."""
        if given.parts:
            return given
        array: Any = given.array
        return self._block(self.session.empty(array.shape, array.dtype))

    def _even(self, block: Block[A]) -> list[int]:
        part, rest = divmod(block.count, self.size)
        if rest:
            raise BadTensor(
                f"{block.count} elements cannot be divided equally among {self.size} ranks: "
                "give splits"
            )
        return [part] * self.size

    def _run(self, operation: Operation[A]) -> Work[A]:
        message, ranges = operation.message, self._ranges
        message.input_count, message.output_count = operation.input.count, operation.output.count
        if self._closed:
            raise SessionClosed(f"group {self.name or self.number} is closed: create a new group")
        if not -1 <= message.peer < self.size:
            raise BadTensor(
                f"{message.collective}: rank {message.peer} is not in this group of {self.size} "
                f"ranks"
            )
        message.group = self.number
        if ranges is None or not ranges.on():
            return self._submission.run(operation)
        with ranges.operation(self, operation):
            return self._submission.run(operation)
