"""A report goes to control in parts, as fast as control reads them."""

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from dlcpd.io import control_link
from dlcpd.io.control_events import Report
from dlcpd.io.control_link import Reporter


class Scene:
    """A reporter, and a control process that reads as long as `full` is false."""

    def __init__(self, parts: int, *, broken: bool = False) -> None:
        self.sent: list[Report] = []
        self.link = SimpleNamespace(backlog=0, emit=self.sent.append)
        self.counters = Counter[str]()
        self._parts, self._broken = parts, broken
        control: Any = self.link
        self.reporter = Reporter(control, self.counters, self._make)

    def _make(self, ledger: int) -> Iterator[dict[str, Any]]:
        for number in range(self._parts):
            yield {"part": number, "ledger": ledger}
        if self._broken:
            raise ValueError("a bug made on purpose")

    def work(self) -> None:
        while self.reporter.busy:
            self.reporter.work(0.0)


def test_requests_are_answered_one_after_the_other_each_with_a_last_part() -> None:
    scene = Scene(2)
    scene.reporter.ask(3)
    scene.reporter.ask(4)
    scene.work()
    assert scene.sent == [
        Report({"part": part, "ledger": ledger}, last=False) if part < 2 else Report({})
        for ledger in (3, 4)
        for part in range(3)
    ]


def test_no_part_is_made_while_one_waits_for_control() -> None:
    scene = Scene(2)
    scene.reporter.ask(0)
    scene.link.backlog = 1
    scene.work()
    assert not scene.sent
    scene.link.backlog = 0
    assert scene.reporter.busy


def test_a_report_that_fails_says_so_and_the_next_is_made() -> None:
    scene = Scene(1, broken=True)
    scene.reporter.ask(0)
    scene.reporter.ask(1)
    scene.work()
    ends = [report for report in scene.sent if report.last]
    assert [end.report["error"] for end in ends] == ["ValueError: a bug made on purpose"] * 2
    assert scene.counters["internal"] == 2


def test_a_turn_ends_in_the_middle_of_a_report(monkeypatch: Any) -> None:
    monkeypatch.setattr(control_link, "REPORT_TURN", 0.0)
    scene = Scene(9)
    scene.reporter.ask(0)
    scene.reporter.work(0.0)
    assert scene.reporter.busy and len(scene.sent) < 9
