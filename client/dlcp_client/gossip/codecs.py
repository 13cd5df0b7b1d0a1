"""Codecs for the difference between a rank's parameters and its neighbours' estimate of them.

Both ends add the same decoded message to their estimate of the sender's parameters, with equal
bits. Values that a message omits are part of the next difference: nothing is lost for good. Source:
Koloskova, Stich, Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
Communication, ICML 2019 (CHOCO).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from dlcpd.contract.errors import BadConfig, BadMessage


class Codec(Protocol):
    """An encoding of differences."""

    @property
    def step_size(self) -> float:
        """Fraction of the distance to the neighbours' average per step, above 0, at most 1."""

    def message(self, count: int) -> torch.Tensor:
        """An empty message for `count` differences, of the dtype and size of all such messages."""

    def encode(self, differences: torch.Tensor) -> torch.Tensor:
        """The message: of the dtype and size of `message(count)`."""

    def add(self, message: torch.Tensor, estimate: torch.Tensor) -> None:
        """Decode a message and add it to `estimate`."""

    def check(self, message: torch.Tensor, count: int) -> None:
        """Raises: BadMessage if `add` could not take the message for `count` differences."""


@dataclass(frozen=True, slots=True)
class BF16:
    """Differences rounded to bfloat16: half of the bytes."""

    step_size: float = 1.0  # rounding changes a difference by at most 1/256

    def __post_init__(self) -> None:
        _check_fraction("BF16 step_size", self.step_size)

    def message(self, count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.bfloat16)

    def encode(self, differences: torch.Tensor) -> torch.Tensor:
        return rounded(differences, torch.bfloat16)

    def add(self, message: torch.Tensor, estimate: torch.Tensor) -> None:
        _within_range(estimate.add_(message))

    def check(self, message: torch.Tensor, count: int) -> None:
        """Every bfloat16 message is valid."""


@dataclass(frozen=True, slots=True)
class TopK:
    """The largest `fraction` of the differences of each bucket: float32 values, 32-bit positions.

    Bytes: 2 `fraction` of those of float32. `step_size`: by default twice the fraction, at most 1.
    A larger one makes ranks diverge: random differences in rings of 2 to 16 ranks converged with
    twice the fraction, and not all did with three times or more.
    """

    fraction: float = 0.1
    step_size: float = 0.0  # 0: derived from the fraction

    def __post_init__(self) -> None:
        _check_fraction("TopK fraction", self.fraction)
        if self.step_size == 0:
            object.__setattr__(self, "step_size", min(2.0 * self.fraction, 1.0))  # frozen class
        _check_fraction("TopK step_size", self.step_size)

    def message(self, count: int) -> torch.Tensor:
        return torch.empty(2 * self._kept(count), dtype=torch.int32)

    def encode(self, differences: torch.Tensor) -> torch.Tensor:
        """Positions, then the bits of the values."""
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
                f"a neighbour sent positions {low}..{high} in a bucket of {count} values: run "
                "the same version of dlcp_client on all ranks"
            )

    def _kept(self, count: int) -> int:
        return max(1, round(self.fraction * count))


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`values` as `dtype`. A finite value beyond the range becomes the largest finite one."""
    found = values.to(dtype)
    if bool(torch.isfinite(found).all()):
        return found
    top = torch.finfo(dtype).max
    return torch.where(torch.isfinite(values), values.clamp(-top, top), values).to(dtype)


def _within_range(estimate: torch.Tensor) -> None:
    """Clamp an estimate that rounding moved out of range. The next difference corrects it."""
    top = torch.finfo(estimate.dtype).max
    estimate.clamp_(-top, top)


def checked_codec(codec: Any) -> Codec | None:
    """`codec` if it is valid, or None. Raises: BadConfig saying what to write instead."""
    if codec is not None and not isinstance(codec, BF16 | TopK):
        raise BadConfig(
            f"codec {codec!r} is not valid: use BF16() or TopK(0.1) of dlcp_client.gossip"
        )
    return codec


def _check_fraction(what: str, value: Any) -> None:
    if not isinstance(value, int | float) or not 0 < value <= 1:
        raise BadConfig(f"{what}={value!r} is out of range: use a fraction above 0, at most 1")
