"""Chooses dlcpd or the framework's backend by gradient size: a pure rule.

It uses only times that all ranks have agreed on, so all ranks choose alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final, Literal, get_args

from dlcpd.contract.errors import BadConfig

Transport = Literal["dlcp", "auto", "backend"]  # option of the user
Way = Literal["dlcp", "backend"]  # transport of a bucket

TOLERANCE: Final = 0.05  # fraction; smaller differences are noise, and change no choice
SHARE: Final = 0.01  # fraction of the steps' time that calibrations may cost
MIN_PAUSE: Final = 100  # steps between calibrations if the transports hardly differ


@dataclass(frozen=True, slots=True)
class TransportTimes:
    """Seconds by each transport, on the slowest rank."""

    dlcp: float
    backend: float

    @property
    def apart(self) -> float:
        """Difference in seconds."""
        return abs(self.dlcp - self.backend)

    def __str__(self) -> str:
        return f"dlcp {self.dlcp * 1e3:.3g} ms, backend {self.backend * 1e3:.3g} ms"


@dataclass(frozen=True, slots=True)
class TransportChoice:
    """The transport of buckets of one size. The times are from the bucket's completion in the
    backward pass to its average, while buckets of all sizes used that transport."""

    size: int  # bytes
    times: TransportTimes
    chosen: Way

    def __str__(self) -> str:
        return f"{self.size} B: {self.times}: {self.chosen}"


@dataclass(frozen=True, slots=True)
class Transports:
    """The last decision, equal on all ranks; `print` shows it. Empty: none yet."""

    step: int = 0  # number of backward passes begun before the decision
    whole: TransportTimes = TransportTimes(
        0.0, 0.0
    )  # of a training step whose buckets all used one transport
    sizes: tuple[TransportChoice, ...] = ()  # by size, ascending
    mixed: float = 0.0  # seconds of a step with these choices; 0: all use one transport

    @property
    def ways(self) -> set[Way]:
        """The transports in use."""
        return {one.chosen for one in self.sizes}

    def of(self, size: int) -> Way:
        """The transport of a bucket of `size` bytes. Unmeasured sizes use the backend."""
        return next((one.chosen for one in self.sizes if one.size == size), "backend")

    def __str__(self) -> str:
        if not self.sizes:
            return "no decision yet: the backend averages all gradients"
        rows = "; ".join(map(str, self.sizes))
        so = f", with these choices {self.mixed * 1000.0:.3g} ms" if self.mixed else ""
        return f"since step {self.step}: {rows}; a step took {self.whole}{so}"


def checked_transport(transport: Any) -> Transport:
    """`transport`, if it is valid. Raises: BadConfig."""
    for known in get_args(Transport):
        if transport == known:
            return known  # type: ignore[no-any-return]  # get_args returns Any
    raise BadConfig(f'transport {transport!r}: use "dlcp", "auto" or "backend"')


def decide(
    step: int, whole: TransportTimes, by_size: Mapping[int, TransportTimes], before: Transports
) -> Transports:
    """The transport of each size from `step` on.

    A size changes its transport only for one that is faster by more than TOLERANCE. A bucket's time
    does not include the CPU time that the daemon takes from the computation, so the step's time
    counts, too: all sizes use the backend if whole steps are slower with dlcpd, by more than
    TOLERANCE if dlcpd is in use.
    """
    chosen = {size: _faster(times, before.of(size)) for size, times in by_size.items()}
    if whole.dlcp > whole.backend * (1 + TOLERANCE if "dlcp" in before.ways else 1):
        chosen = dict.fromkeys(chosen, "backend")
    rows = tuple(TransportChoice(size, by_size[size], chosen[size]) for size in sorted(by_size))
    return Transports(step, whole, rows)


def settle(step: int, tried: Transports, mixed: float) -> Transports:
    """The decision after steps with different transports took `mixed` seconds.

    They are kept, unless steps by the backend were faster, or those by dlcpd by more than
    TOLERANCE: transports that share a link are slower together than alone. Then all sizes use the
    faster one.
    """
    whole = tried.whole
    if mixed <= min(whole.dlcp * (1 + TOLERANCE), whole.backend):
        return replace(tried, step=step, mixed=mixed)
    best: Way = "dlcp" if whole.dlcp < whole.backend else "backend"
    rows = tuple(replace(one, chosen=best) for one in tried.sizes)
    return replace(tried, step=step, sizes=rows)


def pause(whole: TransportTimes, each: int) -> int:
    """Steps from one calibration to the next, so that calibrations cost SHARE of the time.

    A calibration has `each` steps per transport; its cost is the extra time of the slower one.
    """
    shortest = min(whole.dlcp, whole.backend)
    cost = each * whole.apart / shortest if shortest else 0.0  # in steps
    return max(MIN_PAUSE, ceil(cost / SHARE))


def _faster(times: TransportTimes, now: Way) -> Way:
    if now == "dlcp":
        return "dlcp" if times.dlcp <= times.backend * (1 + TOLERANCE) else "backend"
    return "dlcp" if times.dlcp < times.backend * (1 - TOLERANCE) else "backend"
