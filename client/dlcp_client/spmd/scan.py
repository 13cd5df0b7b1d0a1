"""The run of a model on fake tensors that finds layers which are alike.

The first of layers that look alike is recorded. Each other one is run with the tensors of the
record, and must make the same calls (`calls`).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from dlcp_client.user_lines import user_line

from .calls import OF_REGIONS, Differs, Record, Recording, Replaying, TorchCall, Watching
from .layers import FEWEST, Layer, holding, layers_of, replaced, tensors_of
from .private_torch import FakeTensorMode
from .stand_ins import Form

Forward = Callable[..., Any]


@dataclass(slots=True, eq=False)
class Alike:
    """A layer that has been recorded, and those that did the same.

    `operands`: the tensors among its arguments, each once; `results`: of the record."""

    layer: Layer
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    operands: list[Tensor]
    record: Record
    results: Any
    answer: Any  # the results, to be compared
    line: str | None  # of the model that calls it
    members: list[Layer] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Found:
    """Of a model: the record of what happens outside of its layers, and the layers to be captured
    once."""

    outside: Record
    names: tuple[str, ...]  # of the parameters and buffers outside
    layers: tuple[Layer, ...]
    alike: dict[str, Alike]  # by the name of a layer


def tensors_in(values: Any) -> list[Tensor]:
    """Each once."""
    found = {id(one): one for one in pytree.tree_leaves(values) if isinstance(one, Tensor)}
    return list(found.values())


@contextmanager
def intercepted(
    model: nn.Module,
    layers: Sequence[Layer],
    of_model: Callable[[nn.Module, Forward, Any, Any], Any],
    of_layer: Callable[[Layer, Forward, Any, Any], Any],
) -> Iterator[None]:
    """Calls of the model and of the layers go through two functions."""
    with ExitStack() as stack:
        forward = model.forward

        def of(*args: Any, **kwargs: Any) -> Any:
            return of_model(model, forward, args, kwargs)

        stack.enter_context(replaced(model, of))
        for layer in layers:
            stack.enter_context(replaced(layer.module, _through(layer, of_layer)))
        yield


def _through(layer: Layer, of_layer: Callable[[Layer, Forward, Any, Any], Any]) -> Forward:
    forward = layer.module.forward
    return lambda *args, **kwargs: of_layer(layer, forward, args, kwargs)


def find(model: nn.Module, example: tuple[Any, ...]) -> Found | None:
    """The layers of a model that can be captured once; None: there are none."""
    layers = layers_of(model)
    if not layers or "forward" in vars(model):
        return None
    try:
        with ExitStack() as stack:
            stack.enter_context(FakeTensorMode())
            for layer in layers:
                stack.enter_context(holding(layer, {}))
            scan = _Scan(tensors_of(model, layers))
            stack.enter_context(scan.watch)
            stack.enter_context(intercepted(model, layers, scan.of_model, scan.of_layer))
            arguments = _again(example)
            torch.func.functional_call(model, scan.tensors, arguments, tie_weights=False)
    except (Differs, Exception):  # the whole capture says what is wrong
        return None
    alike = [one for some in scan.alike.values() for one in some if len(one.members) >= FEWEST]
    if not alike or scan.outside is None:
        return None
    by_name = {layer.name: one for one in alike for layer in one.members}
    return Found(scan.outside, tuple(scan.tensors), tuple(layers), by_name)


def _fake(x: Tensor) -> Tensor:
    """One of its own, also where two names have one tensor: torch captures an input per name."""
    made = Form.of(x).empty()
    return made.requires_grad_(x.requires_grad)


class _Scan:
    """The run that records. `tensors`: the model's own, by name."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {name: _fake(x) for name, x in tensors.items()}
        first: dict[int, int] = {}
        self._ties = [first.setdefault(id(x), at) for at, x in enumerate(tensors.values())]
        self.watch = Watching()
        self.outside: Record | None = None
        self.alike: dict[Any, list[Alike]] = defaultdict(list)
        self._seen: set[str] = set()

    def of_model(self, model: nn.Module, forward: Forward, args: Any, kwargs: Any) -> Any:
        if self.outside is not None:
            raise Differs("the model calls itself")
        self.outside = record = Record(
            [*self.tensors.values(), *tensors_in((args, kwargs))], self._ties
        )
        with self.watch.to(Recording(record)):
            results = forward(*args, **kwargs)
        record.calls.append(TorchCall(("the end", record.told(results)), record.told(None), None))
        return results

    def of_layer(self, layer: Layer, forward: Forward, args: Any, kwargs: Any) -> Any:
        record = self.outside
        if record is None or layer.name in self._seen:
            raise Differs("a layer is called twice")
        self._seen.add(layer.name)
        told = told_layer(record, layer, args, kwargs)
        with self.watch.to(None):
            key = layer.form, arguments_key(args, kwargs)
            one = next((one for one in self.alike[key] if self._repeats(one, layer, forward)), None)
            if one is None:
                one = self._recorded(layer, forward, args, kwargs)
                self.alike[key].append(one)
            one.members.append(layer)
            results = _again(one.results, leaf=False)
        record.number(results)
        record.calls.append(TorchCall(told, record.told(results), None))
        return results

    def _recorded(self, layer: Layer, forward: Forward, args: Any, kwargs: Any) -> Alike:
        args, kwargs = _again((args, kwargs))
        tensors = {name: _fake(x) for name, x in layer.tensors.items()}
        operands = tensors_in((args, kwargs))
        record = Record([*tensors.values(), *operands])
        with holding(layer, tensors), self.watch.to(Recording(record)):
            results = forward(*args, **kwargs)
        _check_closed(record, results)
        line = user_line()
        return Alike(layer, (args, kwargs), operands, record, results, record.told(results), line)

    def _repeats(self, one: Alike, layer: Layer, forward: Forward) -> bool:
        args, kwargs = one.arguments
        tensors = dict(zip(layer.tensors, one.record.given, strict=False))
        replaying = Replaying(one.record)
        try:
            with holding(layer, tensors), self.watch.to(replaying):
                results = forward(*args, **kwargs)
            replaying.end()
            return bool(one.record.told(results) == one.answer)
        except Differs:
            return False


