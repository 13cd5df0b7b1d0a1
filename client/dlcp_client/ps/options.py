"""The options of a worker: arguments that `register`, `connect` and the embedded server share."""

from dataclasses import dataclass
from pathlib import Path

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import LossPolicy, checked


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How a worker takes part in a job. `dlcp_client.ps.register` describes the fields."""

    policy: LossPolicy  # of pushes
    pulls: LossPolicy  # of the pulls of steps
    staleness: int | None
    refuse_stale: bool
    resume: bool
    job: str | None
    socket: str | None
    config: str | Path | None
    timeout: float  # seconds

    def check_policies(self) -> None:
        """Raises: BadPolicy."""
        checked(self.policy)
        checked(self.pulls)

    def check_staleness(self) -> None:
        """Raises: BadConfig if `staleness` is negative."""
        if self.staleness is not None and self.staleness < 0:
            raise BadConfig(
                f"staleness {self.staleness} is not valid: use None for synchronous training, "
                "or a number of pushes, 0 or more"
            )
