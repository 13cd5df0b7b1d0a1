"""Pooling: all dimensions may be divided, those of space with halos."""

import math
from functools import partial
from typing import Any, Final

import torch

from dlcp_client.spmd.pools import AVERAGE_BACKWARD, MAX, MAX_BACKWARD
from dlcp_client.spmd.windows import Window

from .call import Call
from .rule import ONE, Dims, Edit, Halo, Rule, Rules, named, rule

aten = torch.ops.aten
FIRST: Final = frozenset({0})
SECOND: Final = frozenset({1})


def _spaced(large: torch.Size, small: torch.Size, halos: list[Any]) -> Any:
    """Factors, sizes and halos of tensors that differ in their last dimensions. `halos`: one for
    each of these, or None where it stays whole."""
    outer, sizes = named(large[: len(large) - len(halos)])
    space: list[Any] = []
    found: dict[str, Halo] = {}
    for at, halo in enumerate(halos):
        rows = small[len(outer) + at]
        if halo is None or rows == 1 or large[len(outer) + at] == 1:
            space.append(())
            continue
        space.append((f"s{at}",))
        found[f"s{at}"], sizes[f"s{at}"] = halo, rows
    dims: Dims = (*outer, *space)
    return dims, sizes, found


def _windows(call: Call, large: torch.Size, small: torch.Size) -> list[Window]:
    kernel = call.option("kernel" if "dlcp" in str(call.target) else "kernel_size")
    count = len(small)
    names = {one.name for one in call.target._schema.arguments}
    defaults = {"stride": kernel, "padding": [0], "dilation": [1]}
    options = {
        name: (call.option(name) if name in names else None) or default
        for name, default in defaults.items()
    }
    found = []
    for at in range(len(kernel)):
        k, stride, padding, dilation = (one[at % len(one)] for one in (kernel, *options.values()))
        dim = count - len(kernel) + at
        reach = (k - 1) * dilation + 1
        found.append(Window(large[dim], stride, -padding, reach, small[dim], dilation=dilation))
    return found


def _edits(call: Call, at: int) -> tuple[Edit, ...]:
    """A window has the padding, and no part of a window is left at its end."""
    names = [one.name for one in call.target._schema.arguments]
    return (Edit(names.index("padding"), at, 0),)


def maximum(call: Call) -> Rule:
    """Rows outside are minus infinity; there is none among whole numbers, whose space stays
    whole."""
    if not call.first.is_floating_point():
        return space_whole(len(call.option("kernel")), call)
    large, small = call.first.shape, call.result.shape
    halos = [
        Halo(one, reads=FIRST, fill=-math.inf, edits=_edits(call, at))
        for at, one in enumerate(_windows(call, large, small))
    ]
    dims, sizes, found = _spaced(large, small, halos)
    return rule([dims], [dims], sizes, halos=found)


def maximum_backward(call: Call) -> Rule:
    """Gradient and operand to the operand's gradient."""
    large, small = call.result.shape, call.first.shape
    halos = [
        Halo(one, reads=SECOND, adds=FIRST, fill=-math.inf, edits=_edits(call, at))
        for at, one in enumerate(_windows(call, large, small))
    ]
    dims, sizes, found = _spaced(large, small, halos)
    return rule([dims, dims], [dims], sizes, linear=ONE, halos=found)


def _counts_padding(call: Call) -> bool:
    """Whether each average is over as many rows: not of fewer ones at the edge."""
    names = [one.name for one in call.target._schema.arguments]
    ceil = call.option("ceil" if "ceil" in names else "ceil_mode")
    return not ceil and (call.option("count_include_pad") or not any(call.option("padding")))


def average(call: Call) -> Rule:
    """Space stays whole where averages at the edge are over fewer rows."""
    large, small = call.first.shape, call.result.shape
    halos: list[Halo | None] = [
        Halo(one, reads=FIRST, edits=_edits(call, at)) if _counts_padding(call) else None
        for at, one in enumerate(_windows(call, large, small))
    ]
    dims, sizes, found = _spaced(large, small, halos)
    return rule([dims], [dims], sizes, linear=ONE, halos=found)


def average_backward(call: Call) -> Rule:
    """Likewise. The second argument is the shape of the result."""
    large, small = call.result.shape, call.first.shape
    halos: list[Halo | None] = []
    for at, one in enumerate(_windows(call, large, small)):
        halo = Halo(one, adds=FIRST, edits=_edits(call, at))
        halos.append(halo if _counts_padding(call) else None)
    dims, sizes, found = _spaced(large, small, halos)
    return rule([dims], [dims], sizes, linear=ONE, shapes={1: 0}, halos=found)


def space_whole(count: int, call: Call) -> Rule:
    """The last dimensions stay whole."""
    dims, sizes = named(call.first.shape[:-count])
    whole = (*dims, *((),) * count)
    return rule([whole] * len(call.operands), [whole] * len(call.results), sizes)


WHOLE: Final = {
    2: (
        aten.max_pool2d_with_indices, aten._adaptive_avg_pool2d, aten._adaptive_avg_pool2d_backward,
        aten.reflection_pad2d, aten.reflection_pad2d_backward,
        aten.replication_pad2d, aten.replication_pad2d_backward,
    ),
    1: (
        aten.reflection_pad1d, aten.reflection_pad1d_backward,
        aten.replication_pad1d, aten.replication_pad1d_backward,
    ),
    3: (
        aten.max_pool3d_with_indices, aten._adaptive_avg_pool3d, aten._adaptive_avg_pool3d_backward,
        aten.reflection_pad3d, aten.reflection_pad3d_backward,
        aten.replication_pad3d, aten.replication_pad3d_backward,
    ),
}  # fmt: skip
RULES: Final[Rules] = {
    MAX: maximum, MAX_BACKWARD: maximum_backward,
    aten.avg_pool2d.default: average, aten.avg_pool3d.default: average,
    AVERAGE_BACKWARD: average_backward,
    **{one.default: partial(space_whole, dims) for dims, ones in WHOLE.items() for one in ones},
}  # fmt: skip
