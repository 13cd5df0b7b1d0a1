"""Layers of a model that may be alike: modules of one class in one container, whose parameters and
buffers have the same names and shapes, and belong to nothing else."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

from torch import Tensor, nn

FEWEST: Final = 3  # layers for which it pays to prove that they are alike
CONTAINERS: Final = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
PLAIN: Final = (Tensor, nn.Parameter, nn.Buffer)


class Holder(NamedTuple):
    """Where a module keeps parameters or buffers. `names`: in the layer, by that in the module;
    None: a layer without a bias has one of that."""

    module: nn.Module
    kind: str
    names: dict[str, str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """`name`: of the module in the model; `tensors`: its parameters and buffers by name in it;
    `form`: what layers must have in common to be compared."""

    name: str
    module: nn.Module
    tensors: dict[str, Tensor]
    holders: tuple[Holder, ...]
    form: Any


def layers_of(model: nn.Module) -> list[Layer]:
    """Those that have at least `FEWEST - 1` others of their form beside them; of layers within
    layers, the outer ones."""
    owners = Counter(map(id, own_tensors(model).values()))
    found: list[Layer] = []
    _find(model, "", owners, found)
    return found


def _find(module: nn.Module, name: str, owners: Counter[int], found: list[Layer]) -> None:
    children = {
        f"{name}.{last}" if name else last: child for last, child in module.named_children()
    }
    taken: list[Layer] = []
    if isinstance(module, CONTAINERS):
        by_form = defaultdict(list)
        for full, child in children.items():
            layer = _layer(full, child, owners)
            if layer is not None:
                by_form[layer.form].append(layer)
        taken = [one for some in by_form.values() if len(some) >= FEWEST for one in some]
    found += taken
    names = {one.name for one in taken}
    for full, child in children.items():
        if full not in names:
            _find(child, full, owners, found)


def _layer(name: str, module: nn.Module, owners: Counter[int]) -> Layer | None:
    """None: one operation is no layer, and tensors of other modules are no layer's own."""
    tensors = own_tensors(module)
    simple = not any(True for _ in module.children())
    if simple or not tensors or "forward" in vars(module):
        return None
    if any(owners[id(one)] > 1 or type(one) not in PLAIN for one in tensors.values()):
        return None
    form = (
        type(module),
        tuple(
            (last, type(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad)
            for last, x in tensors.items()
        ),
    )
    holders = [
        Holder(sub, kind, _names(vars(sub)[kind], f"{prefix}." if prefix else ""))
        for prefix, sub in module.named_modules()
        for kind in ("_parameters", "_buffers")
        if vars(sub)[kind]
    ]
    return Layer(name, module, tensors, tuple(holders), form)


def _names(held: Mapping[str, Tensor | None], prefix: str) -> dict[str, str | None]:
    return {last: None if x is None else prefix + last for last, x in held.items()}


def _named(of: Callable[..., Iterator[tuple[str, Tensor]]]) -> Iterator[tuple[str, Tensor]]:
    return of(remove_duplicate=False)


def own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters, then buffers, as torch orders the inputs of a graph."""
    return dict(chain(_named(module.named_parameters), _named(module.named_buffers)))


def tensors_of(model: nn.Module, layers: Sequence[Layer]) -> dict[str, Tensor]:
    """The parameters and buffers that belong to none of the layers."""
    within = tuple(f"{one.name}." for one in layers)
    return {name: x for name, x in own_tensors(model).items() if not name.startswith(within)}


@contextmanager
def holding(layer: Layer, tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """The layer has these tensors, by name. Without any, it has none: torch captures each tensor of
    a model as an input, which takes time."""
    held = [vars(one.module)[one.kind] for one in layer.holders]
    try:
        for one in layer.holders:
            # As attributes they could not be taken away without a trace in the module.
            vars(one.module)[one.kind] = {
                last: None if name is None else tensors[name]
                for last, name in one.names.items()
                if name is None or name in tensors
            }
        yield
    finally:
        for one, before in zip(layer.holders, held, strict=True):
            vars(one.module)[one.kind] = before


@contextmanager
def replaced(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """The module computes `forward`, and its hooks run as ever."""
    vars(module)["forward"] = forward
    try:
        yield
    finally:
        del vars(module)["forward"]
