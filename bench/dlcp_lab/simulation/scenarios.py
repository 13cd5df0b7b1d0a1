"""Prints a digest of all that simulated hosts send, per scenario.

`python -m dlcp_lab.simulation.scenarios [NAME ...]`: run once with each form of the transfer layer
(dlcpd/transfer_form.py), the digests must be equal.
"""

import hashlib
import sys
from typing import Final

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw
from dlcpd.transfer_form import form

COUNT: Final = 20_000  # elements of an operation
OPERATIONS: Final = 4
WORLD: Final = 3
# Name: the network, paths, loss bound. Rates and queues make windows, pace and marks change.
SCENARIOS: Final[dict[str, tuple[SimLink, int, float]]] = {
    "clean": (SimLink(), 1, 0.0),
    "clean-two-paths": (SimLink(jitter=40e-6), 2, 0.0),
    "loss-1": (SimLink(loss=0.01, duplicate=0.01), 1, 0.0),
    "loss-10": (SimLink(loss=0.1, jitter=40e-6), 2, 0.0),
    "loss-10-bounded": (SimLink(loss=0.1, jitter=40e-6), 2, 0.2),
    "slow": (SimLink(rate=40_000.0, queue=32), 1, 0.0),
    "slow-bounded": (SimLink(rate=40_000.0, queue=16, loss=0.01), 2, 0.1),
    "marked": (SimLink(rate=60_000.0, queue=200, classes=True, mark=20), 1, 0.0),
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
    if not all(network.ended(number) for number in range(1, OPERATIONS + 1)):
        raise AssertionError(f"{name}: an operation has not ended")
    summed = hashlib.blake2b(digest_size=16)
    for one in network.recorded:
        summed.update(bytes((one.source, one.target, one.path)) + one.data)
    return len(network.recorded), summed.hexdigest()


def main(names: list[str]) -> None:
    """A line per scenario, after one with the form."""
    lines = [" ".join([name, *map(str, digest(name))]) for name in names or SCENARIOS]
    print(form(), *lines, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
