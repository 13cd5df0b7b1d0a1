"""The peer's data datagrams that have not come, though later ones of their path and class have."""

from dataclasses import dataclass
from typing import Final

from dlcpd.core.paths.rtt import LEAST_REORDERING

MISTRUST: Final = 1 << 16  # datagrams


@dataclass
class Holes:
    """They are lost, or the network has changed their order."""

    count: int = 0
    _seen_at: float = 0.0  # when the newest of them was seen
    _mistrust: int = 0  # datagrams to come until the order is trusted again

    @property
    def are_losses(self) -> bool:
        """Whether none of the last MISTRUST datagrams came late: reordering is not waited for on a
        path that has shown none (RACK, RFC 8985 section 3.3.2)."""
        return not self._mistrust

    def on_datagrams(self, datagrams: int, more: int, at: float) -> None:
        """`datagrams` came at `at`, and there are `more` holes, or fewer."""
        self.count += more
        self._mistrust = max(self._mistrust - datagrams, 0)
        if more > 0:
            self._seen_at = at
        elif more < 0 and at > self._seen_at + LEAST_REORDERING:  # else they came together
            self._mistrust = MISTRUST
