"""dist.Work over one or several operations of the transport."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, Protocol

import torch
from torch._C import _distributed_c10d as c10d
from torch.futures import Future

from dlcp_client.device.registry import device_of
from dlcp_client.hooks.ddp_wait import show_the_wait
from dlcp_client.ranges import RANGES
from dlcpd.contract.errors import DlcpError

from . import transport
from .errors import as_torch

_NO_LIMIT: Final = timedelta(0)  # PyTorch passes it for "wait until the end"


class OpenWorks(Protocol):
    """Works of a process group that have not ended."""

    def ended(self, work: "GroupWork") -> None:
        """`work` has ended and its results are in place."""


class WorkOwner(Protocol):
    """The process group that made a work."""

    @property
    def unread(self) -> OpenWorks:
        """The works whose results are not yet copied back."""


class GroupWork(c10d.Work):
    """One call of a process group. Its results are in `outputs` after `wait()`.

    C++ calls only `wait` and `get_future`; the rest is for Python callers.
    """

    def __init__(
        self,
        parts: Sequence[transport.TransportWork],
        outputs: Any,
        finish: Callable[[], object] | None = None,
    ) -> None:
        """`finish` copies results to the caller's tensors. It runs once, after all parts."""
        super().__init__()
        self.parts: Final = tuple(parts)
        self._outputs, self._finish = outputs, finish
        self._lock = threading.RLock()  # a callback added late runs at once, on this thread
        self._future: Future[Any] | None = None
        # Referenced until the work has ended: a group without references closes its session.
        self.group: WorkOwner | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the end; True.

        Raises: the error that ended the operation; DeadlineExceeded after `timeout`: the operation
        then continues, and `wait` may be called again.
        """
        limited = timeout is not None and timeout > _NO_LIMIT
        until = time.monotonic() + timeout.total_seconds() if limited and timeout else None
        try:  # not torch_errors(): a context manager is six calls
            try:
                for part in self.parts:
                    part.wait(None if until is None else max(0.0, until - time.monotonic()))
            except DlcpError:
                self._report_end()
                raise
            self.conclude()
        except (DlcpError, TimeoutError) as exc:
            raise as_torch(exc) from exc
        return True

    def synchronize(self) -> None:
        """Wait for the end."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it has ended or failed, without waiting. After a success the results are in the
        caller's tensors."""
        if not all(part.done() for part in self.parts):
            return False
        with suppress(DlcpError), RANGES.quiet():
            self.wait()
        return True

    def is_success(self) -> bool:
        """Whether it ended with a result."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> DlcpError | None:
        """The error that it failed with; None while it runs and after success."""
        if not self.is_completed():
            return None
        try:
            self.wait()
        except DlcpError as exc:
            return exc
        return None

    def result(self) -> list[torch.Tensor]:
        """The results, flat; call `wait` first."""
        return _flat(self._outputs)

    def get_future(self) -> "Future[Any]":
        """A Future of the results. Every call returns the same one.

        It is always the result of `then`: `set_exception` on a Future that DDP holds is a SIGSEGV,
        while an error raised by a callback reaches its caller.
        """
        if RANGES.on():
            show_the_wait()
        with self._lock:
            if self._future is None:
                base = _future_of(_flat(self._outputs))
                self._future = base.then(self._value)
                _complete_after(self.parts, base)
            return self._future

    def source_rank(self) -> int:
        """For a finished receive, the sender's rank in the group; else -1."""
        return self.parts[0].source if self.parts else -1

    _source_rank = source_rank  # recv(src=None) asks for it by this name

    def block_current_stream(self) -> None:
        """Block the process, too: only `wait` completes the operation for the current stream."""
        self.wait()

    def _value(self, _: "Future[Any]") -> Any:
        with RANGES.quiet():  # all parts have ended; on the caller's thread if they had before
            self.wait()
        return self._outputs

    def conclude(self) -> None:
        """Copy the results to the caller's tensors, once, after all parts have ended."""
        with self._lock:
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()
        if self.group is not None:
            self._report_end()

    def _report_end(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            group.unread.ended(self)


def joined(works: Sequence[GroupWork]) -> GroupWork:
    """One work that ends with the last of `works`."""
    parts = [part for work in works for part in work.parts]

    def finish() -> None:
        for work in works:
            work.conclude()

    return GroupWork(parts, [t for work in works for t in work.result()], finish)


def _future_of(outputs: list[torch.Tensor]) -> "Future[None]":
    """A Future whose chain may hold `outputs`: PyTorch requires their device to be declared."""
    device = device_of(outputs[0]) if outputs else None
    return Future() if device is None else device.future()


def _complete_after(parts: Sequence[transport.TransportWork], base: "Future[None]") -> None:
    """Complete `base` when all of `parts` ended, on a thread whose callbacks may wait."""
    lock, left = threading.Lock(), len(parts) + 1

    def ended(_: object = None) -> None:
        nonlocal left
        with lock:
            left -= 1
            over = not left
        if over:
            base.set_result(None)

    for part in parts:
        part.get_future().add_done_callback(ended)
    ended()


def _flat(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [tensor for item in outputs for tensor in _flat(item)]
