"""A rank under torchrun that reduces until a file called `stop` is there. Argument: a folder."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import dlcp_client

PACE = 0.02  # seconds of a step


def main() -> None:
    """Writes its process id, its daemon's and its steps to `rankN`; `doneN` at its end."""
    folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    with dlcp_client.connect() as session:
        step, going = 0, torch.ones(1)
        while going.item():
            step += 1
            new = folder / f"rank{rank}.new"
            new.write_text(f"{os.getpid()} {session.daemon_pid} {step}")
            new.rename(folder / f"rank{rank}")
            time.sleep(PACE)
            going = torch.tensor([float(not (folder / "stop").exists())])
            session.all_reduce(going, "min").wait()
    (folder / f"done{rank}").touch()
    os._exit(0)  # the store was the agent's; nothing else of torch's is under test


if __name__ == "__main__":
    main()
