"""Run PyTorch's distributed suite over dlcp, and compare with what is expected.

    python -m tests.conformance.run --ranks 2

Exit status 1 when a test's verdict is not the one in expected_<ranks>_ranks.txt.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
GUISES: Final = ("dlcp", "gloo", "mpi")  # names that the suite's own skips know, ours first
PASS_LIMIT: Final = 1200  # seconds for all tests in one guise; 60 to 90 on a free machine


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status."""
    asked = _parser().parse_args(arguments)
    if asked.guise:
        _run_guise(asked)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that children end too
    found = _best(asked)
    print(dict(Counter(outcome["verdict"] for outcome in found.values())))
    expected = _read(_expected_file(asked.ranks))
    if asked.write:
        _write(_expected_file(asked.ranks), found, expected)
        return 0
    return _compare(found, expected, only=asked.tests)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.conformance.run", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--transport", choices=("dlcp", "gloo"), default="dlcp",
                        help="gloo: PyTorch's Gloo below our backend, for a baseline")  # fmt: skip
    parser.add_argument("--write", action="store_true", help="write the expected verdicts")
    parser.add_argument("--guise", help=argparse.SUPPRESS)
    parser.add_argument("--report", help=argparse.SUPPRESS)
    parser.add_argument("tests", nargs="*", help="names; by default all")
    return parser


# --- one guise, in a process of its own ---------------------------------------------------


def _run_guise(asked: argparse.Namespace) -> None:
    from dlcp_client import c10d  # noqa: PLC0415  # importing torch takes seconds
    from tests.c10d.gloo_transport import GlooTransport  # noqa: PLC0415
    from tests.conformance import suite  # noqa: PLC0415

    parent = os.getppid()
    case = suite.suite_class(asked.ranks, asked.guise)
    if asked.transport == "gloo":
        c10d.register(GlooTransport)
    with Path(asked.report).open("w") as report:
        for test in asked.tests or suite.names(case):
            if os.getppid() != parent:  # killed: nobody is left to end this process
                return
            for outcome in suite.run(case, [test]):
                print(json.dumps(asdict(outcome)), file=report, flush=True)


# --- all of them --------------------------------------------------------------------------


def _best(asked: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Outcome by test: in the first guise in which the suite did not skip it."""
    found: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        tests: list[str] = asked.tests  # none: all of them
        for guise in GUISES:
            for outcome in _in_guise(asked, guise, tests, Path(folder)):
                held = found.setdefault(outcome["test"], outcome)
                if held["verdict"] == "skip" != outcome["verdict"]:
                    found[outcome["test"]] = outcome | {"guise": guise}
            tests = [test for test, outcome in found.items() if outcome["verdict"] == "skip"]
            if not tests:
                break
    return found


def _in_guise(
    asked: argparse.Namespace, guise: str, tests: Sequence[str], folder: Path
) -> Iterable[dict[str, str]]:
    report = folder / f"{guise}.jsonl"
    command = [sys.executable, "-m", "tests.conformance.run", "--ranks", str(asked.ranks)]
    command += ["--transport", asked.transport, "--guise", guise, "--report", str(report)]
    log = HERE.parents[1] / f".conformance-{asked.ranks}-{guise}.log"
    environment = os.environ | {"TMPDIR": str(folder)}  # the suite leaves files there
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, *tests],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            status = process.wait(PASS_LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what a test left behind
            process.wait()
    if status:
        sys.exit(f"the suite as {guise} ended with status {status}; see {log}")
    return [json.loads(line) for line in report.read_text().splitlines()]


# --- what is expected ---------------------------------------------------------------------


def _expected_file(ranks: int) -> Path:
    return HERE / f"expected_{ranks}_ranks.txt"


def _read(path: Path) -> dict[str, tuple[str, str]]:
    """(verdict, remark) by test. One line per test: verdict, name, and a remark."""
    if not path.exists():
        return {}
    rows = (line.split(maxsplit=2) for line in path.read_text().splitlines() if line)
    return {row[1]: (row[0], row[2] if len(row) > 2 else "") for row in rows}


def _write(
    path: Path, found: dict[str, dict[str, str]], before: dict[str, tuple[str, str]]
) -> None:
    """Remarks on failures are written by hand, and kept."""
    lines = []
    for test, outcome in sorted(found.items()):
        verdict = outcome["verdict"]
        remark = {"pass": f"as {outcome['guise']}" if "guise" in outcome else "",
                  "skip": outcome["detail"].splitlines()[0] if outcome["detail"] else "",
                  "fail": before.get(test, ("", ""))[1] or "WHY?"}[verdict]  # fmt: skip
        lines.append(f"{verdict} {test} {remark}".rstrip())
    path.write_text("\n".join(lines) + "\n")


def _compare(
    found: dict[str, dict[str, str]], expected: dict[str, tuple[str, str]], *, only: Sequence[str]
) -> int:
    wanted = {test: expected[test] for test in expected if not only or test in only}
    wrong = 0
    for test in sorted(wanted.keys() | found.keys()):
        verdict = found.get(test, {"verdict": "missing", "detail": ""})
        expect = wanted.get(test, ("nothing", ""))[0]
        if verdict["verdict"] != expect:
            wrong += 1
            print(f"{test}: {verdict['verdict']}, expected {expect}\n{verdict['detail']}")
    print("as expected" if not wrong else f"{wrong} tests are not as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
