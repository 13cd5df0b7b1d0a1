"""`dlcpctl trace`: records some steps of a daemon's sessions, and writes a timeline."""

import argparse
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlcpd.contract.errors import BadConfig, DaemonUnavailable
from dlcpd.contract.messages import Status, StatusRequest, Traced, TraceRequest
from dlcpd.ctl.conversation import Conversation
from dlcpd.ctl.output import Output
from dlcpd.ctl.output_file import OutputFile
from dlcpd.ctl.timeline import Event, Row, merged, timeline

LOOK: Final = 0.1  # seconds between checks whether the steps are complete
REST: Final = 0.2  # seconds for the operations of the last step to end
EPOCH: Final = "microseconds to the epoch"  # in otherData: the offset from the events' clock


def trace(options: argparse.Namespace, output: Output) -> int:
    """Record and write. Exit code 1 if fewer steps came than were asked for."""
    to = OutputFile("-o", options.output)
    to.check()
    if options.join:
        ours, profile = options.join
        return _join(ours, profile, to, output)
    with Conversation(options.socket) as daemon:
        output.progress(f"recording {options.steps} steps, for at most {options.timeout} s")
        recorded = record(daemon, options.steps, options.timeout)
    _write(to, recorded.document)
    found = {
        "file": str(options.output),
        "steps": recorded.steps,
        "events": recorded.events,
        "full": recorded.full,
    }
    output.line(
        f"{found['steps']} steps, {found['events']} events: {options.output}; "
        f"open it at ui.perfetto.dev, or with chrome://tracing"
    )
    if recorded.full:
        output.line("the recording was full before its end: ask for fewer steps")
    if recorded.steps < options.steps:
        output.line(
            "a step is complete when the first operation of a session comes again: check that a "
            "training runs here, or wait longer with --timeout"
        )
    output.document(found)
    return int(recorded.steps < options.steps)


class Recorded(NamedTuple):
    """The result of a recording."""

    document: Row  # in the Trace Event Format
    steps: int  # complete ones, at most as many as were asked for
    events: int
    full: bool  # it ended for lack of space


def record(daemon: Conversation, steps: int, timeout: float) -> Recorded:
    """The timeline of `steps` steps, or of those within `timeout` seconds."""
    before = daemon.ask(StatusRequest(0), Status).read()
    recording = Recording(daemon, before["features"]["engines"])
    complete = recording.run(steps, timeout)
    events, epoch = recording.take()
    after = daemon.ask(StatusRequest(0), Status).read()
    spans = timeline(events, before["sessions"] + after["sessions"], steps)
    about = {"clock": "CLOCK_MONOTONIC, microseconds", EPOCH: epoch}
    document = {"traceEvents": spans, "displayTimeUnit": "ms", "otherData": about}
    return Recorded(document, min(complete, steps), sum(map(len, events.values())), recording.full)


class Recording:
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


def _join(ours: Path, profile: Path, to: OutputFile, output: Output) -> int:
    """Write a trace of dlcpctl and a profile of torch.profiler as one file."""
    trace_, theirs = _read(ours), _read(profile)
    about = trace_.get("otherData")
    epoch = about.get(EPOCH) if isinstance(about, dict) else None
    if not isinstance(epoch, int):
        raise BadConfig(f"--join {ours}: is not a file of dlcpctl trace; name that file first")
    document = merged(trace_["traceEvents"], epoch, theirs)
    _write(to, document)
    output.line(f"{len(document['traceEvents'])} events: {to.path}")
    output.document({"file": str(to.path), "events": len(document["traceEvents"])})
    return 0


def _read(file: Path) -> Row:
    """A file in the Trace Event Format. Raises: BadConfig."""
    open_: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with open_(file, "rt", encoding="utf-8") as text:
            found: Any = json.load(text)
    except (OSError, ValueError) as exc:
        raise BadConfig(f"--join {file}: cannot be read: {exc}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise BadConfig(f"--join {file}: has no list of traceEvents")
    return found


def _write(to: OutputFile, document: Row) -> None:
    """Raises: BadConfig."""
    to.write(json.dumps(document) + "\n")
