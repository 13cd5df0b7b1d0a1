"""A training that goes on when ranks die, and lets others in.

The store must outlive the ranks, so it has a process of its own:

    python examples/train_elastic.py store 127.0.0.1:29400
    python examples/train_elastic.py start 127.0.0.1:29400 --rank 0 --ranks 3   # and 1, and 2
    python examples/train_elastic.py join 127.0.0.1:29400                       # any time later
"""

import argparse
import time

import torch
from torch.distributed import TCPStore

from dlcp_client import DaemonLost, PeerLost, Session, connect, elastic, exact

POLICY = exact(deadline=60.0)


class Training:
    """The state that all ranks must share: a model, its optimizer's state, and the step."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.step = torch.zeros(1, dtype=torch.int64)
        self.weight, self.momentum = torch.zeros(4096), torch.zeros(4096)

    def share(self, session: Session) -> None:
        """Copy the state of rank 0, which is a previous member, if there is one."""
        for tensor in (self.step, self.weight, self.momentum):
            session.world.broadcast(tensor, 0).wait()

    def one_step(self, session: Session) -> None:
        """Learn that every weight is 1."""
        gradient = self.weight - 1.0
        session.all_reduce(gradient, "avg", policy=POLICY).wait()
        self.momentum.mul_(0.5).add_(gradient)
        self.weight.add_(self.momentum, alpha=-0.05)
        self.step += 1


def train(session: Session, training: Training, pause: float) -> Session:
    """Train to the last step, whatever happens to other ranks. Returns the last session."""
    known: Session | None = None  # session in which the ranks have equal states
    while known is not session or training.step < training.steps:
        try:
            if known is not session:
                training.share(session)
                known = session
                print(f"epoch {session.epoch}: rank {session.rank} of {session.world_size}")
            training.one_step(session)
            session = elastic.boundary(session)
        except (PeerLost, DaemonLost) as error:
            print(f"at step {int(training.step)}: {error}")
            session = elastic.regroup(session)
        time.sleep(pause)
    return session


def main() -> None:
    """Run one process: the store, or a rank."""
    options = parsed()
    host, _, port = options.store.rpartition(":")
    store = TCPStore(host, int(port), is_master=options.what == "store", wait_for_workers=False)
    if options.what == "store":
        while True:
            time.sleep(3600)
    if options.what == "join":
        session = elastic.join(store)
    else:
        session = connect(store, options.rank, options.ranks)
    training = Training(options.steps)
    with train(session, training, options.pause) as last:
        error = float((training.weight - 1.0).abs().max())
        print(f"done: {last.world_size} ranks, step {int(training.step)}, error {error:.1e}")


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("store", "start", "join"))
    parser.add_argument("store", metavar="HOST:PORT")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step")
    return parser.parse_args()


if __name__ == "__main__":
    main()
