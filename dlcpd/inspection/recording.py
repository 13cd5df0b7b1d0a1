"""A recording of some steps of a daemon's sessions, as a timeline."""

import time
from typing import Final, NamedTuple

from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.contract.inquiries import Traced, TraceRequest
from dlcpd.inspection.conversation import Conversation
from dlcpd.inspection.run_identity import RUN, run_identity
from dlcpd.inspection.timeline import Event, Row, timeline

LOOK: Final = 0.1  # seconds between checks whether the steps are complete
REST: Final = 0.2  # seconds for the operations of the last step to end
EPOCH: Final = "microseconds to the epoch"  # in otherData: the offset from the events' clock


class Recorded(NamedTuple):
    """The result of a recording."""

    document: Row  # in the Trace Event Format
    steps: int  # complete ones, at most as many as were asked for
    events: int
    full: bool  # it ended for lack of space


def record(daemon: Conversation, steps: int, timeout: float) -> Recorded:
    """The timeline of `steps` steps, or of those within `timeout` seconds."""
    before = daemon.status(0)
    recording = TraceRecording(daemon, before["features"]["engines"])
    complete = recording.run(steps, timeout)
    events, epoch = recording.take()
    after = daemon.status(0)
    spans = timeline(events, before["sessions"] + after["sessions"], steps)
    run = run_identity(before, after)
    about = {"clock": "CLOCK_MONOTONIC, microseconds", EPOCH: epoch, RUN: run}
    document = {"traceEvents": spans, "displayTimeUnit": "ms", "otherData": about}
    return Recorded(document, min(complete, steps), sum(map(len, events.values())), recording.full)


class TraceRecording:
    """A recording of all engines of a daemon."""

    def __init__(self, daemon: Conversation, engines: int) -> None:
        self._daemon, self._engines = daemon, range(engines)
        self.full = False  # an engine's recording ended for lack of space

    def run(self, steps: int, timeout: float) -> int:
        """Record until `steps` steps are complete, for `timeout` seconds at most. Returns their
        number."""
        until = time.monotonic() + timeout
        self._all("start")
        found = self._all("look")
        while self._steps(found) < steps and time.monotonic() < until and found[0]["on"]:
            time.sleep(LOOK)
            found = self._all("look")
        if self._steps(found) >= steps:
            time.sleep(REST)
        found = self._all("stop")
        self.full = any(each["full"] for each in found)
        return self._steps(found)

    def take(self) -> tuple[dict[int, list[Event]], int]:
        """Events by engine; microseconds from their clock to the epoch's."""
        events: dict[int, list[Event]] = {}
        answer: Row = {}
        for engine in self._engines:
            events[engine], left = [], True
            while left:
                answer = self._ask(engine, "take")
                events[engine] += answer["events"]
                left = answer["left"] > 0
        return events, answer["epoch"]

    def _steps(self, answers: list[Row]) -> int:
        return max(int(answer["steps"]) for answer in answers)

    def _all(self, what: str) -> list[Row]:
        return [self._ask(engine, what) for engine in self._engines]

    def _ask(self, engine: int, what: str) -> Row:
        """Raises: DaemonUnavailable."""
        report = self._daemon.ask(TraceRequest(engine, what), Traced).read()
        if "error" in report:
            raise DaemonUnavailable(f"engine {engine}: {report['error']}")
        return report
