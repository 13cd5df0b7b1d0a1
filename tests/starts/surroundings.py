"""A program that says what it was started with, and ends as it is told: surroundings.py END.

Prints a line of JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Final

SET_BY_READLINE: Final = ("LINES", "COLUMNS")  # and not in os.environ of the process that has it
THREADS: Final = 0b11 << 31  # SIGCANCEL and SIGSETXID of the C library, which a thread handles


def shown(name: str) -> list[str]:
    """The words of a file of /proc, which a forked program may not fill."""
    words = Path("/proc/self", name).read_text().rstrip("\0").split("\0")
    return [word for word in words if word.partition("=")[0] not in SET_BY_READLINE]


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def main(end: str) -> None:
    """Say it, and end by an exit status, an error or a signal."""
    listed = [int(name) for name in os.listdir("/proc/self/fd")]  # that of the list, too
    status = Path("/proc/self/status").read_text().splitlines()
    signals = [
        int(line.split()[1], 16) & ~THREADS
        for line in status
        if line.startswith(("SigBlk", "SigIgn", "SigCgt"))
    ]
    streams = {
        name: [
            str(stream),
            stream.errors,
            stream.line_buffering,
            stream.write_through,
        ]
        for name in ("stdin", "stdout", "stderr")
        if (stream := getattr(sys, name)) is not None
    }
    said = {
        "name": __name__,
        "words": sys.argv,
        "variables": {name: os.environ[name] for name in os.environ if name not in SET_BY_READLINE},
        "shown": [shown("cmdline"), shown("environ")],
        "path": sys.path,
        "folder": os.getcwd(),
        "descriptors": sorted(number for number in listed if is_open(number)),
        "parent": os.getppid(),
        "leads": os.getsid(0) == os.getpid(),
        "group": os.getpgid(0) == os.getpid(),
        "umask": os.umask(0),
        "signals": signals,
        "streams": streams,
        "read": sys.stdin.read() if sys.stdin else None,
        "modules": "tests.starts.surroundings" in sys.modules,
    }
    forked = "tests.starts.forking" in sys.modules
    sys.stdout.write(json.dumps({"forked": forked, "said": said}))
    if end in ("signal", "interrupt"):
        sys.stdout.flush()
    sys.stderr.write("an error\n")
    if end == "raise":
        raise ValueError(end)
    if end == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    if end == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
    sys.exit(int(end) if end.isdigit() else end or None)


if __name__ == "__main__":
    main(sys.argv[1])
