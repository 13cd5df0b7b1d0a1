"""Finds the routes of a flow by sweeps of probes, then other port pairs for surplus paths.

Source ports are random, and so are the routes that ECMP gives them: 16 of them miss one of four
spines in 4 % of all cases. A path that shares its route with an earlier path is aimed at another
port of the peer and probed again; paths that carry data are left alone.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlcpd.core.paths.routes import MAX_HOPS, SILENT, Routes

SWEEPS: Final = 3  # per draw: routers limit their ICMP, and probes are lost like data
DRAWS: Final = 3  # sixteen ports and 24 surplus pairs miss one of four spines once in 20,000

Address = tuple[str, int]


@dataclass(slots=True)
class RouteSearch:
    """Send `probes` and wait a moment, then `advance`, until it is done.

    `endpoints` are the peer's sockets by path; `aims` is where each path is aimed at present.
    """

    endpoints: Sequence[Address]
    aims: list[Address] = field(init=False)
    hop: int = 1
    _asked: list[int] = field(init=False)  # paths
    _sweep: int = 0
    _draw: int = 0
    _answers: dict[tuple[int, int], str] = field(default_factory=dict)  # by path and hop
    _before: dict[int, Address] = field(default_factory=dict)  # aims of the last draw

    def __post_init__(self) -> None:
        self.aims = list(self.endpoints)
        self._asked = list(range(len(self.endpoints)))

    def restart(self) -> None:
        """Probe all paths again, with their present aims."""
        self.hop, self._sweep, self._draw = 1, 0, 0
        self._asked = list(range(len(self.endpoints)))
        self._answers.clear()

    def probes(self) -> list[int]:
        """Paths to send a probe for `hop` on."""
        return self._asked

    def on_answer(self, path: int, hop: int, router: str) -> None:
        """A router answered. An implausible answer changes nothing."""
        if path in self._asked and 1 <= hop <= MAX_HOPS:
            self._answers[path, hop] = router

    def advance(self, routes: Routes) -> bool:
        """Go on to the next hop; at the end of a sweep update `routes`. False: the search is
        done."""
        self.hop += 1
        if self.hop <= MAX_HOPS:
            return True
        self.hop, self._sweep = 1, self._sweep + 1
        found = {path: self._hops(path) for path in self._asked}
        if not self._draw:
            for path, hops in found.items():
                routes.learn(path, hops)
        if self._sweep < SWEEPS and not _complete(found.values()):
            return True
        if self._draw:
            self._keep(found, routes)
        return self._redraw(routes)

    def _hops(self, path: int) -> list[str]:
        last = max((hop for p, hop in self._answers if p == path), default=0)
        return [self._answers.get((path, hop), SILENT) for hop in range(1, last + 1)]

    def _keep(self, found: dict[int, list[str]], routes: Routes) -> None:
        """Keep the aims of paths whose routers all answered; the others get their former aims
        back."""
        for path, hops in found.items():
            if len(hops) == len(routes.hops(path)) and SILENT not in hops:
                routes.learn(path, hops)
            else:
                self.aims[path] = self._before[path]

    def _redraw(self, routes: Routes) -> bool:
        """Aim surplus paths at another port of the same rail."""
        self._sweep, self._draw = 0, self._draw + 1
        self._asked = [path for path in routes.surplus() if self._next(path) != self.aims[path]]
        self._answers.clear()
        if self._draw == DRAWS or not self._asked:
            return False
        self._before = {path: self.aims[path] for path in self._asked}
        for path in self._asked:
            self.aims[path] = self._next(path)
        return True

    def _next(self, path: int) -> Address:
        rail = [each for each in self.endpoints if each[0] == self.aims[path][0]]
        return rail[(rail.index(self.aims[path]) + 1) % len(rail)]


def _complete(found: Collection[Sequence[str]]) -> bool:
    """Whether every path was answered, up to the same hop and without a gap."""
    return len({len(hops) for hops in found}) == 1 and all(
        hops and SILENT not in hops for hops in found
    )
