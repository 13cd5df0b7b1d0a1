"""Exchanged parameters as a few flat buckets, and the checks of a model's parameters."""

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from dlcpd.contract.errors import BadConfig, BadTensor

LEAST_BYTES: Final = 4 << 20  # a smaller bucket has more overhead than transfer
# A bucket has at most 1/32 of the model, or one larger parameter. Two consecutive buckets together
# exceed 1/32, or they would be one: so there are at most 2 x 32 and one per dtype, 68. With two
# neighbours that is 272 messages both ways per step. A session holds 512 (session.MAX_HELD), so the
# receives of a step always fit.
PARTS: Final = 32
FLOATS: Final = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPILED: Final = "_orig_mod."  # part of names in the result of torch.compile(module)


class Bucket:
    """Parameters of one dtype. `flat` is a copy of them, valid between `pack` and `unpack`."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.count = sum(p.numel() for p in self.parameters)
        dtype = self.parameters[0].dtype
        self.flat = torch.empty(self.count, dtype=dtype)
        # Averages of float16 and bfloat16 are computed in float32 and rounded once.
        self.computed_in = torch.float64 if dtype is torch.float64 else torch.float32
        parts = torch.split(self.flat, [p.numel() for p in self.parameters])
        self._views = [v.view(p.shape) for v, p in zip(parts, self.parameters, strict=True)]

    @torch.no_grad()
    def pack(self) -> torch.Tensor:
        """Copy the parameters to `flat`. Returns `flat`."""
        for view, parameter in zip(self._views, self.parameters, strict=True):
            view.copy_(parameter)
        return self.flat

    @torch.no_grad()
    def unpack(self) -> None:
        """Copy `flat` to the parameters."""
        for view, parameter in zip(self._views, self.parameters, strict=True):
            parameter.copy_(view)


class Buckets:
    """All trainable parameters of a model, and a check that they are unchanged."""

    def __init__(self, model: nn.Module) -> None:
        """Raises: BadConfig, BadTensor for a model whose parameters cannot be averaged."""
        check_model(model)
        self.model = model
        self._registered = [(p, _kind(p)) for p in _trainable(model)]
        self.all = tuple(Bucket(run) for run in _cut([p for p, _ in self._registered]))

    def check(self) -> None:
        """Raises: BadConfig if parameters were replaced, added, frozen or changed in shape or
        dtype."""
        now = list(_trainable(self.model))
        same = len(now) == len(self._registered) and all(
            p is known and _kind(p) == kind
            for p, (known, kind) in zip(now, self._registered, strict=True)
        )
        if not same:
            raise BadConfig(
                "the trainable parameters of the model have changed since register: "
                f"{self._difference(now)}; on every rank, close the registration before such a "
                "change, and register again after it"
            )

    def fingerprint(self) -> tuple[int, int, int]:
        """Number of parameters, number of elements, and a hash of names, shapes and dtypes (of
        buffers, too). Equal on two ranks whose models can be averaged."""
        text = [f"{name.replace(COMPILED, '')} {_kind(t)}" for name, t in state(self.model)]
        count = sum(bucket.count for bucket in self.all)
        return len(self._registered), count, digest("\n".join(text))

    def _difference(self, now: Sequence[nn.Parameter]) -> str:
        if len(now) != len(self._registered):
            return f"{len(now)}, and register found {len(self._registered)}"
        names = {id(p): name for name, p in self.model.named_parameters()}
        for p, (known, kind) in zip(now, self._registered, strict=True):
            if p is not known:
                return f"{names[id(p)]!r} is another object"
            if _kind(p) != kind:
                return f"{names[id(p)]!r} is {_kind(p)}, and register found {kind}"
        return "nothing"


def state(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Name and tensor of every parameter and buffer, each once."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def digest(text: str) -> int:
    """A hash that is equal in every process, as a non-negative int64."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def check_model(model: Any) -> None:
    """Raises: BadConfig, BadTensor naming the part that cannot be averaged with neighbours."""
    if not isinstance(model, nn.Module):
        raise BadConfig(f"register takes a torch.nn.Module, not {type(model).__name__}")
    for module in model.modules():
        if isinstance(module, DistributedDataParallel | FSDPModule):
            raise BadConfig(
                f"{type(module).__name__} averages gradients over all ranks: register the "
                "plain module"
            )
    for name, parameter in model.named_parameters():
        if problem := _problem(parameter):
            raise BadTensor(f"parameter {name!r} {problem}")
    if not any(p.numel() for p in _trainable(model)):
        raise BadConfig("the model has no trainable parameter: gossip has nothing to average")


def _problem(parameter: nn.Parameter) -> str:
    if type(parameter) is not nn.Parameter or type(parameter.data) is not torch.Tensor:
        return f"is a {type(parameter).__name__}: gossip averages plain parameters only"
    if parameter.layout is not torch.strided:
        return f"is sparse ({parameter.layout}): use a dense parameter"
    if parameter.device.type != "cpu":
        return f"is on {parameter.device}: gossip averages parameters on the CPU only"
    if parameter.requires_grad and parameter.dtype not in FLOATS:
        known = ", ".join(str(one).removeprefix("torch.") for one in FLOATS)
        return f"is {parameter.dtype}: gossip averages {known}"
    return ""


def _trainable(model: nn.Module) -> Iterator[nn.Parameter]:
    return (p for p in model.parameters() if p.requires_grad)


def _kind(tensor: torch.Tensor) -> tuple[tuple[int, ...], str]:
    return tuple(tensor.shape), str(tensor.dtype)


def _cut(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Runs of one dtype, in the order of the model, of about equal bytes."""
    limit = max(LEAST_BYTES, math.ceil(sum(p.nbytes for p in parameters) / PARTS))
    runs: list[list[nn.Parameter]] = []
    for dtype in FLOATS:
        filled = limit
        for parameter in (p for p in parameters if p.dtype is dtype and p.numel()):
            if filled + parameter.nbytes > limit:
                runs.append([])
                filled = 0
            runs[-1].append(parameter)
            filled += parameter.nbytes
    return runs
