"""Submits the operations of a session in one order, each once its arrays lie in the arena."""

import threading
import time
from functools import partial
from typing import Any, Final, Generic, cast

from dlcp_client.arena.blocks import A
from dlcp_client.arena.staging import Staging, device_errors
from dlcp_client.device.seam import Device
from dlcp_client.operations.due_steps import DueSteps
from dlcp_client.operations.engines import Engines
from dlcp_client.operations.joined import Joined, Piece
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import MARGIN, Operations
from dlcp_client.operations.operation import Operation
from dlcp_client.operations.places import Places
from dlcp_client.operations.work import Progress, Work
from dlcpd.contract.errors import (
    ArenaFull,
    BadTensor,
    DeviceFailed,
    DlcpError,
    SessionClosed,
    error_for,
)
from dlcpd.contract.frames import encode, encode_checked
from dlcpd.contract.messages import CloseGroup, OpenGroup

MAX_HELD: Final = 512  # operations whose memory is held; half of the engine's limit
SAY_TIMEOUT: Final = 10.0  # seconds for the engine to take a message about a group


class Submission(Generic[A]):
    """Submits operations in the order of their calls. Thread-safe.

    An operation on a device, and each one after it, leaves on the staging thread, when the copy of
    its input has ended.
    """

    def __init__(
        self,
        table: Operations,
        lanes: Lanes,
        engines: Engines,
        places: Places,
        staging: Staging,
        *,
        progress: Progress,
    ) -> None:
        """`progress`: given to each work."""
        self._table, self._lanes, self._engines = table, lanes, engines
        self._places, self._staging, self._progress = places, staging, progress
        self._ranges = progress.library.ranges
        self._submitting = threading.Lock()  # operations leave in number order
        # By id: operations that get space when they are submitted. Threads add and remove.
        self._unplaced: set[int] = set()

    def abandon(self) -> None:
        """In a forked child: a thread that held the lock does not exist."""
        self._submitting = threading.Lock()

    def say(self, message: OpenGroup | CloseGroup) -> None:
        """Send a message about a group to the engines.

        Raises: BadMessage; the error that ended the session.
        """
        self._table.raise_if_over()
        packet = encode_checked(message)
        with self._submitting:
            until = time.monotonic() + SAY_TIMEOUT
            self._lanes.send(packet, until, range(self._engines.count))

    def run(self, operation: Operation[A]) -> Work[A]:
        """Submit an operation of a group."""
        output, input = operation.output, operation.input
        collective = operation.message.collective
        if not output.writable:
            raise BadTensor(f"{collective} into a read-only array; give one of Session.empty")
        if output.dtype != input.dtype:
            raise BadTensor(f"{collective} of {input.dtype} into {output.dtype}: use one type")
        if operation.message.computes:
            self._check_computed(operation)
        # On the CPU this needs no call.
        devices = output.device is not None or input.device is not None
        device = _device_of(operation) if devices else None
        self._lanes.pump()  # outcomes of unawaited operations must not pile up
        if self._table.error is not None:
            self._table.raise_if_over()
        if collective == "all_reduce" and not input.count:
            return Work.over(self._progress, output)
        if device is not None:
            return self._run_staged(device, operation)
        self._begin(Work, operation)
        if not self._staging.jobs:
            self._carry_out(operation)
        else:  # an earlier operation waits for a device
            self._submit_later(operation)
        return operation.work

    def _check_computed(self, operation: Operation[A]) -> None:
        """Raises: BadTensor if the client could not compute the output from the input."""
        both = operation.input, operation.output
        if not all(map(self._places.holds, both)) or both[0].overlaps(both[1]):
            raise BadTensor(
                "a computation follows this reduction: give two tensors of Session.empty"
            )

    def _run_staged(self, device: Device, whole: Operation[A]) -> Work[A]:
        """Begin to copy to the arena; submit each piece after its copy."""
        with device_errors(device):
            whole.after = device.mark()
        parts = whole.cut(self._progress.library)
        for part in parts:
            self._begin(Piece, part)
            part.work.bounded_as = whole.message.name if whole.message.max_loss else ""
        pieces = [cast("Piece[A]", part.work) for part in parts]
        work = Joined(self._progress, whole.output, pieces)
        try:
            for part in parts:
                self._submit_later(part)
                self._progress.watch(part.work)  # copies the result to the device without a wait
        except BaseException as exc:  # Ctrl-C: some of the pieces are submitted
            known = isinstance(exc, DlcpError)
            self._table.fail(_copy_of(exc) if known else _interrupted(whole.label))
            raise
        return work

    def _begin(self, kind: type[Work[A]], operation: Operation[A]) -> None:
        """Make the work of an operation; its time counts from now."""
        message = operation.message
        work = operation.work = kind(
            self._progress,
            block=operation.output,
            expires=time.monotonic() + message.deadline + MARGIN,
            label=operation.label,
            after=operation.after,
        )
        if message.max_loss:
            work.bounded_as = message.name
        if message.computes:
            work.due = DueSteps()

    def _submit_later(self, operation: Operation[A]) -> None:
        """Submit after all earlier operations, and once the input is in the arena.

        Raises: the error that ended the session; DeviceFailed.
        """
        self._table.announce(operation.work)
        if not (operation.after and self._finds_place_now(operation)):
            self._unplaced.add(id(operation))
        self._staging.put(partial(self._carry_out_or_end, operation))

    def _finds_place_now(self, operation: Operation[A]) -> bool:
        """Start the device copy now if there is arena space.

        Do not overtake an operation that waits for space: this one leaves after it and may hold the
        space that it needs.
        """
        if self._unplaced:
            return False
        try:
            self._places.find(operation, None)
        except ArenaFull:  # or the memory is not locked: the staging thread tries again
            operation.source = operation.target = None
        return operation.placed

    def _carry_out_or_end(self, operation: Operation[A]) -> None:
        """Run `_carry_out` on the staging thread. An error becomes the outcome of the operation."""
        try:
            self._carry_out(operation)
        except DlcpError as exc:
            self._table.refuse(operation.work, _copy_of(exc))
        except BaseException as exc:
            text = f"{operation.work.label}: {type(exc).__name__}: {exc}"
            self._table.refuse(operation.work, DeviceFailed(text))
        self._unplaced.discard(id(operation))

    def _carry_out(self, operation: Operation[A]) -> None:
        """Submit an operation. Blocks until there is space and its input is in the arena."""
        until = operation.work.expires - MARGIN
        if operation.source is None or operation.target is None:
            source, target = self._places.find(operation, until)
        else:
            source, target = operation.source, operation.target
        # First: if a later step fails, the memory is reused while the copy runs.
        if source.ready is not None:
            with device_errors(operation.input.device):
                source.ready.wait()
        held = self._table.memory.held
        if len(held) >= MAX_HELD:
            self._places.wait_for(lambda: len(held) < MAX_HELD, until)
        work, message = operation.work, operation.message
        if target.region is not None and operation.writes:
            work.lands_in(target.region, target.deliver)
        message.input, message.output = source.offset, target.offset
        message.submitted = work.begun
        message.in_place = (source.direct or target.direct) and not operation.result_only
        memory, item = (source.memory, target.memory), operation.output.itemsize
        with self._submitting:
            engines = self._engines.of(message, item)
            if work.due is not None:
                work.due.engines = frozenset(engines)
            number = work.number = self._table.begin(work, memory, engines)
            try:
                message.operation, message.divided = number, len(engines) > 1
                if self._ranges is None or not self._ranges.on():
                    self._lanes.send(encode(message), until, engines)
                else:
                    with self._ranges.submission(self._progress.number, message, item):
                        self._lanes.send(encode(message), until, engines)
                if self._engines.count > 1:
                    self._engines.submitted(message)
            except DlcpError:
                self._table.forget(number)  # nothing was sent
                raise
            except BaseException:  # Ctrl-C: the message may have been sent
                self._table.fail(_interrupted(f"operation {number}"))
                raise


def _device_of(operation: Operation[Any]) -> Device | None:
    """The device of an operation's non-empty arrays. Raises: BadTensor."""
    blocks = (operation.output, operation.input)
    devices = {id(one.device): one.device for one in blocks if one.count}
    if len(devices) > 1:
        raise BadTensor(
            f"{operation.message.collective} between "
            f"{' and '.join(map(_name, devices.values()))}: give tensors of one device"
        )
    return next(iter(devices.values()), None)


def _name(device: Device | None) -> str:
    return device.name if device else "the CPU"


def _interrupted(what: str) -> SessionClosed:
    return SessionClosed(
        f"{what} was interrupted while it was submitted: the ranks may not agree on its number any "
        f"more; connect again"
    )


def _copy_of(error: Any) -> DlcpError:
    """The error without its traceback, which would keep the memory of the operation alive."""
    return error_for(error.code, str(error), error.peer)
