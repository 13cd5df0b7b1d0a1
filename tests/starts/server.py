"""A process that programs fork from, see tests/starts: server.py FD IMAGE ROOM

It has imported the modules of an image, has one thread, and starts a program for each request.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final, NoReturn

ROOT: Final = Path(__file__).parents[2]
PLACES: Final = tuple(str(ROOT / name) for name in ("", "bench", "client"))
MAX_DESCRIPTORS: Final = 250  # of a request; the kernel takes 253
MAX_REQUEST: Final = 1 << 20  # bytes
LOOK: Final = 0.0002  # seconds between looks at the parent


def main() -> None:
    """Serve until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # pytest ends it
    connection, parent = socket.socket(fileno=int(sys.argv[1])), os.getppid()
    sys.path[:1] = PLACES
    from tests.starts.images import IMAGES, load  # noqa: PLC0415  # once sys.path is in order

    load(IMAGES[sys.argv[2]])
    from tests.starts import forking  # noqa: F401, PLC0415  # programs fork those that they start

    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, MAX_REQUEST, MAX_DESCRIPTORS)
        if not data:
            return
        pid = start(json.loads(data), descriptors, parent)
        connection.send(b"%d" % pid)
        for number in descriptors:
            os.close(number)


def start(request: dict[str, Any], given: list[int], parent: int) -> int:
    """Start a program as a child of `parent`, which adopts orphans: its first parent ends."""
    ours, theirs = os.pipe()
    between = os.fork()
    if not between:
        own = os.getpid()
        if program := os.fork():
            os.write(theirs, b"%d" % program)
            os._exit(0)
        begin(request, given, own, parent)
    os.close(theirs)
    with open(ours) as answer:
        pid = int(answer.read())
    os.waitpid(between, 0)
    return pid


def begin(request: dict[str, Any], given: list[int], first: int, parent: int) -> NoReturn:
    """Become the program, once `parent` is the parent in place of `first`."""
    from tests.starts import program  # noqa: PLC0415  # once sys.path is in order

    while os.getppid() == first:
        time.sleep(LOOK)
    if os.getppid() != parent:  # it did not wait
        os._exit(1)
    folder, *descriptors = given
    path, before = program.interpreters_path(), program.open_descriptors()
    program.run(program.Program(**request), descriptors, folder, path, before)


if __name__ == "__main__":
    main()
