"""Traffic classes of gradients: parameters that the forward pass uses first are awaited first."""

from torch import fx

from dlcp_client.hooks.forward_order import classes_of

from .capture import Captured, Kind, Value


def classes_of_gradients(captured: Captured) -> dict[Value, str]:
    """By the first use of each parameter in the captured graph, in thirds of bytes, as
    `ddp.register` has them. A gradient of several parameters has the class of the first."""
    places = {node: at for at, node in enumerate(captured.graph.nodes)}
    used = sorted(
        (_first_use(port.value, places), port.name, port.value.tensor.nbytes)
        for port in captured.inputs
        if port.kind is Kind.PARAMETER and port.value is not None
    )
    classes = classes_of([size for _, _, size in used])
    by_name = {name: one for (_, name, _), one in zip(used, classes, strict=True)}
    order = {name: at for at, name in enumerate(by_name)}
    gradients = [port for port in captured.outputs if port.kind is Kind.GRADIENT and port.value]
    found: dict[Value, str] = {}
    for port in sorted(gradients, key=lambda port: order.get(port.name, len(order))):
        if port.value is not None and port.name in by_name:
            found.setdefault(port.value, by_name[port.name])
    return found


def _first_use(value: Value, places: dict[fx.Node, int]) -> int:
    """The output of the graph uses what nothing else does."""
    return min((places[user] for user in value.node.users), default=len(places))
