"""Decentralised training: after each step a rank averages its parameters with its neighbours only.

    torchrun --nproc-per-node 4 examples/train_gossip.py --graph exponential
    torchrun --nproc-per-node 4 examples/train_gossip.py --codec top-k

Handwritten digits, as in `dlcpctl demo` (pip install '.[demo]'). The lines that make it gossip are
marked.
"""

import argparse

import torch
import torch.distributed as dist

from dlcp_client import gossip  # <- added
from dlcp_lab.training.tasks import Digits

CODECS = {"none": None, "bf16": gossip.BF16(), "top-k": gossip.TopK(0.25)}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="ring", help='"ring" or "exponential"')
    parser.add_argument("--codec", default="none", choices=CODECS)
    parser.add_argument("--steps", type=int, default=60)
    return parser.parse_args()


def main() -> None:
    """Train, average over all ranks, and evaluate."""
    options = arguments()
    dist.init_process_group("gloo")
    rank, task = dist.get_rank(), Digits()
    torch.manual_seed(rank)  # the parameters of rank 0 become those of all
    model = task.model()
    optimizer = task.optimizer(model)
    handle = gossip.register(  # <- added
        model, optimizer, graph=options.graph, codec=CODECS[options.codec]
    )

    for step in range(options.steps):
        optimizer.zero_grad()
        loss = task.loss(model, step, rank)  # on this rank's own samples
        loss.backward()
        optimizer.step()  # and the exchange
        if step % 10 == 9:
            apart = handle.consensus_distance()  # every rank calls it
            if rank == 0:
                print(f"step {step + 1:3d}  loss {loss.item():.4f}  consensus distance {apart:.4f}")

    handle.average()  # <- added
    model.eval()
    with torch.no_grad():
        accuracy = task.score(model)
    print(f"rank {rank}: accuracy {accuracy:.4f}, sent {handle.sent_bytes / 1e6:.1f} MB\n", end="")
    dist.barrier()  # leave together
    handle.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
