"""The transport interface of the c10d backend: groups, their operations, and works.

Rules for every operation:

- Tensors are 1-D, contiguous and on one device, the CPU or another. Reductions take one of the
  REDUCED dtypes. All other operations take uint8, whatever the caller's dtype: elements are bytes.
- A tuple of such tensors on the CPU stands for their values, one after another (`Flat`).
- An operation returns before its end. Its tensors are not touched until the work is done.
- Operations are exact, with the policy's deadline; only gradient hooks pass a bounded policy.
- Collectives of one group are called in the same order on all its ranks. `send` and `receive`
  match by peers and tag, in order, and never wait for a collective or for each other.
- `policy.deadline`: seconds from the call. An operation that has not ended by then fails with
  DeadlineExceeded on every rank that waits.
- A refused call raises, and a failed operation's work raises, a DlcpError.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import torch
from torch.futures import Future

from dlcpd.contract.policy import EXACT, LossPolicy

Flat: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]

REDUCED: Final = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.int64,
)
OPS: Final = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
MAX_TAG: Final = (1 << 31) - 1
USER_TAGS: Final = MAX_TAG  # tags from here on are reserved for the group


class TransportWork(Protocol):
    """One operation."""

    @property
    def source(self) -> int:
        """For a finished receive, the sender's rank in the group; -1 for other operations."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the end, without the GIL; True. Later work on this thread's current stream
        sees a result on a device.

        Raises: the DlcpError that ended it; TimeoutError after `timeout` seconds: the operation
        then continues, and `wait` may be called again.
        """

    def done(self) -> bool:
        """Whether it has ended or failed, without waiting."""

    def get_future(self) -> "Future[Any]":
        """A Future that completes after the end, on a thread whose callbacks may wait.

        After a failure its wait() raises. `Future.set_exception` is never called on it.
        """


class TransportGroup(Protocol):
    """An ordered set of ranks. Thread-safe; the caller orders operations across threads."""

    rank: int  # of this process in the group
    size: int

    def all_reduce(
        self, tensor: Flat, op: str, *, policy: LossPolicy, layers: Iterable[Any] = ()
    ) -> TransportWork:
        """Reduce over all ranks, in place. `layers`: as of Session.all_reduce."""

    def reduce(self, tensor: Flat, root: int, op: str, *, policy: LossPolicy) -> TransportWork:
        """Reduce over all ranks to `tensor` of `root`. On other ranks it is unchanged."""

    def broadcast(self, tensor: Flat, root: int, *, policy: LossPolicy) -> TransportWork:
        """Copy the root's tensor to all ranks."""

    def all_gather(
        self,
        output: Flat,
        input: Flat,  # torch's own name
        sizes: Sequence[int] | None,
        *,
        policy: LossPolicy,
    ) -> TransportWork:
        """Concatenate the inputs of all ranks in `output`, in rank order.

        `sizes`: elements by rank; None: equal for all. `input` may be this rank's part of `output`.
        """

    def gather(
        self,
        output: Flat | None,
        input: Flat,
        root: int,
        *,
        policy: LossPolicy,
    ) -> TransportWork:
        """Concatenate the inputs, of equal size, in the root's `output`; None on other ranks."""

    def scatter(
        self,
        output: Flat,
        input: Flat | None,
        root: int,
        *,
        policy: LossPolicy,
    ) -> TransportWork:
        """Give each rank its part, of equal size, of the root's `input`; None on other ranks."""

    def reduce_scatter(  # noqa: PLR0913  # all but four by keyword
        self,
        output: Flat,
        input: Flat,
        op: str,
        sizes: Sequence[int] | None,
        *,
        policy: LossPolicy = EXACT,
        name: str | None = None,
        layers: Iterable[Any] = (),
    ) -> TransportWork:
        """Reduce the inputs and give each rank its part.

        `sizes`: elements by rank; None: equal for all. `output` may be this rank's part of `input`.
        `name` and `layers`: as of Session.all_reduce.
        """

    def all_to_all(
        self,
        output: Flat,
        input: Flat,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        *,
        policy: LossPolicy,
    ) -> TransportWork:
        """Part i of `input` goes to rank i; part i of `output` comes from rank i.

        Splits are elements by rank; None: equal for all.
        """

    def send(self, tensor: Flat, peer: int, tag: int, *, policy: LossPolicy) -> TransportWork:
        """Send to one rank. Done when the peer has the data or `tensor` may be changed."""

    def receive(
        self, tensor: Flat, peer: int | None, tag: int, *, policy: LossPolicy
    ) -> TransportWork:
        """Receive from `peer`; None: from the first rank that sends, which `TransportWork.source`
        names."""

    def barrier(self, *, policy: LossPolicy) -> TransportWork:
        """Done after all ranks have called it."""

    def close(self) -> None:
        """End the group. Its open works fail with SessionClosed; other groups go on."""


class Transport(Protocol):
    """The source of groups: a session."""

    def group(self, ranks: Sequence[int], name: str, *, timeout: float) -> TransportGroup:
        """The group of `ranks` of this transport, in this order; every member calls it.

        `name` is the same on all members. `timeout`: seconds to wait for all members.
        """

    def close(self) -> None:
        """End the session. A second call does nothing."""
