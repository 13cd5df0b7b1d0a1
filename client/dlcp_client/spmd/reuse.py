"""Layers that are alike are captured once.

1. `scan` finds them.
2. The first is captured by itself, forward and backward pass.
3. The model is captured with one operation in place of each of them.
4. `inlining` puts the graph of the first in their places.

Both captures must make the calls of the scan. Where something differs, the whole model is captured
as it is.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

from dlcp_client.user_lines import called_from

from .calls import Checking, Differs, Watching
from .inlining import Inlining, LayerGraph, layer_graph
from .joint import Joint, joint_of
from .layers import Layer, holding, own_tensors
from .private_torch import FakeTensorMode
from .scan import Alike, Forward, Found, find, intercepted, tensors_in, told_layer, with_tensors
from .stand_ins import Form, call, standing_in

PREFIX = "layer."


def joint_with_layers(model: nn.Module, example: tuple[Any, ...]) -> Joint | None:
    """The graph of a model with layers that are captured once. None: it has none."""
    found = find(model, example)
    if found is None:
        return None
    names = list(own_tensors(model))
    try:
        return _put_together(model, example, found, names)
    except (Differs, Exception):  # the whole capture says what is wrong
        return None


def _put_together(
    model: nn.Module, example: tuple[Any, ...], found: Found, names: Sequence[str]
) -> Joint:
    distinct = {id(one): one for one in found.alike.values()}
    graphs = {key: _alone(one) for key, one in distinct.items()}
    layers = [layer for layer in found.layers if layer.name in found.alike]
    of = [found.alike[layer.name] for layer in layers]
    outside = _Outside(found, {layer.name: at for at, layer in enumerate(layers)})
    forms = {at: graphs[id(one)].forms(len(one.operands)) for at, one in enumerate(of)}
    with ExitStack() as stack:
        stack.enter_context(standing_in(forms))
        for layer in layers:
            stack.enter_context(holding(layer, {}))
        stack.enter_context(intercepted(model, found.layers, outside.of_model, outside.of_layer))
        joint = joint_of(model, example)
    pairs = [(layer.name, graphs[id(one)]) for layer, one in zip(layers, of, strict=True)]
    return Joint(Inlining(joint.graph, pairs, names).run(), joint.results)


def _alone(one: Alike) -> LayerGraph:
    with FakeTensorMode():
        operands = []
        for x in one.operands:
            form = Form.of(x)
            operands.append(form.empty().requires_grad_(form.differentiable))
    return layer_graph(joint_of(_Alone(one), operands).graph, PREFIX)


class _Alone(nn.Module):
    """A recorded layer by itself: from its operands to its results."""

    def __init__(self, one: Alike) -> None:
        super().__init__()
        self.layer, self._one, self._watch = one.layer.module, one, Watching()

    def forward(self, *operands: Tensor) -> tuple[Tensor, ...]:
        """Raises: Differs."""
        one = self._one
        args, kwargs = with_tensors(one.arguments, operands)
        held = own_tensors(self.layer)
        given = [*(held[name] for name in one.layer.tensors), *operands]
        with self._watch:
            checking = Checking(one.record, given)
            with self._watch.to(checking):
                results = called_from(one.line, lambda: self.layer.forward(*args, **kwargs))
        checking.end()
        if checking.mine.told(results) != one.answer:
            raise Differs("another result of a layer")
        return tuple(tensors_in(results))


class _Outside:
    """The capture of what is outside of layers. `numbers`: of layers by name."""

    def __init__(self, found: Found, numbers: Mapping[str, int]) -> None:
        self._found, self._numbers = found, numbers
        self._watch = Watching()
        self._checking: Checking | None = None

    def of_model(self, model: nn.Module, forward: Forward, args: Any, kwargs: Any) -> Any:
        held = own_tensors(model)
        given = [*(held[name] for name in self._found.names), *tensors_in((args, kwargs))]
        with self._watch:
            self._checking = checking = Checking(self._found.outside, given)
            with self._watch.to(checking):
                results = forward(*args, **kwargs)
        checking.expect(("the end", checking.mine.told(results)), lambda: None)
        checking.end()
        return results

    def of_layer(self, layer: Layer, forward: Forward, args: Any, kwargs: Any) -> Any:
        checking = self._checking
        if checking is None:
            raise Differs("a layer is called before the model")

        def make() -> Any:
            with self._watch.to(None):
                if layer.name not in self._numbers:
                    return forward(*args, **kwargs)
                one = self._found.alike[layer.name]
                operands = tensors_in((args, kwargs))
                if list(map(Form.of, operands)) != list(map(Form.of, one.operands)):
                    raise Differs("a layer gets another tensor")
                return with_tensors(one.results, call(self._numbers[layer.name], operands))

        return checking.expect(told_layer(checking.mine, layer, args, kwargs), make)
