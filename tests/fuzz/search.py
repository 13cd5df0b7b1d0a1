"""The fuzzer's own process: `python -m tests.fuzz.search TARGET FOLDER SECONDS SEED`.

libFuzzer, through atheris, ends the process itself: what it found lies in FOLDER, and how often
which outcome was seen in FOLDER.json.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import atheris

with atheris.instrument_imports(include=["dlcpd", "dlcp_client.job", "switchcfg"]):
    from tests.fuzz.targets import TARGETS

WRITTEN_EVERY: Final = 500  # executions
MAX_LENGTH: Final = 4096  # bytes of an input


def main(name: str, folder: Path, seconds: str, seed: str) -> None:
    """Does not return. An exception that a target may not raise ends it as a crash."""
    target, outcomes = TARGETS[name], Counter[str]()
    statistics = folder.with_suffix(".json")

    def once(data: bytes) -> None:
        outcomes[target.outcome(data)] += 1
        if outcomes.total() % WRITTEN_EVERY == 0:
            statistics.write_text(json.dumps(outcomes))

    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={MAX_LENGTH}",
        f"-artifact_prefix={folder}.crash-",
        "-rss_limit_mb=4096",
        "-timeout=30",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(folder)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:5])
