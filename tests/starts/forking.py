"""In place of `subprocess._fork_exec`: forks programs of `images`, and executes all others."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.starts.images import IMAGES, ROOT, Image, image_of
from tests.starts.program import Program, interpreters_path, open_descriptors, run

SERVER: Final = Path(__file__).with_name("server.py")
PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
NAMESPACES: Final = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
ROOM: Final = 4096 * "."  # for the command lines and variables of programs
MAX_ANSWER: Final = 32  # bytes: a process id
_LIBC: Final = ctypes.CDLL(None)
_execute: Final = subprocess._fork_exec  # type: ignore[attr-defined]  # noqa: SLF001


class Server:
    """Owns the process that programs of an image fork from; it starts with the first of them."""

    def __init__(self, image: Image) -> None:
        self._image, self._environ = image, dict(os.environ)
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes]

    def start(self, program: Program, descriptors: Sequence[int]) -> int:
        """The new child of this process. Raises: OSError."""
        if self._socket is None:
            self._socket = self._started()
        _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1)  # an orphan of the server is a child of this process
        try:
            socket.send_fds(self._socket, [json.dumps(asdict(program)).encode()], descriptors)
            answer = self._socket.recv(MAX_ANSWER)
        except BaseException:  # a test's timeout: the answer could come to the next request
            self.close()
            raise
        finally:
            _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 0)
        if not answer:
            raise OSError("the process that programs fork from has ended")
        return int(answer)

    def _started(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = theirs.fileno()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(number), self._image.name, ROOM],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                env={**self._environ, **self._image.environ, "ROOM": 4 * ROOM},
                cwd=ROOT,
                start_new_session=True,
            )
        return ours

    def close(self) -> None:
        """It ends with its socket; programs go on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._process.wait()


class Forking:
    """How this process starts programs: by its servers, or by forks of itself if it has none."""

    def __init__(self) -> None:
        self.enabled = True
        self.servers: dict[str, Server] = {}  # by image
        self.path = interpreters_path()
        self._lock = threading.Lock()
        self._environ, self._namespaces = dict(os.environ), _namespaces()

    def serve(self) -> None:
        """Use servers from now on."""
        self.servers = {name: Server(image) for name, image in IMAGES.items()}

    def close(self) -> None:
        """End the servers."""
        for server in self.servers.values():
            server.close()

    def image(self, words: Sequence[str], variables: dict[str, str]) -> Image | None:
        """Which image a program forks from; None: it is to be executed."""
        image = image_of(words) if self.enabled else None
        if image is None or not image.suits(variables, self._environ):
            return None
        return image if self._namespaces == _namespaces() else None

    def start(self, image: Image, program: Program, descriptors: list[int], folder: int) -> int:
        """Process id of the new child. Raises: OSError."""
        if self.servers:
            with self._lock:
                return self.servers[image.name].start(program, [folder, *descriptors])
        before = open_descriptors()
        pid = os.fork()
        if pid == 0:
            run(program, descriptors, folder, self.path, before)
        return pid


def _namespaces() -> list[str]:
    return [os.readlink(f"/proc/thread-self/ns/{name}") for name in NAMESPACES]


FORKING: Final = Forking()


def _fork_exec(args: Sequence[Any], *more: Any) -> int:
    """As `_posixsubprocess.fork_exec`."""
    _, close, kept, cwd, environ, read, _, _, write, _, error, _, failed, _, *rest = more[:21]
    session, group, gid, groups, uid, umask, before = rest
    words = [os.fsdecode(word) for word in args]
    variables = dict(os.environ)
    if environ is not None:
        variables = dict(os.fsdecode(line).split("=", 1) for line in environ)
    simple = close and before is None and gid is groups is uid is None
    image = FORKING.image(words, variables) if simple else None
    folder = -1 if image is None else _folder(cwd)
    if image is None or folder < 0:
        return int(_execute(args, *more))
    standard = {0: read, 1: write, 2: error}
    pairs = [(target, own if own >= 0 else target) for target, own in standard.items()]
    pairs += [(number, number) for number in kept if number != failed]
    pairs = [(target, own) for target, own in pairs if _is_open(own)]
    program = Program(
        words,
        variables,
        targets=[target for target, _ in pairs],
        ignored=[int(number) for number in signal.valid_signals() if _ignored(number)],
        blocked=[int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        session=bool(session),
        group=group,
        umask=umask,
    )
    try:
        return FORKING.start(image, program, [own for _, own in pairs], folder)
    finally:
        os.close(folder)


def _folder(cwd: Any) -> int:
    """A descriptor of the working folder; -1: there is none, and the execution says so."""
    try:
        return os.open(cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1


def _ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


subprocess._fork_exec = _fork_exec  # type: ignore[attr-defined]  # noqa: SLF001
