"""Calls on windows of a divided graph, and how its tensors lie along the axis of the windows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import fx

from .capture import Value
from .combined import OF
from .meshes import Mesh
from .pools import AVERAGE_BACKWARD, MAX, MAX_BACKWARD
from .rules.elementwise import UNTAGGED, is_pointwise
from .sharding import Sharding, Split
from .windows import Window

aten = torch.ops.aten
FORWARD: Final = {
    aten.convolution.default, MAX, aten.avg_pool2d.default, aten.avg_pool3d.default,
}  # fmt: skip
READING: Final = {aten.convolution_backward.default, MAX_BACKWARD}  # a window, beside a gradient
BACKWARD: Final = {*READING, AVERAGE_BACKWARD}
Known: TypeAlias = Mapping[fx.Node, tuple[Value, Sharding]]


class Margin(NamedTuple):
    """Rows before and after those of a rank; negative ones are rows that it leaves out."""

    before: int = 0
    after: int = 0

    def hull(self, other: "Margin") -> "Margin":
        """The smallest margin that has the rows of both."""
        return Margin(max(self.before, other.before), max(self.after, other.after))


NONE: Final = Margin()


class Along(NamedTuple):
    """The dimension that an axis divides, counted from the end, and the rows of a shard."""

    dim: int
    rows: int


class WindowedCall(NamedTuple):
    """A call on a window, or the gradient of one. `exchange`: the node of the window and `x` its
    operand, None in a gradient that reads no window."""

    window: Window
    exchange: fx.Node | None
    x: fx.Node | None
    fill: float

    def needed(self, of: Margin) -> Margin:
        """The rows of the operand beside a shard that a margin of the result takes."""
        step, start = self.window.stride, self.window.start
        return Margin(of.before * step - start, of.after * step + start + self.window.length - step)

    def widened(self, by: Margin) -> Window:
        """The window that a shard of the result and a margin take."""
        step, start, length = self.window.stride, self.window.start, self.window.length
        if by == NONE:
            return self.window
        length += (by.before + by.after) * step
        return self.window._replace(start=start - by.before * step, length=length, dilation=1)


@dataclass(frozen=True, slots=True)
class Layouts:
    """How the tensors of a divided graph lie along an axis. `known`: of nodes that are a shard of a
    captured tensor."""

    mesh: Mesh
    axis: str
    known: Known

    def along(self, node: Any) -> Along | None:
        """None: the axis does not divide the tensor, not evenly, or not it alone."""
        value, sharding = self.known.get(node, (None, ()))
        dims = [dim for dim, splits in enumerate(sharding) if self.axis in {s.axis for s in splits}]
        if value is None or len(dims) != 1 or sharding[dims[0]] != (Split(self.axis),):
            return None
        rows, left = divmod(value.shape[dims[0]], self.mesh.sizes[self.axis])
        return None if left else Along(dims[0] - len(sharding), rows)

    def is_broadcast(self, node: fx.Node, dim: int) -> bool:
        """Whether every row of a dimension reads the same of a tensor."""
        value, _ = self.known.get(node, (None, ()))
        return value is not None and (len(value.shape) < -dim or value.shape[dim] == 1)

    def beside(self, node: fx.Node) -> list[fx.Node] | None:
        """The operands of an elementwise call that lie as its result does. None: it is another
        call, or has an operand that lies in another way."""
        here = self.along(node)
        if here is None or OF not in node.meta or not _is_elementwise(node.target):
            return None
        operands = node.all_input_nodes
        found = [one for one in operands if self.along(one) == here]
        broadcast = [one for one in operands if self.is_broadcast(one, here.dim)]
        return found if len(found) + len(broadcast) == len(operands) else None


def _is_elementwise(target: Any) -> bool:
    return target in UNTAGGED or is_pointwise(target)


def reduce_of(call: fx.Node) -> fx.Node | None:
    """The `halo_reduce` of the window that a gradient makes, if it does."""
    raw = call
    if call.target == aten.convolution_backward.default:
        raw = next((one for one in call.users if one.args[1] == 0), call)
        if raw is call:
            return None
    users = list(raw.users)
    is_reduce = len(users) == 1 and users[0].target == "halo_reduce"
    return users[0] if is_reduce else None


def calls_of(graph: fx.Graph, layouts: Layouts) -> dict[fx.Node, WindowedCall]:
    """The calls whose windows are of the axis, of shards without padding."""
    found = {}
    for node in graph.nodes:
        if node.target in FORWARD | BACKWARD:
            call = _call(node, layouts)
            if call is not None:
                found[node] = call
    while True:  # all that read a window, or none of them
        left = {
            node: call
            for node, call in found.items()
            if call.exchange is None or found.keys() >= call.exchange.users.keys()
        }
        if len(left) == len(found):
            return left
        found = left


def _call(node: fx.Node, layouts: Layouts) -> WindowedCall | None:
    reduce = reduce_of(node) if node.target in BACKWARD else None
    read: Any = None if node.target == AVERAGE_BACKWARD else node.args[node.target in READING]
    of: Any = read if read is not None else reduce
    kinds = ("halo_exchange", "halo_reduce")
    if of is None or of.target not in kinds or of.args[2] != layouts.axis:
        return None
    if _makes_window(node) and (reduce is None or reduce.args[2:5] != of.args[2:5]):
        return None
    window = Window(*of.args[4])
    small = layouts.along(node if node.target in FORWARD else node.args[0])
    large = layouts.along(read.args[1] if read is not None else reduce)
    if small is None or large is None or window.wrap or window.stride < 1:
        return None
    parts = layouts.mesh.sizes[layouts.axis]
    fits = (window.size, window.anchor) == (large.rows * parts, small.rows * parts)
    if not fits or large != (small.dim, small.rows * window.stride):
        return None
    if read is None:
        return WindowedCall(window, None, None, 0.0)
    return WindowedCall(window, read, read.args[1], read.args[5])


def _makes_window(node: fx.Node) -> bool:
    """Whether a gradient has that of its operand."""
    if node.target == aten.convolution_backward.default:
        return any(one.args[1] == 0 for one in node.users)
    return node.target in BACKWARD
