"""A group of ranks and its collectives. All of them exact but those that reduce gradients."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dlcp_client.operations.layers import Layer
from dlcp_client.operations.requests import Range, Request, request
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import BadPolicy, BadTensor, SessionClosed
from dlcpd.contract.messages import CloseGroup, Counts
from dlcpd.contract.policy import EXACT, LossPolicy

if TYPE_CHECKING:
    from .session import Session

ANY = -1  # source of a message that may come from every rank
NOWHERE = torch.empty(0)  # where a rank gives or gets nothing


@dataclass(frozen=True, slots=True)
class Call:
    """One collective, beside what is reduced and how: who, and in which parts."""

    collective: str
    peer: int = ANY  # rank in the group: root, receiver or sender
    tag: int = 0
    sizes: Sequence[Counts] = ()  # by rank, where they differ
    schedule: str = ""  # empty: the daemon chooses
    reads: bool = True  # whether what the input holds matters


class Group:
    """Some ranks of a session, in an order that is theirs. Each calls the same collectives in the
    same order; send and receive are between two of them. Every method returns before the end.

    Tensors are contiguous, on the CPU, of one dtype, and are left alone until the work is done.
    One from `Session.empty` is used where it is; any other is copied to the arena and back.
    Roots, peers and sources are ranks in the group. All raise what `Session.all_reduce` does.
    """

    def __init__(self, session: "Session", number: int, ranks: Sequence[int], name: str) -> None:
        self.session, self.number, self.ranks, self.name = session, number, tuple(ranks), name
        self.rank, self.size = self.ranks.index(session.rank), len(self.ranks)
        self._closed = False
        self._closing = threading.Lock()

    def all_reduce(  # noqa: PLR0913  # all but the first two by keyword
        self,
        tensor: torch.Tensor,
        op: Any = "sum",
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        critical: Iterable[Range] = (),
        layers: Iterable[Layer] = (),
        schedule: str = "",
        scale: float = 1.0,
        into: torch.Tensor | None = None,
        result_only: bool = False,
    ) -> Work:
        """Reduce `tensor` over all ranks, in place. See `Session.all_reduce`.

        `into`: where the result goes instead. A `tensor` of `Session.empty` then keeps what this
        rank contributed, which in a bounded operation is more: what it had given up before.
        """
        asked = request(
            tensor, op, policy, name=name, critical=critical, layers=layers, scale=scale
        )
        call = Call("all_reduce", schedule=schedule)
        output = tensor if into is None else into
        return self._run(call, output, tensor, asked, result_only=result_only)

    def reduce(
        self, tensor: torch.Tensor, root: int, op: Any = "sum", *, policy: LossPolicy = EXACT
    ) -> Work:
        """Reduce `tensor` over all ranks into that of `root`; the others keep theirs."""
        asked = _exactly(tensor, policy, op)
        output = tensor if self.rank == root else NOWHERE.to(tensor.dtype)
        return self._run(Call("reduce", root), output, tensor, asked)

    def broadcast(self, tensor: torch.Tensor, root: int, *, policy: LossPolicy = EXACT) -> Work:
        """Copy the `tensor` of `root` into that of every rank."""
        call = Call("broadcast", root, reads=self.rank == root)
        return self._run(call, tensor, tensor, _exactly(tensor, policy))

    def all_gather(
        self, output: torch.Tensor, input: torch.Tensor, sizes: Sequence[int] | None = None,
        *, policy: LossPolicy = EXACT,
    ) -> Work:  # fmt: skip
        """Every rank's `input`, by rank, in `output`; `sizes` in elements, if they differ."""
        rows = [Counts(input.numel(), size) for size in sizes or ()]
        call = Call("all_gather", sizes=rows)
        return self._run(call, output, input, _exactly(input, policy))

    def gather(
        self, output: torch.Tensor | None, input: torch.Tensor, root: int,
        *, policy: LossPolicy = EXACT,
    ) -> Work:  # fmt: skip
        """Every rank's `input`, by rank, in the `output` of `root`; all of one size."""
        asked = _exactly(input, policy)
        return self._run(Call("gather", root), _or_nowhere(output, input), input, asked)

    def scatter(
        self, output: torch.Tensor, input: torch.Tensor | None, root: int,
        *, policy: LossPolicy = EXACT,
    ) -> Work:  # fmt: skip
        """Part r of the `input` of `root` in the `output` of rank r; all of one size."""
        asked = _exactly(output, policy)
        return self._run(Call("scatter", root), output, _or_nowhere(input, output), asked)

    def reduce_scatter(  # noqa: PLR0913  # all but the first four by keyword
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        op: Any = "sum",
        sizes: Sequence[int] | None = None,
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        critical: Iterable[Range] = (),
        layers: Iterable[Layer] = (),
        scale: float = 1.0,
    ) -> Work:
        """Part r of `input`, reduced over all ranks, in the `output` of rank r; `sizes` of the
        parts in elements, if they differ. A bounded one adds its residual to an `input` that
        comes from `Session.empty`."""
        asked = request(input, op, policy, name=name, critical=critical, layers=layers, scale=scale)
        rows = [Counts(size, output.numel()) for size in sizes or ()]
        return self._run(Call("reduce_scatter", sizes=rows), output, input, asked)

    def all_to_all(
        self, output: torch.Tensor, input: torch.Tensor,
        output_splits: Sequence[int] | None = None, input_splits: Sequence[int] | None = None,
        *, policy: LossPolicy = EXACT,
    ) -> Work:  # fmt: skip
        """Part r of `input` to rank r; its part for this rank to place r of `output`. Splits in
        elements, if parts differ."""
        out_parts = output_splits or self._even(output)
        in_parts = input_splits or self._even(input)
        if len(out_parts) != len(in_parts):
            raise BadTensor(
                f"all_to_all: {len(in_parts)} input splits, {len(out_parts)} output splits"
            )
        rows = [Counts(*pair) for pair in zip(in_parts, out_parts, strict=True)]
        call = Call("all_to_all", sizes=rows)
        return self._run(call, output, input, _exactly(input, policy))

    def barrier(self, *, policy: LossPolicy = EXACT) -> Work:
        """Done when every rank of the group has called it."""
        return self._run(Call("barrier"), NOWHERE, NOWHERE, _exactly(NOWHERE, policy))

    def send(
        self, tensor: torch.Tensor, peer: int, tag: int = 0, *, policy: LossPolicy = EXACT
    ) -> Work:
        """Send a message: done as soon as its bytes are copied, whether or not `peer` receives."""
        call = Call("send", peer, tag)
        return self._run(call, NOWHERE.to(tensor.dtype), tensor, _exactly(tensor, policy))

    def receive(
        self, tensor: torch.Tensor, peer: int | None = None, tag: int = 0,
        *, policy: LossPolicy = EXACT,
    ) -> Work:  # fmt: skip
        """Receive the next message with `tag` of `peer`, or of any rank: see `Work.source`."""
        call = Call("receive", ANY if peer is None else peer, tag)
        return self._run(call, tensor, NOWHERE.to(tensor.dtype), _exactly(tensor, policy))

    def close(self) -> None:
        """No operation follows; open ones fail. Closing twice is fine."""
        with self._closing:
            if self._closed or not self.number:
                return
            self._closed = True
        self.session.say(CloseGroup(self.number))

    def _even(self, tensor: torch.Tensor) -> list[int]:
        part, rest = divmod(tensor.numel(), self.size)
        if rest:
            raise BadTensor(
                f"{tensor.numel()} elements do not divide among {self.size} ranks: give splits"
            )
        return [part] * self.size

    def _run(
        self, call: Call, output: torch.Tensor, input: torch.Tensor, asked: Request,
        *, result_only: bool = False,
    ) -> Work:  # fmt: skip
        if self._closed:
            raise SessionClosed(f"group {self.name or self.number} is closed")
        if not -1 <= call.peer < self.size:
            raise BadTensor(f"{call.collective}: no rank {call.peer} in a group of {self.size}")
        return self.session.run(self.number, call, output, input, asked, result_only=result_only)


def _exactly(tensor: torch.Tensor, policy: LossPolicy, op: Any = "sum") -> Request:
    """The request of a collective that may lose nothing. Raises: as `request`."""
    if getattr(policy, "mode", "exact") != "exact":  # what is no policy at all, request refuses
        raise BadPolicy("only all_reduce and reduce_scatter may lose anything: use exact()")
    return request(tensor, op, policy)


def _or_nowhere(tensor: torch.Tensor | None, other: torch.Tensor) -> torch.Tensor:
    return NOWHERE.to(other.dtype) if tensor is None else tensor
