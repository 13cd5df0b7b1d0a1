"""Training with a parameter server: the servers take the optimizer's steps.

    torchrun --nproc-per-node 4 examples/train_ps.py    # the server is embedded in this job

    export DLCPD_STORE=$(mktemp -d)
    dlcpd server --config server.toml &     # store = that folder; docs/parameter-server.md has one
    torchrun --nproc-per-node 4 examples/train_ps.py
    torchrun --nproc-per-node 4 examples/train_ps.py --staleness 4 --steps 150

Handwritten digits, as in `dlcpctl demo` (pip install '.[demo]'). The lines that make it use the
server are marked.
"""

import argparse
import os

import torch

from dlcp_client import bounded, ps  # <- added
from dlcp_lab.training.tasks import Digits


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", help="its name; left out: see above")
    parser.add_argument("--staleness", type=int, help="pushes; left out: synchronous")
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


def main() -> None:
    """Train and evaluate."""
    options = arguments()
    rank, task = int(os.environ["RANK"]), Digits()
    torch.manual_seed(rank)  # the parameters of worker 0 become those of all
    model = task.model()
    optimizer = task.optimizer(model)
    handle = ps.register(  # <- added
        model, optimizer, bounded(0.01), server=options.server, staleness=options.staleness
    )

    for step in range(options.steps):
        optimizer.zero_grad()
        loss = task.loss(model, step, rank)  # of this worker's own samples
        loss.backward()
        optimizer.step()  # pushes gradients, and pulls parameters
        if step % 10 == 9 and rank == 0:
            print(f"step {step + 1:3d}  loss {loss.item():.4f}  version {handle.version}")

    model.eval()
    with torch.no_grad():
        accuracy = task.score(model)
    print(f"worker {rank}: accuracy {accuracy:.4f}, version {handle.version}\n", end="")
    handle.close()


if __name__ == "__main__":
    main()
