"""A failing assertion shows the objects that it names. A generated repr shows what they refer to,
many times over: a test that fails must not need all memory for its message.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from types import FunctionType, ModuleType

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork

MOST = 1000  # objects of these packages in one repr
PACKAGES = "dlcpd", "dlcp_lab"


def reachable(root: object) -> Iterator[object]:
    """The objects of PACKAGES that `root` leads to, each once."""
    waiting, seen = [root], set[int]()
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(thing))
        waiting += gc.get_referents(thing)
        if type(thing).__module__.partition(".")[0] in PACKAGES:
            yield thing


def counted(shown: list[str], generated: Callable[[object], str]) -> Callable[[object], str]:
    def show(thing: object) -> str:
        shown.append(type(thing).__qualname__)
        assert len(shown) <= MOST, f"{shown[0]} shows more than {MOST} objects"
        return generated(thing)

    return show


def test_no_object_of_a_simulation_shows_what_all_others_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = SimNetwork(3)
    net.submit_all(1, [np.ones(1 << 12, np.float32) for _ in range(3)])
    net.run(until=0.001)  # in the middle, while flows and timers are there
    things = [thing for thing in reachable(net) if is_dataclass(thing)]
    shown = list[str]()
    for kind in {type(thing) for thing in things}:
        if isinstance(kind.__repr__, FunctionType):  # else compiled: `make cov` interprets those
            monkeypatch.setattr(kind, "__repr__", counted(shown, kind.__repr__))
    for thing in things:
        shown.clear()
        repr(thing)