def _again(values: Any, *, leaf: bool = True) -> Any:
    """Other tensors of the same form, in the same structure. `leaf`: they may not change in place
    where they require gradients."""
    made = [_fake(x) if leaf else _fake(x).clone() for x in tensors_in(values)]
    return with_tensors(values, made)


def with_tensors(values: Any, tensors: Sequence[Tensor]) -> Any:
    """The structure with other tensors: in place of each of `tensors_in`."""
    of = dict(zip(map(id, tensors_in(values)), tensors, strict=True))
    return pytree.tree_map(lambda x: of.get(id(x), x), values)


def arguments_key(args: Any, kwargs: Any) -> Any:
    """Arguments with equal keys have equal constants, and tensors of equal forms."""
    operands = tensors_in((args, kwargs))
    record = Record(operands)
    return repr(record.told((args, kwargs))), tuple(map(Form.of, operands))


def told_layer(record: Record, layer: Layer, args: Any, kwargs: Any) -> Any:
    """A call of a layer, for the record outside.

    Raises: Differs in another state than that at the begin of the model, under `no_grad` say.
    """
    state = record.state()
    if state != record.begin:
        raise Differs("a layer is called in another state of autograd")
    return layer.name, record.told(args), record.told(kwargs), state


def _check_closed(record: Record, results: Any) -> None:
    """Raises: Differs where a graph could not be moved to another place."""
    for told, *_ in record.calls:
        func, state = told[0], told[-1]
        if state[:2] != record.begin[:2]:  # so in functions with a backward pass of their own
            raise Differs("autograd is off in a part of a layer")
        if func in OF_REGIONS:
            raise Differs("a manual region in a layer")
    storages = [x.untyped_storage()._cdata for x in (*record.given, *tensors_in(results))]  # noqa: SLF001
    if len(set(storages)) < len(storages):
        raise Differs("a result of a layer is an argument, or a part of one")
