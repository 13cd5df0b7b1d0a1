"""The rows of an operation: the byte at which each traffic class and bound begins."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from dlcpd.contract.errors import BadPolicy
from dlcpd.contract.messages import MAX_LAYERS, LayerRow
from dlcpd.contract.policy import LossPolicy
from dlcpd.contract.traffic import traffic_classes

Layer = tuple[int, str]  # first byte, traffic class; a layer ends where the next one begins

UNCLASSED: Final = "bulk"  # with this class, a policy lets the order of the layers decide
MILLION: Final = 1e6  # the unit of a bound in `Submit.layers`


def rows(layers: Iterable[Layer], policy: LossPolicy, size: int) -> list[LayerRow]:
    """`Submit.layers` for a tensor of `size` bytes; [] without layers.

    Raises: BadPolicy for an unknown class, or rows that do not ascend from 0 within the tensor.
    """
    try:
        found = [_row(start, name, policy) for start, name in layers]
    except (TypeError, ValueError) as exc:
        raise BadPolicy(f"layers {layers!r:.80}: give (first byte, class) for each") from exc
    starts = [-1, *(row.start for row in found), size]
    if found and (found[0].start != 0 or any(a >= b for a, b in pairwise(starts))):
        raise BadPolicy(
            f"layers start at {starts[1:5]}...: give them ascending from 0, within the {size} B "
            f"tensor"
        )
    return joined(found, size, MAX_LAYERS)


def in_one_class(found: list[LayerRow], policy: LossPolicy) -> list[LayerRow]:
    """The rows of an operation whose client computes: bounds as `found`, and one class, that of
    the policy, or the middle one if layers decide.

    Engines send such operations in the order in which the next forward pass needs them. That order
    is finer than classes, and holds within one class.
    """
    name = policy.traffic_class if policy.traffic_class != UNCLASSED else "middle"
    rank = traffic_classes()[name].rank
    return _without_equals([row._replace(traffic_class=rank) for row in found])


def joined(found: list[LayerRow], size: int, limit: int) -> list[LayerRow]:
    """Join equal neighbours to one row, and reduce the rows to at most `limit`.

    If equal neighbours do not suffice, the shortest rows are merged into the previous one, with the
    more important class and the tighter bound of the two: no byte gets worse terms than requested.
    """
    out = _without_equals(found)
    if len(out) <= limit:
        return out
    stops = [row.start for row in out[1:]] + [size]
    by_length = sorted(range(1, len(out)), key=lambda i: stops[i] - out[i].start)
    absorbed = set(by_length[: len(out) - limit])
    coarse: list[LayerRow] = []
    for index, row in enumerate(out):
        if index in absorbed:
            into = coarse[-1]
            coarse[-1] = LayerRow(
                into.start, min(into.traffic_class, row.traffic_class), min(into.bound, row.bound)
            )
        else:
            coarse.append(row)
    return _without_equals(coarse)


def _without_equals(found: list[LayerRow]) -> list[LayerRow]:
    return [row for i, row in enumerate(found) if i == 0 or row[1:] != found[i - 1][1:]]


def _row(start: int, name: str, policy: LossPolicy) -> LayerRow:
    known = traffic_classes()
    if name not in known:
        raise BadPolicy(f"layer at {start}: class {name!r}: use one of {', '.join(known)}")
    return LayerRow(int(start), known[name].rank, round(policy.max_loss_of(name) * MILLION))
