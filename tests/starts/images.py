"""What processes have imported from which programs fork."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final

from dlcpd import starter

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"
OPTIONS: Final = ("-P", "-s", "-u", "-m")  # of the interpreter
WITH_PARENT: Final = "dlcp_lab.ranks.with_parent"  # PID MODULE
# Variables that have an effect before a program's first line, or while it imports modules.
READ_EARLY: Final = ("PYTHON", "LD_", "DLCPD_TRANSFER")
UNREAD: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONSAFEPATH")


@dataclass(frozen=True, slots=True)
class Image:
    """Imported modules, and the programs that need no others before their first line."""

    name: str
    programs: frozenset[str]  # modules, files, and folders of files
    imports: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)  # that its imports have read

    def suits(self, variables: Mapping[str, str], own: Mapping[str, str]) -> bool:
        """Whether imports of a program with these variables would be as they are in an image that
        a process with the variables `own` has made."""
        if any(map(_has_other_modules, variables.get("PYTHONPATH", "").split(os.pathsep))):
            return False
        return self._early(variables) == self._early({**own, **self.environ})

    def _early(self, variables: Mapping[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in variables.items()
            if name in self.environ or (name.startswith(READ_EARLY) and name not in UNREAD)
        }


def _has_other_modules(folder: str) -> bool:
    """Whether modules in a folder may take the place of those that an image has imported."""
    return os.path.isdir(folder) and not Path(folder).resolve().is_relative_to(ROOT)


DAEMON: Final = Image(
    "daemon",
    frozenset(
        {
            "dlcpd",
            "dlcpd.daemon.main",
            "dlcpd.io.engine",
            "dlcpd.io.own_costs",
            "dlcpd.ctl.main",
            "dlcp_client.server.embedded",
            "dlcp_client.server.main",
            str(TESTS / "daemon" / "run_with_stand_in.py"),
            str(TESTS / "daemon" / "stand_in_engine.py"),
            str(TESTS / "starts" / "surroundings.py"),
        }
    ),
    (
        "argparse",
        "contextlib",
        "dlcp_client.server.main",
        "dlcp_lab.ranks.with_parent",
        "dlcpd.ctl.main",
        "dlcpd.daemon.main",
        "dlcpd.io.engine",
        "dlcpd.io.own_costs",
        "uvloop",
    ),
)
RANK: Final = Image(
    "rank",
    frozenset(
        {
            "dlcp_lab.ranks.rank",
            "tests.faults.paused_training",
            "torch.distributed.run",
            str(ROOT / "examples"),
            str(TESTS / "c10d"),
            str(TESTS / "recipes"),
            str(TESTS / "server"),
        }
    ),
    (*DAEMON.imports, "torch", "torch._dynamo", "torch.distributed.run", "torch.nn.parallel"),
    {"OMP_NUM_THREADS": "1"},  # read when torch is imported
)
IMAGES: Final = {image.name: image for image in (DAEMON, RANK)}


def load(image: Image) -> None:
    """Import the modules of an image into this process."""
    for name in image.imports:
        import_module(name)


def image_of(words: Sequence[str]) -> Image | None:
    """The image for a command line; None: it is to be executed."""
    program = _program(words)
    names = {program, str(Path(program).parent)} if os.path.isabs(program) else {program}
    return next((image for image in IMAGES.values() if names & image.programs), None)


def _program(words: Sequence[str]) -> str:
    """The module or file that a command line runs; "": it is no Python program."""
    at = next((at for at, word in enumerate(words) if at and word not in OPTIONS), 0)
    if not at or words[0] != sys.executable:
        return ""
    if words[at] != starter.STARTER:
        return words[at]
    rest = [word for word in words[at + 1 :] if not os.path.isabs(word)]
    return rest[2] if rest[0] == WITH_PARENT else rest[0]
