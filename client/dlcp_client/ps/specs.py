"""The optimizers of the servers, and their settings: plain numbers that are sent with each push.

Settings are per parameter group, so a learning-rate schedule of the workers takes effect as with a
local optimizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dlcpd.contract.errors import BadConfig

_ADAPTIVE: Final = ("lr", "beta1", "beta2", "eps", "weight_decay")
FIELDS: Final = {  # by kind: the settings of a group, in the order of the message
    "sgd": ("lr", "momentum", "dampening", "weight_decay", "nesterov"),
    "adam": _ADAPTIVE,
    "adamw": _ADAPTIVE,
    "lamb": _ADAPTIVE,
}
_BELOW_ONE: Final = frozenset({"beta1", "beta2"})

Settings = tuple[float, ...]  # of one group, in the order of FIELDS


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """An optimizer of the servers: a kind of FIELDS, with settings for each parameter group.

    Raises: BadConfig naming the setting that is out of range.
    """

    kind: str
    groups: tuple[Settings, ...]

    def __post_init__(self) -> None:
        if self.kind not in FIELDS:
            raise BadConfig(
                f"optimizer {self.kind!r} is not known: the servers have {', '.join(FIELDS)}"
            )
        for settings in self.groups:
            check_settings(self.kind, settings)


def check_settings(kind: str, settings: Sequence[float]) -> None:
    """Raises: BadConfig for settings that are invalid for this kind."""
    named = dict(zip(FIELDS[kind], settings, strict=True))
    for name, value in named.items():
        most = 1.0 if name in _BELOW_ONE else float("inf")
        if not 0 <= value < most:
            raise BadConfig(
                f"{kind} {name}={value!r} is out of range: use a number from 0, below {most:g}"
            )
    if named.get("nesterov") and (not named["momentum"] or named["dampening"]):
        raise BadConfig(f"{kind}: nesterov needs momentum above 0 and dampening 0")


def _spec(kind: str, *settings: Any) -> OptimizerSpec:
    try:
        return OptimizerSpec(kind, (tuple(float(value) for value in settings),))
    except (TypeError, ValueError) as exc:
        raise BadConfig(f"{kind}: settings are numbers, not {settings!r}") from exc


def sgd(
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    *,
    nesterov: bool = False,
) -> OptimizerSpec:
    """As torch.optim.SGD."""
    return _spec("sgd", lr, momentum, dampening, weight_decay, nesterov)


def adam(
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> OptimizerSpec:
    """As torch.optim.Adam."""
    return _spec("adam", lr, *betas, eps, weight_decay)


def adamw(
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> OptimizerSpec:
    """As torch.optim.AdamW."""
    return _spec("adamw", lr, *betas, eps, weight_decay)


def lamb(
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-6,
    weight_decay: float = 0.0,
) -> OptimizerSpec:
    """LAMB: Adam whose update of each tensor has the norm of the tensor, times `lr`.

    Source: You et al., Large Batch Optimization for Deep Learning, ICLR 2020, algorithm 2.
    """
    return _spec("lamb", lr, *betas, eps, weight_decay)
