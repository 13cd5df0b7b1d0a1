"""Which paths share a route: different source ports may hash to the same links."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

MAX_HOPS: Final = 6  # routers asked for on the way: a fat tree has five
SILENT: Final = "?"  # a router that does not answer


@dataclass(slots=True)
class Routes:
    """The known routers on each path of one flow, nearest first."""

    paths: int
    _hops: list[list[str]] = field(init=False)  # by path

    def __post_init__(self) -> None:
        self._hops = [[] for _ in range(self.paths)]

    def learn(self, path: int, hops: Sequence[str]) -> bool:
        """These routers answered on `path`. True: that changes what is known."""
        changed = self._hops[path] != list(hops)
        self._hops[path] = list(hops)
        return changed

    def hops(self, path: int) -> list[str]:
        """Routers of a path as far as they answered; SILENT for one that did not."""
        return self._hops[path]

    def groups(self) -> list[int]:
        """By path: a number, equal where the same routers answered. A path without any answer has a
        number of its own."""
        numbers: dict[tuple[str, ...], int] = {}
        out = []
        for path, hops in enumerate(self._hops):
            key = tuple(hops) or (f"path {path}",)
            out.append(numbers.setdefault(key, len(numbers)))
        return out

    def surplus(self) -> list[int]:
        """Paths whose route an earlier path uses."""
        groups = self.groups()
        return [path for path, group in enumerate(groups) if group in groups[:path]]
