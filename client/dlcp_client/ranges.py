"""Ranges of operations and waits for torch.profiler and tools that read its traces (docs/trace.md).

A range is a RecordFunction. torch.profiler, `emit_nvtx` and `emit_itt` show it by its name. Its
facts are its keyword arguments, which torch.profiler keeps if it records shapes. Their keys are
those of NCCL ("Collective name", "In msg nelems"), so that tools which know them find the values.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

from dlcpd.contract.policy import EXACT, LossPolicy
from dlcpd.contract.traffic import traffic_classes

if TYPE_CHECKING:
    from dlcp_client.group import Group
    from dlcp_client.operations.operation import Operation
    from dlcpd.contract.messages import Submit

Range = AbstractContextManager[None]
Facts = dict[str, int | str]  # no float: torch 2.13 exports 0.0 as `0.`, which is no JSON

PREFIX: Final = "dlcp:"
SUBMIT: Final = f"{PREFIX}submit"
WAIT: Final = f"{PREFIX}wait"
WAIT_FOR_ROOM: Final = f"{PREFIX}wait_for_room"

_NAMES: Final = {  # names in Gloo's ranges, where those of dlcpd or c10d differ
    "receive": "recv", "recv_anysource": "recv", "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce", "allgather": "all_gather",
    "allgather_coalesced": "all_gather", "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather", "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter", "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
}  # fmt: skip
_COLLECTIVES: Final = {"all_reduce": "allreduce"}  # names in NCCL's records, where they differ
_DTYPES: Final = {  # names in c10
    "float16": "Half", "float32": "Float", "float64": "Double", "bfloat16": "BFloat16",
    "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long", "uint8": "Byte",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip
_nobody: Final = nullcontext()


class Ranges:
    """The ranges of torch. A range costs microseconds, so check `on` first."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def on(self) -> bool:
        """Whether a profiler runs in this process. A false yes costs time, but shows nothing."""
        enabled = profiler._is_profiler_enabled  # noqa: SLF001  # as compiled code does
        return enabled and not getattr(self._thread, "quiet", False)

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Show nothing on this thread: code that only looks like a wait."""
        before = getattr(self._thread, "quiet", False)
        self._thread.quiet = True
        try:
            yield
        finally:
            self._thread.quiet = before

    def operation(self, group: "Group[Any]", operation: "Operation[Any]") -> Range:
        """One operation of a group, until it is submitted.

        Within a range of `collective` it adds none: that one describes the caller's arguments.
        """
        message = operation.message
        name, counts = message.collective, (message.input_count, message.output_count)
        facts = _facts(name, message.dtype, counts, group, group.name)
        if name in ("send", "receive"):
            facts |= _ends(name, group.rank, message.peer)
        rows = {row.traffic_class for row in message.layers} or {message.traffic_class}
        facts |= _terms(rows, message.max_loss, message.codec)
        if message.name:
            facts["gradient"] = message.name
        return self._outermost(name, [operation.input.array], facts)

    def collective(
        self, method: str, group: Any, name: str, first: Sequence[Any], depths: Sequence[int]
    ) -> Range:
        """A call of a method of a c10d group, until all its operations are submitted.

        `name`: of the group. `first`: the arguments before the options; `depths` has an entry for
        each of them that holds tensors, the outputs before the inputs.
        """
        tensors = [list(_tensors(one)) for one in first[: len(depths)]] or [[]]
        outputs, inputs = tensors[0], tensors[-1]
        dtype = str(inputs[0].dtype).removeprefix("torch.") if inputs else "uint8"
        counts = _elements(inputs), _elements(outputs)
        facts = _facts(method, dtype, counts, group, name)
        if method in ("send", "recv"):
            facts |= _ends(method, group.rank, first[1])
        return self._outermost(method, inputs, facts | _terms_of(EXACT))

    def exchange(self, name: str, arrays: Iterable[Any], policy: LossPolicy) -> Range:
        """A call of a parameter server, until it is answered. Checks `on` itself.

        `arrays`: the pushed or pulled arrays, float32; None: a gradient that is zero.
        """
        if not self.on():
            return _nobody
        count = sum(one.size for one in arrays if one is not None)
        facts: Facts = {"Collective name": name, "dtype": "Float", "In msg nelems": count}
        return self._outermost(name, [], facts | _terms_of(policy))

    def submission(self, session: int, message: "Submit", itemsize: int) -> Range:
        """The submission of an operation, with the numbers of the daemon's trace.

        The session is text: viewers read numbers as float64, and it has 64 bits.
        """
        facts: Facts = {
            "session": str(session),
            "operation": message.operation,
            "collective": message.collective,
            "bytes": max(message.input_count, message.output_count) * itemsize,
        }
        return _RecordFunctionFast(SUBMIT, (), facts)

    def wait(self, session: int, operation: int, label: str) -> Range:
        """A wait for one operation, with the same numbers."""
        facts: Facts = {"session": str(session), "operation": operation, "of": label}
        return _RecordFunctionFast(WAIT, (), facts)

    def waiting(self) -> Range:
        """A wait for more than one operation. Checks `on` itself."""
        return _RecordFunctionFast(WAIT) if self.on() else _nobody

    def waiting_for_room(self) -> Range:
        """A wait for arena memory that open operations hold. Checks `on` itself."""
        return _RecordFunctionFast(WAIT_FOR_ROOM) if self.on() else _nobody

    @contextmanager
    def _outermost(self, name: str, inputs: list[Any], facts: Facts) -> Iterator[None]:
        thread = self._thread
        if getattr(thread, "inside", False):
            yield
            return
        thread.inside = True
        try:
            with _RecordFunctionFast(PREFIX + _NAMES.get(name, name), inputs, facts):
                yield
        finally:
            thread.inside = False


RANGES: Final = Ranges()


def _facts(name: str, dtype: str, counts: tuple[int, int], group: Any, group_name: str) -> Facts:
    """The facts of an operation. `counts`: elements of input and output."""
    name = _NAMES.get(name, name)
    facts: Facts = {
        "Collective name": _COLLECTIVES.get(name, name),
        "dtype": _DTYPES.get(dtype, dtype),
        "In msg nelems": counts[0],
        "Out msg nelems": counts[1],
        "Group size": group.size,
        "Rank": group.rank,
        "Process Group Name": group_name or "world",
    }
    ranks = getattr(group, "ranks", None)  # a Solo group has no `ranks`
    return facts if ranks is None else facts | {"Process Group Ranks": str(list(ranks))}


def _ends(name: str, rank: int, peer: int) -> Facts:
    """Sender and receiver of a message, as ranks of the group."""
    source, target = (rank, peer) if name == "send" else (peer, rank)
    return {"Src Rank": source, "Dst Rank": target}


def _terms(classes: Iterable[int], max_loss: float, codec: str) -> Facts:
    """Traffic classes, given by their rank in the contract, bound and codec."""
    known = list(traffic_classes())
    names = ", ".join(known[rank] for rank in sorted(classes))
    facts: Facts = {"traffic class": names, "bound": f"{max_loss:g}"}
    return facts | {"codec": codec} if codec else facts


def _terms_of(policy: LossPolicy) -> Facts:
    own = policy.traffic_class
    return _terms([traffic_classes()[own].rank], policy.max_loss_of(own), policy.codec)


def _elements(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def _tensors(given: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested lists."""
    if isinstance(given, torch.Tensor):
        yield given
    else:
        for one in given:
            yield from _tensors(one)
