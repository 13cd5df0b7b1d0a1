"""What a rank sends of the difference between its parameters and what its neighbours know of them.

Both ends add the decoded message to their estimate of the sender's parameters, the same bits, so
what a message left out is part of the next difference: nothing is lost for good.
Source: Koloskova, Stich, Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with
Compressed Communication, ICML 2019 (CHOCO).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dlcpd.contract.errors import BadConfig, BadMessage


class Codec(Protocol):
    """How differences are written down."""

    @property
    def step_size(self) -> float:
        """Share of the way to the neighbours' average that a step goes, above 0, at most 1."""

    def message(self, count: int) -> torch.Tensor:
        """An empty message for `count` differences; all messages for so many are like it."""

    def encode(self, differences: torch.Tensor) -> torch.Tensor:
        """The message: of the dtype and size of `message(count)`."""

    def add(self, message: torch.Tensor, estimate: torch.Tensor) -> None:
        """Add a message, decoded, to `estimate`."""

    def check(self, message: torch.Tensor, count: int) -> None:
        """Raises: BadMessage for what `add` could not take for `count` differences."""


@dataclass(frozen=True, slots=True)
class BF16:
    """Differences rounded to bfloat16: half of the bytes."""

    step_size: float = 1.0  # rounding takes off at most 1/256 of a difference

    def __post_init__(self) -> None:
        _check_fraction("BF16 step_size", self.step_size)

    def message(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.bfloat16)

    def encode(self, differences: torch.Tensor) -> torch.Tensor:
        return rounded(differences, torch.bfloat16)

    def add(self, message: torch.Tensor, estimate: torch.Tensor) -> None:
        _within_range(estimate.add_(message))

    def check(self, message: torch.Tensor, count: int) -> None:
        """Every bfloat16 can be added."""


@dataclass(frozen=True, slots=True)
class TopK:
    """The largest `fraction` of the differences of each bucket, as float32 with 32 bits of place.

    Bytes: 2 `fraction` of those of float32. `step_size`: by default twice the fraction, at most 1.
    One that is too large for the fraction drives ranks apart: random differences in rings of 2 to
    16 ranks came together with twice the fraction, and not all did with three times or more.
    """

    fraction: float = 0.1
    step_size: float = 0.0  # 0: by the fraction

    def __post_init__(self) -> None:
        _check_fraction("TopK fraction", self.fraction)
        if self.step_size == 0:
            object.__setattr__(self, "step_size", min(2.0 * self.fraction, 1.0))  # it is frozen
        _check_fraction("TopK step_size", self.step_size)

    def message(self, count: int) -> torch.Tensor:
        return torch.empty(2 * self._kept(count), dtype=torch.int32)

    def encode(self, differences: torch.Tensor) -> torch.Tensor:
        """Places, then the bits of the values."""
        kept = differences.abs().topk(self._kept(differences.numel()), sorted=False).indices
        places = kept.sort().values
        values = rounded(differences[places], torch.float32)
        return torch.cat([places.to(torch.int32), values.view(torch.int32)])

    def add(self, message: torch.Tensor, estimate: torch.Tensor) -> None:
        places, values = message.chunk(2)
        _within_range(estimate.index_add_(0, places, values.view(torch.float32).to(estimate.dtype)))

    def check(self, message: torch.Tensor, count: int) -> None:
        places, _ = message.chunk(2)
        low, high = (int(end) for end in places.aminmax())
        if low < 0 or high >= count:
            raise BadMessage(
                f"a neighbour's message has places {low}..{high} in a bucket of {count}: is it of "
                f"another version?"
            )

    def _kept(self, count: int) -> int:
        return max(1, round(self.fraction * count))


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """As `dtype`. What is finite stays so: beyond the range it becomes the largest there is."""
    found = values.to(dtype)
    if bool(torch.isfinite(found).all()):
        return found
    top = torch.finfo(dtype).max
    return torch.where(torch.isfinite(values), values.clamp(-top, top), values).to(dtype)


def _within_range(estimate: torch.Tensor) -> None:
    """What codecs round up may be beyond it. The next difference is as much smaller."""
    top = torch.finfo(estimate.dtype).max
    estimate.clamp_(-top, top)


def checked_codec(codec: Any) -> Codec | None:
    """`codec`, if it is one. Raises: BadConfig saying what to write instead."""
    if codec is not None and not isinstance(codec, BF16 | TopK):
        raise BadConfig(f"codec {codec!r}: write BF16() or TopK(0.1), of dlcp_client.gossip")
    return codec


def _check_fraction(what: str, value: Any) -> None:
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadConfig(f"{what}={value!r}: a fraction above 0, at most 1")
