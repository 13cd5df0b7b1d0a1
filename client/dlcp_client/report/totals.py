"""Totals of one registration, and the scalars for a logger that follow from them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dlcp_client.operations.ledger import Ledger
from dlcp_client.report.exchange_times import ExchangeComparison


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals of this rank, from `register` on, or between two moments: see `since`."""

    steps: int = 0  # number begun
    handed_bytes: int = 0  # handed to dlcpd
    bounded_bytes: int = 0  # of them under a bounded policy
    waited: float = 0.0  # seconds that the training waited for gradients
    whole_steps: int = 0  # steps of known duration: from the beginning of one to the next
    whole: float = 0.0  # seconds of those steps
    session: Ledger = field(default_factory=Ledger)  # all operations of the session
    by_name: Mapping[str, Ledger] = field(default_factory=dict)  # bounded operations
    # Bounded steps against exact ones, so far; None: nothing was compared.
    exchange: ExchangeComparison | None = None

    def since(self, earlier: "Totals") -> "Totals":
        """The totals since `earlier`."""
        names = {
            name: ledger.minus(earlier.by_name.get(name, Ledger()))
            for name, ledger in self.by_name.items()
        }
        return Totals(
            self.steps - earlier.steps,
            self.handed_bytes - earlier.handed_bytes,
            self.bounded_bytes - earlier.bounded_bytes,
            self.waited - earlier.waited,
            self.whole_steps - earlier.whole_steps,
            self.whole - earlier.whole,
            self.session.minus(earlier.session),
            {name: ledger for name, ledger in names.items() if ledger.operations},
            self.exchange,
        )

    @property
    def bounded(self) -> Ledger:
        """The sum of all bounded operations."""
        rows = list(self.by_name.values())
        return Ledger(
            sum(row.operations for row in rows),
            sum(row.sent for row in rows),
            sum(row.retransmitted for row in rows),
            sum(row.waived for row in rows),
            sum(row.reapplied for row in rows),
            sum(row.lost for row in rows),
            sum(row.energy for row in rows),
        )

    @property
    def loss(self) -> float:
        """Waived fraction of the segments of bounded operations."""
        return loss_of(self.bounded)

    @property
    def energy_lost(self) -> float:
        """Waived fraction of a bounded contribution's sum of squares: the mean over operations."""
        bounded = self.bounded
        return bounded.energy / bounded.operations if bounded.operations else 0.0

    @property
    def wait(self) -> float:
        """Seconds that a step waited for gradients, on average."""
        return self.waited / self.steps if self.steps else 0.0

    @property
    def step(self) -> float:
        """Seconds from one step to the next, on average; 0: unknown."""
        return self.whole / self.whole_steps if self.whole_steps else 0.0

    def scalars(self, *, waits: bool, network: bool) -> dict[str, Any]:
        """Scalars by name, for a logger. `waits`: whether waits are measured. `network`: whether a
        session's operations count."""
        found: dict[str, Any] = {"steps": self.steps, "bytes": self.handed_bytes}
        if network:
            bounded = self.bounded
            found |= {
                "bounded_bytes": self.bounded_bytes,
                "operations": self.session.operations,
                "segments": self.session.sent,
                "retransmitted": self.session.retransmitted,
                "waived": bounded.waived,
                "reapplied": self.session.reapplied,
                "loss": self.loss,
                "energy_lost": self.energy_lost,
            }
            if self.exchange is not None and self.exchange.enough:
                found["exchange_saved"] = self.exchange.saved
        if waits:
            found["exposed_s"] = self.wait
        if self.whole_steps:
            found["step_s"] = self.step
        return found


def loss_of(bounded: Ledger) -> float:
    """Waived fraction of the segments."""
    return bounded.waived / bounded.sent if bounded.sent else 0.0
