"""Whether gradients of a size go through dlcpd or the framework's backend: a pure rule.

It sees only times that all ranks have agreed on, so all ranks choose alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final, Literal, get_args

from dlcpd.contract.errors import BadConfig

Transport = Literal["dlcp", "auto", "backend"]  # what a user may ask for
Way = Literal["dlcp", "backend"]  # what a bucket may take

TOLERANCE: Final = 0.05  # fraction; differences within it are noise, and change no choice
SHARE: Final = 0.01  # fraction of the steps' time that calibrations may cost
MIN_PAUSE: Final = 100  # steps between calibrations where the ways hardly differ


@dataclass(frozen=True, slots=True)
class Times:
    """What the same thing took by each way, in seconds: on the slowest rank."""

    dlcp: float
    backend: float

    @property
    def apart(self) -> float:
        """Seconds that the slower way takes more."""
        return abs(self.dlcp - self.backend)

    def __str__(self) -> str:
        return f"dlcp {self.dlcp * 1e3:.3g} ms, backend {self.backend * 1e3:.3g} ms"


@dataclass(frozen=True, slots=True)
class Choice:
    """Where buckets of one size go. The times are from the bucket's end in the backward pass to its
    average, while buckets of all sizes took that way."""

    size: int  # bytes
    times: Times
    chosen: Way

    def __str__(self) -> str:
        return f"{self.size} B: {self.times}: {self.chosen}"


@dataclass(frozen=True, slots=True)
class Transports:
    """What was decided last, equal on all ranks; `print` shows it. Empty: nothing yet."""

    step: int = 0  # backward passes begun when it was decided
    whole: Times = Times(0.0, 0.0)  # of a training step whose buckets all took one way
    sizes: tuple[Choice, ...] = ()  # by size, ascending
    mixed: float = 0.0  # seconds of a step with these very choices; 0: they are all the same

    @property
    def ways(self) -> set[Way]:
        """Those that are in use."""
        return {one.chosen for one in self.sizes}

    def of(self, size: int) -> Way:
        """Where a bucket of `size` bytes goes. What was never measured goes by the backend."""
        return next((one.chosen for one in self.sizes if one.size == size), "backend")

    def __str__(self) -> str:
        if not self.sizes:
            return "nothing decided yet: all by the backend"
        rows = "; ".join(map(str, self.sizes))
        so = f", as chosen {self.mixed * 1e3:.3g} ms" if self.mixed else ""
        return f"since step {self.step}: {rows}; a step took {self.whole}{so}"


def checked_transport(transport: Any) -> Transport:
    """`transport`, if it is one. Raises: BadConfig."""
    for known in get_args(Transport):
        if transport == known:
            return known  # type: ignore[no-any-return]
    raise BadConfig(f'transport {transport!r}: use "dlcp", "auto" or "backend"')


def decide(step: int, whole: Times, by_size: Mapping[int, Times], before: Transports) -> Transports:
    """What each size takes from `step` on.

    A size leaves the backend only for what is faster by more than TOLERANCE, and leaves dlcpd only
    for what is. A bucket's own times do not show what the daemon takes from the computation, so
    the step is asked as well: everything goes by the backend where whole steps are slower through
    dlcpd, by more than TOLERANCE if dlcpd is in use.
    """
    chosen = {size: _faster(times, before.of(size)) for size, times in by_size.items()}
    if whole.dlcp > whole.backend * (1 + TOLERANCE if "dlcp" in before.ways else 1):
        chosen = dict.fromkeys(chosen, "backend")
    rows = tuple(Choice(size, by_size[size], chosen[size]) for size in sorted(by_size))
    return Transports(step, whole, rows)


def settle(step: int, tried: Transports, mixed: float) -> Transports:
    """What follows when steps in which sizes took different ways took `mixed` seconds.

    They stay so, unless steps by the backend were faster, or those through dlcpd by more than
    TOLERANCE: ways that share a link are not as fast together as each is by itself. Then all take
    the faster way.
    """
    whole = tried.whole
    if mixed <= min(whole.dlcp * (1 + TOLERANCE), whole.backend):
        return replace(tried, step=step, mixed=mixed)
    best: Way = "dlcp" if whole.dlcp < whole.backend else "backend"
    rows = tuple(replace(one, chosen=best) for one in tried.sizes)
    return replace(tried, step=step, sizes=rows)


def pause(whole: Times, each: int) -> int:
    """Steps from one calibration to the next, so that calibrations cost SHARE of the time.

    A calibration of `each` steps each way costs what those of the slower way take longer.
    """
    shortest = min(whole.dlcp, whole.backend)
    cost = each * whole.apart / shortest if shortest else 0.0  # in steps
    return max(MIN_PAUSE, ceil(cost / SHARE))


def _faster(times: Times, now: Way) -> Way:
    if now == "dlcp":
        return "dlcp" if times.dlcp <= times.backend * (1 + TOLERANCE) else "backend"
    return "dlcp" if times.dlcp < times.backend * (1 - TOLERANCE) else "backend"
