"""The training of the failure drill: a rank on every host."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Final

from dlcp_lab.emulation.patience import patience
from dlcp_lab.faults.breakages import JOB, VICTIM
from dlcp_lab.faults.cluster import Cluster
from dlcp_lab.faults.leaks import children
from dlcp_lab.ranks.processes import Child, start
from dlcpd.contract.errors import DaemonUnavailable

WARM: Final = "step 20"  # of rank 0: bounded loss begins after 10
PATIENCE: Final = 120.0  # seconds until a training trains, on an idle machine
LOOK: Final = 0.3  # seconds between two looks


@dataclass(frozen=True, slots=True)
class DrillRank:
    """A process of a training."""

    child: Child

    @property
    def pid(self) -> int:
        """Process id."""
        return self.child.process.pid


class DrillTraining:
    """A rank on every host. `memory`: see Breakage."""

    def __init__(self, cluster: Cluster, name: str, memory: int = 0) -> None:
        self._cluster = cluster
        self.logs = [cluster.folder / f"{name}-{rank}.log" for rank in range(cluster.network.hosts)]
        self.trainers: list[DrillRank] = []
        for rank, log in enumerate(self.logs):
            arguments = ["--store", str(cluster.folder / f"{name}-store")]
            if memory and rank == VICTIM:
                arguments += ["--address-space-left", str(memory)]
            environ = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": str(cluster.network.hosts),
                "TORCHELASTIC_RUN_ID": JOB,
                "DLCPD_SOCKET": cluster.hosts[rank].socket,
            }
            self.trainers.append(
                DrillRank(
                    start(
                        "dlcp_lab.faults.training_script",
                        *arguments,
                        name=f"rank {rank}",
                        log=log,
                        environ=environ,
                    )
                )
            )

    def wait(self) -> None:
        """Wait until it trains. Raises: TimeoutError with the end of the logs."""
        until = time.monotonic() + patience(PATIENCE)
        while WARM not in self.logs[0].read_text():
            if time.monotonic() > until or self.ended:
                texts = "\n".join(log.read_text()[-2000:] for log in self.logs)
                raise TimeoutError(f"the training made no progress: {texts}")
            time.sleep(LOOK)

    @property
    def ended(self) -> bool:
        """Whether a rank has ended."""
        return any(rank.child.process.poll() is not None for rank in self.trainers)

    def control(self, rank: int) -> int:
        """Process id of the daemon that serves a rank."""
        return self._cluster.controls()[rank]

    def engine(self, rank: int) -> int:
        """Process id of the engine that serves a rank. Raises: DaemonUnavailable without one."""
        control = self.control(rank)
        engines = children(control)
        if len(engines) != 1:
            raise DaemonUnavailable(
                f"daemon {control} has {len(engines)} engines, and the drill needs one"
            )
        return engines[0]

    def end(self) -> None:
        """End all ranks."""
        for rank in self.trainers:
            rank.child.stop(signal.SIGKILL)
