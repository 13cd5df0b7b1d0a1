"""A program of Python in a fork of this process, in place of a process that executes Python.

Importing the modules of a daemon and its engine takes two seconds of CPU time, a fork of a process
that has imported them takes a hundredth of that. The program itself runs from its first line, as
`runpy` runs it for `python -m` and `python FILE`: with its own arguments, variables, descriptors,
signals, folder, `sys.path` and standard streams, and it ends with its own exit status.

Different from an execution: modules that are imported already, the seed of hashes, and the memory
that is shared with the forked process.
"""

import atexit
import ctypes
import fcntl
import gc
import io
import os
import runpy
import signal
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

from tests.starts.images import OPTIONS

MAIN: Final = "__main__"
# Positions in /proc/PID/stat, after the name, of arg_start and env_start: proc_pid_stat(5).
ARGUMENTS: Final = 45
ENVIRONMENT: Final = 47
_kept: list[Any] = []  # objects of the forked process whose end would have effects in this one


@dataclass(frozen=True, slots=True)
class Program:
    """How a program is started: what `subprocess.Popen` was told, and what processes inherit."""

    words: list[str]  # the command line
    environ: dict[str, str]
    targets: list[int]  # the number of each given descriptor in the program
    ignored: list[int] = field(default_factory=list)  # signals
    blocked: list[int] = field(default_factory=list)  # signals
    session: bool = False  # it leads a new session
    group: int = -1  # its process group; -1: the parent's
    umask: int = -1  # -1: the parent's


def run(
    program: Program,
    descriptors: Sequence[int],
    folder: int,
    path: Sequence[str],
    before: Mapping[int, str],
) -> NoReturn:
    """Become the program: only the frames below remain of what this process was.

    `descriptors`: in the order of `program.targets`. `folder`: a descriptor of the working folder.
    `path`: what `interpreters_path` returns. `before`: open descriptors before the fork.
    """
    status = 1
    try:
        gc.freeze()
        atexit._clear()  # noqa: SLF001  # of the forked process
        os.fchdir(folder)
        _take_descriptors(descriptors, program.targets, before)
        _take_process(program)
        _take_streams("-u" in program.words)
        _run(program.words[1:], path)
        status = 0
    except SystemExit as end:
        status = _status(end.code)
    except KeyboardInterrupt:
        sys.excepthook(*sys.exc_info())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _end(status)


def interpreters_path() -> list[str]:
    """The part of sys.path that no user has chosen: from the library, which may be zipped, on."""
    zipped = "python{}{}.zip".format(*sys.version_info)
    first = next(at for at, place in enumerate(sys.path) if os.path.basename(place) == zipped)
    return sys.path[first:]


def _end(status: int) -> NoReturn:
    """As Python ends, without taking its objects apart."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
        atexit._run_exitfuncs()  # noqa: SLF001
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        status = status or 120  # as Python says that its output was lost
    finally:
        os._exit(status)


def _status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def open_descriptors() -> dict[int, str]:
    """What each descriptor of this process is, as /proc names it."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the list's own is closed by now
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _take_descriptors(
    given: Sequence[int], targets: Sequence[int], before: Mapping[int, str]
) -> None:
    """Number the given descriptors, and close all others.

    Except pipes that came with the fork: libuv, which torch's stores use, makes its pipe again in
    every forked child, and closes its numbers at the next fork, whatever has them by then.
    """
    now = open_descriptors().items()
    made = {at for at, what in now if what.startswith("pipe:") and before.get(at) != what}
    free = max((*targets, *made), default=0) + 1
    moved = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, free) for number in given]
    for number, target in zip(moved, targets, strict=True):
        os.dup2(number, target)
    kept = sorted(made.union(targets))
    for last, following in pairwise((-1, *kept, os.sysconf("SC_OPEN_MAX"))):
        if last + 1 < following:
            os.closerange(last + 1, following)


def _take_process(program: Program) -> None:
    signal.set_wakeup_fd(-1)
    ignored = {*program.ignored, signal.SIGPIPE, signal.SIGXFSZ}  # Python ignores those two
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    if signal.SIGINT not in ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if program.session:
        os.setsid()
    if program.group >= 0:
        os.setpgid(0, program.group)
    if program.umask >= 0:
        os.umask(program.umask)
    os.environ.clear()
    os.environ.update(program.environ)
    _show(program)
    signal.pthread_sigmask(signal.SIG_SETMASK, program.blocked)


def _show(program: Program) -> None:
    """Have /proc show the command line and the variables, as far as there is room: the kernel reads
    them from where it has put those of the forked process."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    words, variables = program.words, map("=".join, program.environ.items())
    for first, texts in ((ARGUMENTS, words), (ENVIRONMENT, variables)):
        start, end = map(int, fields[first : first + 2])
        shown = b"".join(os.fsencode(text) + b"\0" for text in texts)[: end - start - 1]
        ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)


def _take_streams(unbuffered: bool) -> None:
    """Streams of the program; those of the forked process, which may hold output, stay unused."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, f"__{name}__")
        _kept.append((before, getattr(sys, name)))
        stream = None if before is None else _stream(number, before, unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, like: Any, unbuffered: bool) -> Any:
    """None: the descriptor is closed."""
    try:
        raw: Any = io.FileIO(number, "w" if number else "r", closefd=False)
    except OSError:
        return None
    raw.name = like.name
    through = unbuffered or like.write_through
    buffer = io.BufferedReader(raw) if number == 0 else raw if through else io.BufferedWriter(raw)
    stream: Any = io.TextIOWrapper(
        buffer,
        encoding=like.encoding,
        errors=like.errors,
        write_through=through,
        line_buffering=number == 2 and not through,
    )
    stream.mode = like.mode
    return stream


def _run(words: list[str], path: Iterable[str]) -> None:
    options = []
    while words[0] in OPTIONS:
        options.append(words.pop(0))
    module = "-m" in options
    first = os.getcwd() if module else os.path.dirname(os.path.abspath(words[0]))
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [*([] if "-P" in options else [first]), *filter(None, more), *path]
    sys.argv[:] = words
    _kept.append(sys.modules.pop(MAIN, None))
    if module:
        forget(words[0])
        runpy.run_module(words[0], run_name=MAIN, alter_sys=True)
    else:
        forget(*words)
        runpy.run_path(words[0], run_name=MAIN)


def forget(*modules: str) -> None:
    """Modules that are to run as programs are not imported already; their packages are."""
    found = [name for name in modules if name in sys.modules]
    _kept.extend(
        sys.modules.pop(name) for name in found if not hasattr(sys.modules[name], "__path__")
    )
