"""What the rank processes of test_launch run."""

import os
import signal
import time
from typing import Any

from dlcp_lab.ranks.rank import Conductor
from dlcpd.contract.errors import BadTensor, PeerLost


def run(conductor: Conductor, arguments: dict[str, Any]) -> Any:
    """Do what `arguments` say for this rank."""
    what = arguments.get(str(conductor.rank), arguments.get("all"))
    return globals()[f"_{what}"](conductor)


def _about(conductor: Conductor) -> dict[str, Any]:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "OMP_NUM_THREADS", "EXTRA")
    return {name: os.environ.get(name) for name in names} | {"daemon": conductor.daemon}


def _barriers(conductor: Conductor) -> list[float]:
    left = []
    for _ in range(3):
        conductor.barrier("here")
        left.append(time.monotonic())
        conductor.progress(f"rank {conductor.rank}")
    return left


def _refuse(_conductor: Conductor) -> None:
    raise BadTensor("the tensor is wrong")


def _lose(_conductor: Conductor) -> None:
    raise PeerLost("somebody is gone")


def _break(_conductor: Conductor) -> None:
    raise RuntimeError("a bug")


def _die(_conductor: Conductor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_conductor: Conductor) -> None:
    time.sleep(1000)


def _wait(conductor: Conductor) -> None:
    conductor.barrier()
