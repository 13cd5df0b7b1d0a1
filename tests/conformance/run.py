"""Run suites of other projects over dlcp and over Gloo, and compare with what is expected.

    python -m tests.conformance.run                      # those that are installed
    python -m tests.conformance.run --suite accelerate
    python -m tests.conformance.run --pytorch FOLDER     # and those of PyTorch's repository

FOLDER is a checkout of PyTorch, of the version that is installed: its wheel lacks these tests.
Exit status 1 when a verdict is not the one in expected/SUITE.txt.
"""

import argparse
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from tests.conformance import expected
from tests.conformance.outcomes import Outcome
from tests.conformance.parts import ROOT, SILENCE, Part
from tests.conformance.suites import SUITES, Suite, expected_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status."""
    asked = _parser().parse_args(arguments)
    if asked.document:
        expected.write_table(asked.document)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that children end too
    names = asked.suite or [
        name for name, suite in SUITES.items() if _is_there(suite, asked.pytorch)
    ]
    return max(_suite(name, asked) for name in names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tests.conformance.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--suite", nargs="+", choices=SUITES, help="by default all installed ones")
    parser.add_argument("--pytorch", default="", help="a checkout of PyTorch")
    parser.add_argument(
        "--gloo", action="store_true", help="over Gloo, too; always, where a checkout is given"
    )
    parser.add_argument("--write", action="store_true", help="write the expected verdicts")
    parser.add_argument("--keep", action="store_true", help="add to what is written, not replace")
    parser.add_argument("--parts", nargs="+", help="some guises, scripts or files of the suite")
    parser.add_argument("--silence", type=float, default=SILENCE, help="seconds for one test")
    parser.add_argument("--document", type=Path, help="write the table into this file, and end")
    parser.add_argument("tests", nargs="*", help="names; by default all")
    return parser


def _is_there(suite: Suite, pytorch: str) -> bool:
    if suite.of_checkout:
        return bool(pytorch)
    needs = {"torchft": ("torchft", "parameterized"), "scripts": ("accelerate", "torchdata")}
    return all(find_spec(each) is not None for each in needs.get(suite.kind, ()))


def _suite(name: str, asked: argparse.Namespace) -> int:
    suite = SUITES[name]
    if suite.of_checkout and not (Path(asked.pytorch) / "test" / "distributed").is_dir():
        sys.exit(f"{name}: give a checkout of PyTorch: --pytorch FOLDER")
    both = asked.gloo or asked.write or suite.of_checkout
    found: dict[str, dict[str, Outcome]] = {"dlcp": {}, "gloo": {}}
    for backend in ("gloo", "dlcp") if both else ("dlcp",):
        found[backend] = _over(backend, name, asked)
        counts = Counter(outcome.verdict for outcome in found[backend].values())
        print(f"{name} over {backend}: {dict(counts)}", flush=True)
    file, ours, gloo = expected_file(name), found["dlcp"], found["gloo"]
    if asked.write:
        before = expected.read(file)
        made = {row.test: row for row in expected.rows(ours, gloo, before)}
        expected.write(file, (before | made if asked.keep or asked.tests else made).values())
        return 0
    files = (asked.parts or ()) if suite.of_checkout else ()
    said = expected.differences(name, ours, gloo, asked.tests, files)
    print("\n".join(said) or "as expected", flush=True)
    return 1 if said else 0


def _over(backend: str, name: str, asked: argparse.Namespace) -> dict[str, Outcome]:
    """Outcome by test. Of a suite that decides by a backend's name what to skip: that of the first
    name with which it did not."""
    suite = SUITES[name]
    found: dict[str, Outcome] = {}
    tests: list[str] = asked.tests
    for part in asked.parts or _parts(suite, backend, asked.pytorch):
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            one = Part(name, backend, part, Path(folder), asked.pytorch, asked.silence)
            try:
                outcomes = one.run(tests)
            finally:
                _keep_log(one)
        for outcome in outcomes:
            held = found.get(outcome.test)
            if held is None or held.verdict == "skip":
                found[outcome.test] = outcome
        if suite.kind == "wheel":
            tests = [test for test, outcome in found.items() if outcome.verdict == "skip"]
            if not tests:
                break
    return found


def _parts(suite: Suite, backend: str, pytorch: str) -> list[str]:
    if not suite.of_checkout:
        return list(suite.parts_over(backend))
    root = Path(pytorch) / "test" / "distributed"
    return [str(file.relative_to(root)) for part in suite.parts for file in sorted(root.glob(part))]


def _keep_log(part: Part) -> None:
    name = part.name.replace("/", "-").removesuffix(".py")
    kept = ROOT / f".conformance-{part.suite}-{part.backend}-{name}.log"
    failed = [f"{each.test}: {each.detail}" for each in part.found if each.verdict == "fail"]
    printed = part.log.read_text(errors="replace") if part.log.exists() else ""
    kept.write_text("\n".join([printed, *failed]))


if __name__ == "__main__":
    sys.exit(main())
