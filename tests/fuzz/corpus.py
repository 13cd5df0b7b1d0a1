"""The corpus: small inputs, each of which reached a branch that those before it did not."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import coverage

from tests.fuzz.target import Target

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = Path(__file__).with_name("corpus")
PACKAGES: Final = [str(ROOT / name) for name in ("dlcpd", "client/dlcp_client", "switchcfg")]
MAX_FILE: Final = 4096  # bytes of an input that is kept; what says more, a smaller one says too
Branch = tuple[str, int, int]


def files(target: Target) -> list[Path]:
    """The inputs of a target, smallest first."""
    return sorted(
        (FOLDER / target.name).glob("*"), key=lambda file: (file.stat().st_size, file.name)
    )


def branches(target: Target, data: bytes) -> set[Branch]:
    """What of this project's code an input runs through: pairs of lines, one after the other."""
    measured = coverage.Coverage(
        data_file=None, branch=True, source=PACKAGES, config_file=False, messages=False
    )
    measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-measured"])
    with measured.collect():
        target.outcome(data)
    found = measured.get_data()
    return {(file, *arc) for file in found.measured_files() for arc in found.arcs(file) or ()}


def reduced(target: Target, inputs: Iterable[bytes]) -> tuple[list[bytes], int]:
    """Those inputs, smallest first, that add a branch to the seeds' and to those before them; and
    how many branches that makes."""
    known: set[Branch] = set()
    for seed in target.seeds:
        branches(target, seed)  # what happens once per process is not an input's doing
        known |= branches(target, seed)
    kept = []
    for data in sorted({*inputs}, key=lambda data: (len(data), data)):
        if len(data) <= MAX_FILE and (fresh := branches(target, data) - known):
            known |= fresh
            kept.append(data)
    return kept, len(known)


def store(target: Target, inputs: list[bytes]) -> None:
    """Make the folder of a target hold these and no others."""
    folder = FOLDER / target.name
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    for data in inputs:
        (folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
