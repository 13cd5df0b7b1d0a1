"""Totals of all ranks, gathered by a call of all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import torch

from dlcp_client.group import Group
from dlcp_client.report.totals import Totals
from dlcpd.contract.policy import exact

DEADLINE: Final = 30.0  # seconds for the last rank to make the call


@dataclass(frozen=True, slots=True)
class RankTotals:
    """By rank: segments of bounded operations sent and waived; seconds of waiting per step."""

    sent: Sequence[float]
    waived: Sequence[float]
    waits: Sequence[float]

    @classmethod
    def gather(cls, group: Group[Any], totals: Totals) -> Self:
        """Every rank of `group` calls it. Raises: the error of the all-gather."""
        bounded = totals.bounded
        own = torch.tensor([bounded.sent, bounded.waived, totals.wait], dtype=torch.float64)
        rows = torch.empty((group.size, len(own)), dtype=torch.float64)
        group.all_gather(rows, own, policy=exact(deadline=DEADLINE)).wait()
        return cls(*rows.T.tolist())

    def text(self, *, waits: bool) -> str:
        """The totals as one line."""
        losses = [lost / max(sent, 1) for lost, sent in zip(self.waived, self.sent, strict=True)]
        whole = sum(self.waived) / max(sum(self.sent), 1)
        worst = max(range(len(losses)), key=losses.__getitem__)
        line = f"all {len(losses)} ranks: {whole:.3%} waived"
        if whole:
            line += f", most by rank {worst} ({losses[worst]:.3%})"
        if waits:
            longest = max(range(len(self.waits)), key=self.waits.__getitem__)
            line += f"; longest wait {self.waits[longest] * 1e3:.3g} ms a step, on rank {longest}"
        return line
