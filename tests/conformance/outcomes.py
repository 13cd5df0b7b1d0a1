"""What became of a test, and the unittest result that collects it."""

import traceback
import unittest
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test."""

    test: str
    verdict: str  # "pass", "skip" or "fail"
    detail: str = ""  # reason of a skip, traceback of a failure


class Recorder(unittest.TestResult):
    """Collects outcomes. A test has one: the first that is no pass."""

    def __init__(self, name: str) -> None:
        """`name`: of the test that is run."""
        super().__init__()
        self.outcome = Outcome(name, "fail", "it ended without a verdict")
        self._name, self._decided = name, False

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._decide("pass", "")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._decide("skip", reason)

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        self._decide("fail", "".join(traceback.format_exception(*err)))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self.addError(test, err)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._decide("pass", "")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def _decide(self, verdict: str, detail: str) -> None:
        if not self._decided:
            self._decided = True
            self.outcome = Outcome(self._name, verdict, detail)


def run(case: unittest.TestCase, name: str) -> Outcome:
    """Run one test."""
    recorder = Recorder(name)
    case.run(recorder)
    return recorder.outcome
