"""Which paths share a route: entropy values differ, the links they hash to may not."""

from dataclasses import dataclass, field

MAX_HOPS = 6  # routers asked for on the way: a fat tree has five


@dataclass(slots=True)
class Routes:
    """What is known of the routers on each path of one flow, by hop."""

    paths: int
    _hops: list[dict[int, str]] = field(init=False)  # by path: hop -> address of the router

    def __post_init__(self) -> None:
        self._hops = [{} for _ in range(self.paths)]

    def found(self, path: int, hop: int, router: str) -> bool:
        """A router answered for `path`. True: that changes what is known."""
        if not (0 <= path < self.paths and 1 <= hop <= MAX_HOPS):
            return False
        changed = self._hops[path].get(hop) != router
        self._hops[path][hop] = router
        return changed

    def forget(self, path: int) -> None:
        """The path may go another way now."""
        self._hops[path].clear()

    def hops(self, path: int) -> list[str]:
        """Routers of a path as far as they answered, nearest first; "?" for one that did not."""
        known = self._hops[path]
        return [known.get(hop, "?") for hop in range(1, max(known, default=0) + 1)]

    def groups(self) -> list[int]:
        """By path: a number, equal where the same routers answered. A path that nobody
        answered for has one of its own."""
        numbers: dict[tuple[str, ...], int] = {}
        out = []
        for path in range(self.paths):
            key = tuple(self.hops(path)) or (f"path {path}",)
            out.append(numbers.setdefault(key, len(numbers)))
        return out
