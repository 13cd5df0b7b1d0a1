"""Torch's random operations as functions of random bits, which do not depend on the mesh."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from .random_bits import DIGITS, bits

aten = torch.ops.aten
LARGEST: Final = 1 << DIGITS


def random_numbers() -> dict[Any, Callable[..., Any]]:
    """Decompositions for one capture: its calls are numbered. Calls with a generator have none:
    every rank would have another one."""
    draw = Draws()
    made: dict[Any, Callable[..., Any]] = {
        aten.native_dropout.default: draw.dropout,
        aten.rand.default: draw.rand,
        aten.randn.default: draw.randn,
        aten.rand_like.default: lambda x, **o: draw.rand(x.shape, **_like(x, o)),
        aten.randn_like.default: lambda x, **o: draw.randn(x.shape, **_like(x, o)),
        aten.randint.default: lambda high, size, **o: draw.randint(0, high, size, **o),
        aten.randint.low: draw.randint,
        aten.randint_like.default: lambda x, high, **o: draw.randint(
            0, high, x.shape, **_like(x, o)
        ),
        aten.randint_like.low_dtype: lambda x, low, high, **o: draw.randint(
            low, high, x.shape, **_like(x, o)
        ),
        aten.randperm.default: draw.randperm,
        aten.bernoulli.default: draw.bernoulli,
        aten.bernoulli.p: draw.bernoulli_p,
        aten.bernoulli.Tensor: lambda x, p: draw.bernoulli(p.expand(x.shape).to(x.dtype)),
        aten.uniform.default: draw.uniform,
        aten.normal_functional.default: draw.normal_like,
        aten.normal.Tensor_float: draw.normal,
        aten.normal.float_Tensor: draw.normal,
        aten.normal.Tensor_Tensor: draw.normal,
        aten.normal.float_float: lambda mean, std, size, **o: draw.randn(size, **o) * std + mean,
        aten.exponential.default: draw.exponential,
        aten.multinomial.default: draw.multinomial,
        aten.rrelu_with_noise_functional.default: draw.rrelu,
    }
    return {operation: _without_generator(one) for operation, one in made.items()}


def _without_generator(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    def of(*args: Any, generator: Any = None, **options: Any) -> Any:
        return NotImplemented if generator is not None else decomposition(*args, **options)

    return of


def _like(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a tensor like `x`."""
    return {**options, "dtype": options.get("dtype") or x.dtype}


class Draws:
    """The calls of one capture. NotImplemented: torch's own operation is kept."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def _bits(self, shape: Sequence[int]) -> Tensor:
        drawn: Tensor = bits(list(shape), next(self._numbers))
        return drawn

    def _rand(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """In [0, 1): as many bits as `dtype` has digits, so that none is rounded up to 1."""
        digits = min(DIGITS, 1 - round(math.log2(torch.finfo(dtype).eps)))
        return (self._bits(shape) >> (DIGITS - digits)).to(dtype) * 2.0**-digits

    def _log(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Logarithms of numbers in (0, 1), as torch's own: a logarithm of 0 follows them in noise
        of Gumbel. Half precision would round most of them alike."""
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        found = ((self._bits(shape) + 1).to(wide) * 2.0**-DIGITS).log()
        return found.clamp(max=-torch.finfo(wide).eps / 2)

    def dropout(self, x: Tensor, p: float, train: bool | None = True) -> Any:
        if train is False or not p:
            return x.clone(), torch.ones_like(x, dtype=torch.bool)
        mask = self._bits(x.shape) >= int(p * LARGEST)
        return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask

    def rand(self, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        return self._rand(size, dtype or torch.get_default_dtype())

    def randn(self, size: Sequence[int], *, dtype: torch.dtype | None = None, **_: Any) -> Any:
        """By Box and Muller (1958)."""
        dtype = dtype or torch.get_default_dtype()
        if dtype.is_complex:
            return NotImplemented
        length = (-2.0 * self._log(size, dtype)).sqrt()
        turn = self._rand(size, length.dtype) * (2 * math.pi)
        return (length * turn.cos()).to(dtype)

    def randint(
        self,
        low: int,
        high: int,
        size: Sequence[int],
        *,
        dtype: torch.dtype | None = torch.int64,
        **_: Any,
    ) -> Any:
        """All numbers are equally likely where `high - low` divides 2^31; else their
        probabilities differ by one part in 2^31 / (high - low)."""
        if not 0 < high - low <= LARGEST:
            return NotImplemented
        return (self._bits(size).remainder(high - low) + low).to(dtype or torch.int64)

    def randperm(self, n: int, *, dtype: torch.dtype | None = torch.int64, **_: Any) -> Tensor:
        return self._bits([n]).sort().indices.to(dtype or torch.int64)

    def bernoulli(self, p: Tensor) -> Tensor:
        return (self._rand(p.shape, p.dtype) < p).to(p.dtype)

    def bernoulli_p(self, x: Tensor, p: float = 0.5) -> Tensor:
        return (self._bits(x.shape) < int(p * LARGEST)).to(x.dtype)

    def rrelu(
        self, x: Tensor, noise: Tensor, low: float = 1 / 8, high: float = 1 / 3, train: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The result, and the factors."""
        if not train:
            return aten.leaky_relu(x, (low + high) / 2), noise
        factors = torch.where(x <= 0, self.uniform(x, low, high), 1.0)
        return x * factors, factors

    def uniform(self, x: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
        return self._rand(x.shape, x.dtype) * (high - low) + low

    def normal_like(self, x: Tensor, mean: Any = 0.0, std: Any = 1.0) -> Tensor:
        drawn: Tensor = self.randn(x.shape, dtype=x.dtype) * std + mean
        return drawn

    def normal(self, mean: Any = 0.0, std: Any = 1.0) -> Tensor:
        both = [one for one in (mean, std) if isinstance(one, Tensor)]
        like = both[0] + both[-1]  # has the shape of both
        return self.normal_like(like, mean, std)

    def exponential(self, x: Tensor, rate: float = 1.0) -> Tensor:
        return (-self._log(x.shape, x.dtype) / rate).to(x.dtype)

    def multinomial(self, weights: Tensor, count: int, replacement: bool = False) -> Tensor:
        """With replacement by the inverse of the distribution, else by the largest of logarithms
        with noise of Gumbel (Efraimidis and Spirakis, 2006)."""
        if not replacement:
            noise = -(-self._log(weights.shape, weights.dtype)).log()
            return (weights.log() + noise).topk(count).indices
        up_to = weights.cumsum(-1)
        drawn = self._rand([*weights.shape[:-1], count], weights.dtype) * up_to[..., -1:]
        return torch.searchsorted(up_to, drawn, right=True).clamp(max=weights.shape[-1] - 1)
