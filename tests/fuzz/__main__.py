"""Fuzz on: `python -m tests.fuzz TARGET|all --seconds N`.

What reaches new code joins the corpus.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS


def main() -> int:
    """Exit code 1 where a target raised what it may not; the input is printed."""
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=int, default=60, help="for each target; 0: only reduce")
    parser.add_argument("--seed", type=int, default=1, help="of the mutations; 0 is any")
    options = parser.parse_args()
    if options.seconds and find_spec("atheris") is None:
        print("atheris is not installed: pip install -e '.[fuzz]'")
        return 2
    chosen = TARGETS if options.target == "all" else [options.target]
    return max([fuzz(TARGETS[name], options.seconds, options.seed) for name in chosen])


def fuzz(target: Target, seconds: int, seed: int) -> int:
    """One target, in a process of its own; prints what it did."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "inputs"
        folder.mkdir()
        old = [file.read_bytes() for file in corpus.files(target)]
        for number, data in enumerate([*target.seeds, *old]):
            (folder / f"known-{number}").write_bytes(data)
        code = _search(target, folder, seconds, seed) if seconds else 0
        _, before = corpus.reduced(target, old)
        kept, after = corpus.reduced(target, [file.read_bytes() for file in folder.iterdir()])
        corpus.store(target, kept)
        fresh = max(after - before, 0)  # a target's own first run may have counted more
        print(
            f"{target.name}: {fresh} new branches beside {before}; corpus of {len(kept)} files, "
            f"{sum(map(len, kept)):,} B (was {len(old)})",
            flush=True,
        )
    return code


def _search(target: Target, folder: Path, seconds: int, seed: int) -> int:
    command = ["-m", "tests.fuzz.search", target.name, str(folder), str(seconds), str(seed)]
    done = subprocess.run(
        [sys.executable, *command], cwd=corpus.ROOT, capture_output=True, text=True, check=False
    )
    statistics = folder.with_suffix(".json")
    outcomes = json.loads(statistics.read_text()) if statistics.exists() else {}
    shown = ", ".join(f"{name} {count:,}" for name, count in sorted(outcomes.items()))
    print(f"{target.name}: {sum(outcomes.values()):,} executions: {shown}", flush=True)
    for crash in folder.parent.glob("inputs.crash-*"):
        data = crash.read_bytes()
        kept = Path(f"fuzz-{target.name}-{crash.name[-16:]}")
        kept.write_bytes(data)
        print(f"CRASH of {target.name}, input in {kept}: {data[:80]!r}\n{done.stderr[-3000:]}")
    return int(done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
