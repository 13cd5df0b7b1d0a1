"""One rank of `bench all-reduce --account`: operations one after the other, and their cost."""

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import dlcp_client
from dlcp_lab.bench.all_reduce_rank import DLCPD, GLOO, policy_of
from dlcp_lab.bench.meter import Meter
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import TORCH, join_gloo

Operations = dict[str, Callable[[], None]]  # by transport


def run(conductor: Conductor, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Per size: {transport: cost of `repeat` operations on this host}."""
    join_gloo(conductor)
    session = dlcp_client.connect()
    try:
        out = []
        for size in arguments["sizes"]:
            conductor.progress(f"{size} B: account of {arguments['repeat']} operations")
            operations = _operations(session, arguments, size)
            out.append(
                {name: _cost(conductor, arguments, each) for name, each in operations.items()}
            )
        conductor.barrier()  # a rank that leaves fails unfinished operations of its peers
        return out
    finally:
        session.close()
        dist.destroy_process_group()


def _operations(session: Any, arguments: dict[str, Any], size: int) -> Operations:
    """One call per transport, on zeros: a sum of zeros stays zero."""
    dtype, op = TORCH[arguments["dtype"]], arguments["op"]
    count = max(1, size // dtype.itemsize)
    private = torch.zeros(count, dtype=dtype)
    tensor = session.empty(count, dtype).zero_() if arguments["arena"] else private
    policy = policy_of(arguments)

    def dlcpd() -> None:
        session.all_reduce(tensor, op, policy=policy, name="account").wait()

    def gloo() -> None:
        dist.all_reduce(private, dist.ReduceOp.SUM if op == "avg" else _gloo(op))

    return {DLCPD: dlcpd} if arguments["against"] == "none" else {DLCPD: dlcpd, GLOO: gloo}


def _gloo(op: str) -> Any:
    return getattr(dist.ReduceOp, op.upper())


def _cost(
    conductor: Conductor, arguments: dict[str, Any], operation: Callable[[], None]
) -> dict[str, Any]:
    for _ in range(arguments["warmup"]):
        operation()
    meter = Meter(conductor.daemon)
    conductor.barrier()
    meter.start()
    conductor.barrier()
    counted = _Calls() if arguments["count_calls"] else None
    for _ in range(arguments["repeat"]):
        operation()
    calls = counted.stop() if counted else 0
    conductor.barrier()  # work for other ranks is part of this host's cost
    return meter.stop() | {"python_calls": calls}


class _Calls:
    """Counts calls of Python and C functions by this thread, from its construction on."""

    def __init__(self) -> None:
        self.count = 0
        sys.setprofile(self._on_event)

    def _on_event(self, _frame: Any, event: str, _argument: Any) -> None:
        if event in ("call", "c_call"):
            self.count += 1

    def stop(self) -> int:
        """Stop counting; returns the number of calls."""
        sys.setprofile(None)
        return self.count
