"""torchft's manager over dlcpd: every quorum is a session of its own, and the rest is torchft's.

    torchft_lighthouse --min_replicas 1 --bind "[::]:29510"
    TORCHFT_LIGHTHOUSE=http://localhost:29510 \\
        python examples/recipes/train_torchft.py --replica 0   # and 1

One replica may be killed and started again: the other goes on, and gives it its state.
"""

import argparse
import time
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ProcessGroup, Store, TCPStore
from torchft import Manager, Optimizer
from torchft.process_group import ProcessGroupWrapper

from dlcp_client import c10d


class ProcessGroupDlcp(ProcessGroupWrapper):
    """The group of the present replicas, which torchft reconfigures."""

    def _create_pg(self, store: Store, rank: int, world_size: int) -> ProcessGroup:
        return c10d.process_group(store, rank, world_size, self._timeout)

    def getBackendName(self) -> str:
        return "torchft-dlcp"


def main() -> None:
    """One replica of one process."""
    options = parsed()
    torch.manual_seed(1)
    model = torch.nn.Linear(16, 1)
    inner = torch.optim.SGD(model.parameters(), lr=0.05)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": inner.state_dict()}

    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupDlcp(timeout=timedelta(seconds=30)),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="localhost",
        store_port=store.port,
        replica_id=f"replica_{options.replica}_",
        timeout=timedelta(seconds=30),
        hostname="localhost",
    )
    optimizer = Optimizer(manager, inner)
    while manager.current_step() < options.steps:
        optimizer.zero_grad()  # begins a quorum
        inputs = torch.randn(8, 16)
        torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
        optimizer.step()  # only where all replicas succeeded
        print(f"step {manager.current_step()}: {manager.num_participants()} replicas", flush=True)
        time.sleep(options.pause)
    print(f"done: {float(model.weight.detach().double().sum()):.9f}", flush=True)
    manager.shutdown()


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replica", type=int, default=0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
