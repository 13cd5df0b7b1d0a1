"""One rank of a training that is the same every time: says each step, and its weights' digest."""

import hashlib
import sys

import torch

from dlcp_client import ddp, exact
from tests.client.ddp_ranks import group, model, step, weights
from tests.client.real import TIMEOUT

STEPS = 12


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(rank: int, store: str) -> None:
    with group(rank, store):
        net = model()
        ddp.register(net, exact(), timeout=TIMEOUT)
        for number in range(STEPS):
            step(net, rank, number)
            say(f"step {number}")
        trained: torch.Tensor = weights(net)
        say(f"digest {hashlib.sha256(trained.numpy().tobytes()).hexdigest()}")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
