"""Starts the processes that run parts of suites, and ends those that hang."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.conformance.outcomes import Outcome

ROOT: Final = Path(__file__).parents[2]
SILENCE: Final = 480.0  # seconds for one test; the suites' own limits are at most 300 s
PART: Final = 3600.0  # seconds for all tests of a part
LOOK: Final = 0.2  # seconds between looks at the report


@dataclass(slots=True)
class Part:
    """One part of a suite over one backend, in a process; in another one after a test that hung."""

    suite: str
    backend: str
    name: str
    folder: Path  # for its files; the suites leave some there
    pytorch: str = ""
    silence: float = SILENCE
    found: list[Outcome] = field(default_factory=list)

    def run(self, tests: Sequence[str] = (), limit: float = PART) -> list[Outcome]:
        """Outcomes of `tests`, or of all. A test that hangs, or ends the process, fails."""
        until = time.monotonic() + limit
        report = self.folder / "report.jsonl"
        while True:
            report.write_text("")
            status, text = self._one_process(report, tests, until)
            begun = self._read(report)
            if status == 0:
                return self.found
            said = f"{text}\n{self._end_of_log()}"
            self.found.append(Outcome(begun or self.name, "fail", said))
            if not begun or time.monotonic() > until:
                return self.found  # it would not come further

    @property
    def log(self) -> Path:
        """What the suite prints."""
        return self.folder / "log"

    def _one_process(self, report: Path, tests: Sequence[str], until: float) -> tuple[int, str]:
        """Status, and in words what is wrong with it."""
        done = self.folder / "done"
        done.write_text("\n".join(outcome.test for outcome in self.found))
        command = [
            sys.executable,
            "-m",
            "tests.conformance.child",
            "--suite",
            self.suite,
            "--backend",
            self.backend,
            "--part",
            self.name,
            "--pytorch",
            self.pytorch,
            "--report",
            str(report),
            "--done",
            str(done),
            "--",
            *tests,
        ]
        environment = os.environ | {
            "TMPDIR": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "PYTHONHASHSEED": "0",  # torchft numbers its tests in the order of a set
            # As torchrun sets it: idle threads of several ranks would spin on the same processors.
            "OMP_NUM_THREADS": "1",
        }
        with self.log.open("a") as output:
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )
            try:
                text = self._wait(process, report, until)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # what a test left behind
                process.wait()
        return (1, text) if text else (process.returncode, f"ended with {process.returncode}")

    def _wait(self, process: "subprocess.Popen[bytes]", report: Path, until: float) -> str:
        size, since = 0, time.monotonic()
        while process.poll() is None:
            now, seen = time.monotonic(), report.stat().st_size
            if seen != size:
                size, since = seen, now
            allowed = self.silence if size else SILENCE  # to import all that a suite needs
            if now > since + allowed or now > until:
                return f"no end within {now - since:.0f} s"
            time.sleep(LOOK)
        return ""

    def _read(self, report: Path) -> str:
        """Take the outcomes; the test that has begun and has none."""
        begun = ""
        for line in report.read_text().splitlines():
            told = json.loads(line)
            if "begins" in told:
                begun = told["begins"]
            else:
                self.found.append(Outcome(**told))
                begun = ""
        return begun

    def _end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]
