"""Compares the rates that hosts tell with measured ones."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dlcpd.planning.rates import in_words
from dlcpd.schedules.network import HostCapacity

FACTOR: Final = 10  # a claim of ten times the measured rate is a mistake, not a busy network
_WHAT: Final = {
    "out_bps": "{} sends",
    "in_bps": "{} receives",
    "up_bps": "the rack of {} sends",
    "down_bps": "the rack of {} receives",
}


def corrected(
    told: Sequence[tuple[str, HostCapacity]], measured: Mapping[str, HostCapacity]
) -> tuple[list[tuple[str, HostCapacity]], str]:
    """`told` with the measured rates where the claims are FACTOR times as high, and one message
    that names the first of them, or "". A rail of a host keeps its part of the host's rate."""
    found, wrong = list[tuple[str, HostCapacity]](), list[str]()
    for host, claim in told:
        changed: dict[str, Any] = {}
        for field, words in _WHAT.items():
            said, rate = getattr(claim, field), getattr(measured.get(host), field, 0)
            most, rate = _sum(said), _sum(rate)
            if 0 < rate * FACTOR <= most:
                rails = isinstance(said, tuple)
                changed[field] = tuple(max(r * rate // most, 1) for r in said) if rails else rate
                both = f"{in_words(rate)} as measured, and {in_words(most)} as told"
                wrong.append(f"{words.format(repr(host))} {both}")
        found.append((host, claim._replace(**changed)))
    if not wrong:
        return found, ""
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return found, f"{wrong[0]}{more}: measured rates are used; correct the topology files"


def _sum(rate: int | tuple[int, ...]) -> int:
    return sum(rate) if isinstance(rate, tuple) else rate
