"""Builds the compiled data path with sanitizers: `python -m tests.datapath.sanitized FOLDER`
prints the environment in which any test of the suite then runs with it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from dlcpd.io.datapath import library
from dlcpd.io.datapath.choices import SETTING

SOURCES: Final = sorted(Path(library.__file__).parent.glob("*.c"))
FLAGS: Final = (
    "-std=c99", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-shared", "-fPIC",
)  # fmt: skip


def build(folder: Path) -> Path:
    """The library; warnings are errors."""
    made = folder / "datapath-sanitized.so"
    subprocess.run(["gcc", *FLAGS, "-o", str(made), *map(str, SOURCES)], check=True)
    return made


def environment(made: Path) -> dict[str, str]:
    """For processes that shall use it. Python itself leaks by design: leaks are not looked for."""
    needed = ("libasan.so", "libstdc++.so")  # the second for torch, whose exceptions asan follows
    return {
        **os.environ,
        SETTING: str(made),
        "LD_PRELOAD": ":".join(_library(name) for name in needed),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def _library(name: str) -> str:
    command = ["gcc", f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return str(Path(found).resolve())


if __name__ == "__main__":
    ours = environment(build(Path(sys.argv[1])))
    for key in (SETTING, "LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS"):
        print(f"export {key}={ours[key]}")
