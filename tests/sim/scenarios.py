"""Prints a digest of all that simulated hosts send: `python -m tests.sim.scenarios [NAME ...]`.

Run once with each form of the transfer layer (dlcpd/transfer_form.py), the digests must be equal.
"""

import hashlib
import sys
from typing import Final

from dlcpd.transfer_form import form
from tests.sim.network import Link, SimNetwork
from tests.sim.reference import copies, draw

COUNT: Final = 20_000  # elements of an operation
OPERATIONS: Final = 4
WORLD: Final = 3
# Name: the network, paths, loss bound. Rates and queues make windows, pace and marks change.
SCENARIOS: Final[dict[str, tuple[Link, int, float]]] = {
    "clean": (Link(), 1, 0.0),
    "clean-two-paths": (Link(jitter=40e-6), 2, 0.0),
    "loss-1": (Link(loss=0.01, duplicate=0.01), 1, 0.0),
    "loss-10": (Link(loss=0.1, jitter=40e-6), 2, 0.0),
    "loss-10-bounded": (Link(loss=0.1, jitter=40e-6), 2, 0.2),
    "slow": (Link(rate=40_000.0, queue=32), 1, 0.0),
    "slow-bounded": (Link(rate=40_000.0, queue=16, loss=0.01), 2, 0.1),
    "marked": (Link(rate=60_000.0, queue=200, classes=True, mark=20), 1, 0.0),
}


def digest(name: str) -> tuple[int, str]:
    """Datagrams of a scenario, and a digest of their bytes, paths and order."""
    link, paths, max_loss = SCENARIOS[name]
    network = SimNetwork(WORLD, link, seed=7, segment_size=1024, paths=paths)
    network.recorded = []
    for number in range(1, OPERATIONS + 1):
        parts = copies(draw("float32", WORLD, COUNT, number))
        network.submit_all(number, parts, max_loss=max_loss, name="weight" if max_loss else "")
    network.run()
    assert all(network.ended(number) for number in range(1, OPERATIONS + 1)), name
    summed = hashlib.blake2b(digest_size=16)
    for one in network.recorded:
        summed.update(bytes((one.source, one.target, one.path)) + one.data)
    return len(network.recorded), summed.hexdigest()


def main(names: list[str]) -> None:
    """A line per scenario, after one with the form."""
    lines = [" ".join([name, *map(str, digest(name))]) for name in names or SCENARIOS]
    print(form(), *lines, sep="\n")  # noqa: T201  # its output


if __name__ == "__main__":
    main(sys.argv[1:])
