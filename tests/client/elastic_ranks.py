"""What ranks of elastic jobs do, each in a process of its own."""

import os
import signal
import time
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from dlcp_client import PeerLost, Session, connect, elastic, exact

DIES_AT = 3
TIMEOUT = 60.0


def store_at(port: int) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=False)


def average(session: Session, value: float) -> float:
    """Of `value` over the ranks."""
    tensor = torch.full((5000,), value)
    session.all_reduce(tensor, "avg", policy=exact(deadline=TIMEOUT)).wait()
    assert (tensor == tensor[0]).all()
    return float(tensor[0])


def shrinks_and_grows(process: int, _size: int, port: int) -> dict[str, Any]:
    """Processes 0 to 2 begin, 2 is killed, 3 comes later. What each of them saw, by size."""
    os.environ["MASTER_ADDR"] = "localhost"
    seen: dict[str, Any] = {"averages": {}, "ranks": {}, "steps": []}
    if process == 3:
        session = elastic.join(store_at(port), job="elastic", timeout=TIMEOUT)
        seen["step"] = agreed_step(session, -1)
    else:
        session = connect(store_at(port), process, 3, job="elastic", timeout=TIMEOUT)
    step, before = seen.get("step", 0), session
    while sum(epoch == 2 for _, epoch in seen["steps"]) < 3:
        if process == 2 and step == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        began = time.monotonic()
        try:
            seen["averages"][session.world_size, session.epoch] = average(session, float(process))
            seen["steps"].append((step, session.epoch))
            step += 1
            if session.epoch:  # so that the newcomer does not come before one has left
                session = elastic.boundary(session, timeout=TIMEOUT)
        except PeerLost as exc:
            seen |= {"lost": exc.peer, "after": time.monotonic() - began}
            session = elastic.regroup(session, timeout=TIMEOUT)
        if session is not before:
            before, step = session, agreed_step(session, step)
        seen["ranks"][session.epoch] = session.rank
    session.close()
    return seen


def agreed_step(session: Session, step: int) -> int:
    """That of rank 0, which has always been there."""
    told = torch.tensor([step])
    session.world.broadcast(told, 0).wait()
    return int(told)
