"""Times the collectives of a rank's graphs, and counts what a forward pass saves."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from torch import Tensor, fx

from .emission import SERVES, Collective
from .halves import Halves
from .runtime import GroupRanks, Pending

END: Final = "end"  # the method of `Pending`


class TimedRanks:
    """Calls the methods of `ranks`, and appends the seconds of each collective to `seconds`."""

    def __init__(self, ranks: GroupRanks, timed: frozenset[str]) -> None:
        self._ranks, self._timed = ranks, timed
        self.seconds: list[float] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ranks, name)
        return partial(self._call, method) if name in self._timed else method

    def _call(self, method: Callable[..., Any], *given: Any) -> Any:
        begin = time.perf_counter()
        found = method(*given)
        self.seconds.append(time.perf_counter() - begin)
        if isinstance(found, Pending):
            return _TimedPending(partial(self._call, found.end))
        return found


class _TimedPending:
    def __init__(self, end: Callable[[], list[Tensor]]) -> None:
        self.end = end


class Times:
    """Of the passes so far. `of`: seconds of each collective in each of its passes; where several
    share an operation, each has a share by its bytes. `saved`: bytes, at most."""

    def __init__(self, halves: Halves) -> None:
        self._serves = {
            half: [node.meta[SERVES] for node in half.graph.nodes if _communicates(node)]
            for half in (halves.forward, halves.backward)
        }
        nodes = [node for half in self._serves for node in half.graph.nodes if _communicates(node)]
        self._timed = frozenset(str(node.target) for node in nodes) - {END}
        self.of: dict[Collective, list[float]] = defaultdict(list)
        self.saved = 0

    def run(self, half: fx.GraphModule, ranks: GroupRanks, *given: Tensor) -> Any:
        """The outputs of a half, whose collectives are timed."""
        timed = TimedRanks(ranks, self._timed)
        outputs = half(timed, *given)
        taken: dict[Collective, float] = defaultdict(float)
        for ones, seconds in zip(self._serves[half], timed.seconds, strict=True):
            sent = sum(one.sent for one in ones)
            for one in ones:
                taken[one] += seconds * (one.sent / sent if sent else 1 / len(ones))
        for one, seconds in taken.items():
            self.of[one].append(seconds)
        return outputs

    def save(self, saved: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        """Tensors that a forward pass has saved, and its inputs, whose memory does not count."""
        sizes = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in saved}
        for x in given:
            sizes.pop(x.untyped_storage().data_ptr(), None)
        self.saved = max(self.saved, sum(sizes.values()))


def _communicates(node: fx.Node) -> bool:
    return node.op == "call_method" and SERVES in node.meta
