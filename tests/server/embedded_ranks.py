"""One rank of a training with an embedded server: `python embedded_ranks.py FOLDER RANK WORLD`.

It says what it does in FOLDER/rank-N, a line each, and steps until there is FOLDER/stop.
With FOLDER/leave-N it exits and closes nothing.
"""

import logging
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import FileStore

from dlcp_client import ps
from dlcpd.contract.errors import DlcpError

PAUSE = 0.02  # seconds between steps


class Lines(logging.Handler):
    """Warnings of the client, as lines."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"warned: {record.getMessage()}")


def say(text: str) -> None:
    with (folder / f"rank-{rank}").open("a") as file:
        file.write(f"{text}\n")


def main() -> None:
    store = FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    model = nn.Linear(30, 30)
    handle = ps.register(model, torch.optim.SGD(model.parameters(), 1e-3), timeout=180.0)
    logging.getLogger("dlcp_client").addHandler(Lines())
    say("registered")
    try:
        while not (folder / "stop").exists():
            model(torch.ones(1, 30)).sum().backward()
            handle.step()
            say(f"step {handle.steps}")
            if (folder / f"leave-{rank}").exists():
                say("left")
                return
            time.sleep(PAUSE)
        handle.close()
        say("closed")
    except DlcpError as exc:
        say(f"failed: {type(exc).__name__}: {exc}")


if __name__ == "__main__":
    folder, rank, world = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    main()
