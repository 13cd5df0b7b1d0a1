"""Runs one part of a suite over one backend, in a process of its own.

Writes a line of JSON when a test begins and one of its outcome when it ends.
"""

import argparse
import importlib
import json
import os
import sys
import unittest
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.conformance import scripts
from tests.conformance.outcomes import Outcome, run
from tests.conformance.suites import SUITES

Test = tuple[str, Callable[[], Outcome]]


def main() -> None:
    """One part."""
    asked = parsed()
    parent = os.getppid()
    done = set(Path(asked.done).read_text().splitlines())
    only = set(asked.tests)
    with Path(asked.report).open("a") as report:
        for name, test in KINDS[SUITES[asked.suite].kind](asked):
            if name in done or (only and name not in only):
                continue
            if os.getppid() != parent:  # killed: nobody is left to end this process
                return
            print(json.dumps({"begins": name}), file=report, flush=True)
            print(json.dumps(asdict(test())), file=report, flush=True)
    sys.stdout.flush()
    os._exit(0)  # threads of groups that tests left behind must not hold it up


def parsed() -> argparse.Namespace:
    """The command line; `run` writes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--part", required=True)
    parser.add_argument("--pytorch", default="")
    parser.add_argument("--report", required=True)
    parser.add_argument("--done", required=True, help="file with names of tests not to run")
    parser.add_argument("tests", nargs="*")
    return parser.parse_args()


def of_wheel(asked: argparse.Namespace) -> Iterator[Test]:
    """PyTorch's distributed_test."""
    from tests.conformance import suite  # noqa: PLC0415  # importing torch takes seconds

    case = suite.suite_class(SUITES[asked.suite].ranks, asked.part, asked.backend)
    for name in unittest.TestLoader().getTestCaseNames(case):
        yield name, lambda name=name: run(case(name), name)  # type: ignore[misc]


def of_checkout(asked: argparse.Namespace) -> Iterator[Test]:
    """A file of PyTorch's repository."""
    from tests.conformance import in_place_of_gloo  # noqa: PLC0415

    in_place_of_gloo.install(asked.backend)
    root = Path(asked.pytorch) / "test"
    file = root / "distributed" / asked.part
    sys.path[:0] = [str(file.parent), str(root / "distributed"), str(root)]
    try:
        module = importlib.import_module(file.stem)
    except (Exception, SystemExit) as exc:  # a file may end itself where it cannot run
        verdict, text = "skip" if isinstance(exc, SystemExit) else "fail", f"at import: {exc!r}"
        yield asked.part, lambda: Outcome(asked.part, verdict, text)
        return
    yield from _cases(module, f"{asked.part}::")


def of_torchft(asked: argparse.Namespace) -> Iterator[Test]:
    """Tests of torchft's process groups."""
    from tests.conformance import torchft_groups  # noqa: PLC0415

    tests: Any = importlib.import_module(asked.part)
    tests.ProcessGroupBabyGloo = torchft_groups.BabyGloo
    if asked.backend != "gloo":
        tests.ProcessGroupGloo = torchft_groups.Group
        tests.ProcessGroupBabyGloo = torchft_groups.BabyGroup
    yield from _cases(tests, "")


def of_scripts(asked: argparse.Namespace) -> Iterator[Test]:
    """A script of accelerate's tests, as one test."""
    ranks = SUITES[asked.suite].ranks
    yield asked.part, lambda: scripts.outcome(asked.part, asked.backend, ranks)


KINDS: Final = {
    "wheel": of_wheel, "checkout": of_checkout, "torchft": of_torchft, "scripts": of_scripts,
}  # fmt: skip


class _Class:
    """A TestCase that is set up before the first of its tests that runs."""

    def __init__(self, kind: type[unittest.TestCase]) -> None:
        self._kind, self._up = kind, False
        self._refusal: tuple[str, str] | None = None  # verdict and detail for all of its tests

    def run(self, case: unittest.TestCase, name: str) -> Outcome:
        from tests.conformance.in_place_of_gloo import go_on_after_failure  # noqa: PLC0415

        if not self._up and self._refusal is None:
            self._set_up()
        if self._refusal is not None:
            return Outcome(name, *self._refusal)
        go_on_after_failure(self._kind)
        return run(case, name)

    def tear_down(self) -> None:
        if self._up:
            self._kind.tearDownClass()

    def _set_up(self) -> None:
        if getattr(self._kind, "__unittest_skip__", False):
            self._refusal = "skip", getattr(self._kind, "__unittest_skip_why__", "")
            return
        try:
            self._kind.setUpClass()
            self._up = True
        except unittest.SkipTest as exc:
            self._refusal = "skip", str(exc)
        except Exception as exc:
            self._refusal = "fail", f"setUpClass: {exc!r}"


def _cases(module: ModuleType, prefix: str) -> Iterator[Test]:
    loader = unittest.TestLoader()
    for kind in list(vars(module).values()):
        if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase)):
            continue
        held = _Class(kind)
        for method in loader.getTestCaseNames(kind):
            name = f"{prefix}{kind.__name__}.{method}"
            yield name, lambda m=method, n=name, k=kind, h=held: h.run(k(m), n)  # type: ignore[misc]
        held.tear_down()


if __name__ == "__main__":
    main()
