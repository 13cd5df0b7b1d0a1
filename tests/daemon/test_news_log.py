"""Alike news are few lines, and none is lost."""

from collections.abc import Callable
from typing import Any

from dlcpd.daemon.sessions.news_log import GATHER, MAX_ALIKE, REST, NewsLog


class Scene:
    """A log, and timers that run when time is told to pass."""

    def __init__(self) -> None:
        self.now, self.lines = 0.0, list[tuple[str, int]]()
        self._due: list[tuple[float, Callable[..., None], Any]] = []
        loop: Any = self
        self.log = NewsLog(loop)

    def call_later(self, delay: float, call: Callable[..., None], key: Any) -> None:
        self._due.append((self.now + delay, call, key))

    def tell(self, event: str, count: int = 1, **_fields: Any) -> None:
        self.lines.append((event, count))

    def news(self, event: str = "path_down", alike: str = "b") -> None:
        self.log.tell(self.tell, event, alike, path=0)

    def passes(self, seconds: float) -> None:
        self.now += seconds
        due = [row for row in self._due if row[0] <= self.now]
        self._due = [row for row in self._due if row[0] > self.now]
        for _, call, key in due:
            call(key)

    @property
    def timers(self) -> int:
        return len(self._due)


def test_the_first_is_a_line_at_once_and_alike_ones_are_summed_up() -> None:
    scene = Scene()
    for _ in range(120):
        scene.news()
    assert scene.lines == [("path_down", 1)]
    scene.passes(GATHER)
    assert scene.lines == [("path_down", 1), ("path_down", 119)]
    scene.passes(REST)
    assert len(scene.lines) == 2 and not scene.timers
    scene.news()
    assert len(scene.lines) == 3


def test_flaps_of_four_minutes_are_few_lines_and_all_are_counted() -> None:
    """16 ranks on two hosts, 4 paths: 6,646 lines before."""
    scene = Scene()
    told = 0
    for _ in range(240):
        for path in range(4):
            for event in ("path_down", "path_up"):
                scene.news(event, f"host-b, path {path}")
                told += 1
        scene.passes(1.0)
    scene.log.close()
    assert len(scene.lines) <= 100
    assert sum(count for _, count in scene.lines) == told


def test_news_of_another_host_or_path_have_lines_of_their_own() -> None:
    scene = Scene()
    for alike in ("b", "c"):
        scene.news(alike=alike)
    assert scene.lines == [("path_down", 1)] * 2


def test_what_is_remembered_is_bounded() -> None:
    scene = Scene()
    for number in range(MAX_ALIKE + 10):
        scene.news(alike=str(number))
    assert scene.timers == MAX_ALIKE and len(scene.lines) == MAX_ALIKE + 10
