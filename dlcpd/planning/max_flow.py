"""Maximum flows by Dinic's algorithm: exact for integer capacities, standard library only."""

from collections import deque
from collections.abc import Iterable
from typing import Final

UNLIMITED: Final = 1 << 200  # above the sum of all capacities that occur


class FlowNetwork:
    """A directed graph with capacities. An edge and its reverse have numbers 2k and 2k + 1."""

    def __init__(self, nodes: int, edges: Iterable[tuple[int, int, int]] = ()) -> None:
        self._leaving: list[list[int]] = [[] for _ in range(nodes)]
        self._targets: list[int] = []
        self._capacity: list[int] = []
        self._left: list[int] = []
        for source, target, capacity in edges:
            self.add(source, target, capacity)

    def add(self, source: int, target: int, capacity: int) -> None:
        for here, there, most in ((source, target, capacity), (target, source, 0)):
            self._leaving[here].append(len(self._targets))
            self._targets.append(there)
            self._capacity.append(most)

    def flow(self, source: int, sink: int) -> int:
        """The value of a maximum flow, from capacities as they were given."""
        self._left = self._capacity.copy()
        total = 0
        while (level := self._levels(source))[sink] >= 0:
            untried = [0] * len(level)
            while pushed := self._push(source, sink, level, untried):
                total += pushed
        return total

    def side(self, source: int) -> frozenset[int]:
        """After `flow`: the source's side of a least cut, the smallest such set."""
        level = self._levels(source)
        return frozenset(node for node, depth in enumerate(level) if depth >= 0)

    def _levels(self, source: int) -> list[int]:
        """Distance of each node from `source` over edges with capacity left; -1: unreachable."""
        level = [-1] * len(self._leaving)
        level[source] = 0
        waiting = deque([source])
        while waiting:
            node = waiting.popleft()
            for edge in self._leaving[node]:
                target = self._targets[edge]
                if self._left[edge] and level[target] < 0:
                    level[target] = level[node] + 1
                    waiting.append(target)
        return level

    def _push(self, source: int, sink: int, level: list[int], untried: list[int]) -> int:
        """Sends as much as one path of rising levels carries; 0: no such path is left.

        `untried`: per node, the first edge that may still lead to the sink.
        """
        path: list[int] = []
        node = source
        while node != sink:
            edge = self._next(node, level, untried)
            if edge >= 0:
                path.append(edge)
                node = self._targets[edge]
            elif path:
                node = self._targets[path.pop() ^ 1]
                untried[node] += 1
            else:
                return 0
        amount = min(self._left[edge] for edge in path)
        for edge in path:
            self._left[edge] -= amount
            self._left[edge ^ 1] += amount
        return amount

    def _next(self, node: int, level: list[int], untried: list[int]) -> int:
        edges = self._leaving[node]
        while untried[node] < len(edges):
            edge = edges[untried[node]]
            if self._left[edge] and level[self._targets[edge]] == level[node] + 1:
                return edge
            untried[node] += 1
        return -1
