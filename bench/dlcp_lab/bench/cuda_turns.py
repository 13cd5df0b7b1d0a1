"""Transports take turns: a call of each in every round, and one verdict of all ranks. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from dlcpd.contract.errors import DlcpError

T = TypeVar("T")

FIGURES: Final = ("step", "p99", "compute", "alone", "hidden")  # of a row

Agree = Callable[[str], str]  # a collective: the reason of the lowest rank that gives one, or ""
# torch's and NCCL's errors are RuntimeErrors.
FAILURES: Final = (DlcpError, RuntimeError, ValueError, OSError)


@dataclass(slots=True)
class MeasuredTransport:
    """One transport: its calls by name, the seconds of each, and why it is not measured."""

    transport: str
    calls: Mapping[str, Callable[[], float]] = field(default_factory=dict)  # seconds of a call
    times: dict[str, list[float]] = field(default_factory=dict)
    reason: str = ""  # equal on all ranks; empty: the transport is measured


def take_turns(
    lanes: Sequence[MeasuredTransport], agree: Agree, *, warmup: int, rounds: int
) -> None:
    """Fill `times` of every lane. Each round begins with another lane.

    The calls of the first `warmup` rounds do not count. A lane whose call fails on a rank has a
    `reason` from then on, and all ranks leave it out.
    """
    for number in range(warmup + rounds):
        for lane in _rotated(lanes, number):
            for name in lane.calls:
                seconds = _call(lane, name, agree)
                if seconds is None:
                    break
                if number >= warmup:
                    lane.times.setdefault(name, []).append(seconds)


def attempt(lane: MeasuredTransport, call: Callable[[], T], agree: Agree) -> T | None:
    """The value of `call`; None with a `reason` if it failed on any rank."""
    value, reason = None, ""
    try:
        value = call()
    except FAILURES as exc:
        reason = f"{type(exc).__name__}: {exc}".splitlines()[0]
    lane.reason = agree(reason)
    return None if lane.reason else value


def _call(lane: MeasuredTransport, name: str, agree: Agree) -> float | None:
    return None if lane.reason else attempt(lane, lane.calls[name], agree)


def _rotated(lanes: Sequence[MeasuredTransport], number: int) -> Iterator[MeasuredTransport]:
    first = number % len(lanes)
    yield from lanes[first:]
    yield from lanes[:first]
