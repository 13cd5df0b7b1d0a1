"""A private daemon: a child process that serves this process and its host peers, then ends."""

import atexit
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from dlcp_client.environment import of_daemon
from dlcp_client.ipc.handshake import ControlConnection
from dlcp_client.ipc.private_socket import PrivateSocket
from dlcpd import starter
from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.contract.limits import MAX_ENGINES
from dlcpd.contract.messages import DELIVERY
from dlcpd.ipc.socket_folder import sweep

STOP_TIMEOUT: Final = 5.0  # seconds for a clean end after the session socket closed
OBITUARY_TIMEOUT: Final = 1.0  # seconds until a daemon that closed its socket has exited
MAX_LINES: Final = 20  # kept of the daemon's output
MAX_LINE: Final = 1024  # characters kept of a line
DEFAULT_SESSIONS: Final = 64  # default of [daemon] max_sessions
MOST_SESSIONS: Final = 1024  # limit of [daemon] max_sessions
_PF_EXITING: Final = 0x4  # flag of Linux's include/linux/sched.h
_FLAGS: Final = 6  # position in /proc/PID/stat, after the name
_DISCARD_PORT: Final = 9  # RFC 863; connecting a UDP socket sends nothing anyway


class Embedded:
    """Owns the child process until other ranks share it; a shared one ends with its last rank.
    If it is killed, this process removes its socket folder, at its own exit at the latest.

    `what`: its name in errors. `sockets`: the folders in which its socket folder may be.
    """

    def __init__(
        self,
        process: "subprocess.Popen[str]",
        *,
        shared: bool = False,
        what: str = "the embedded daemon",
        sockets: Sequence[Path] = (),
    ) -> None:
        self._process: subprocess.Popen[str] | None = process
        self._shared, self._what, self._sockets = shared, what, sockets
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._sweeping = threading.Lock()
        atexit.register(self._sweep_at_exit, process)
        self._relay = threading.Thread(
            target=self._relay_lines, args=(process,), name="dlcpd-stderr", daemon=True
        )
        self._relay.start()

    @property
    def pid(self) -> int | None:
        """Process id of the daemon; None in a forked child, and after the end."""
        return self._process.pid if self._process else None

    def how_it_ended(self) -> str:
        """Exit status and last line of the process, once it has ended."""
        if self._process is None:
            return "it is a child of another process"
        try:
            status = self._process.wait(OBITUARY_TIMEOUT)
        except subprocess.TimeoutExpired:
            return f"{self._what} (process {self._process.pid}) closed its socket"
        self._relay.join(OBITUARY_TIMEOUT)
        last = f"; its last line: {self._lines[-1]}" if self._lines else ", and printed nothing"
        return f"{self._what} {_status(status)}{last}"

    def close(self) -> None:
        """Wait for its end, which follows after the session socket is closed and peers have
        received their data; after a timeout, kill it. A shared process continues for the other
        ranks."""
        process, self._process = self._process, None
        if process is None or self._shared:
            return
        try:
            process.wait(DELIVERY + STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
        self._relay.join(OBITUARY_TIMEOUT)

    def share(self) -> None:
        """Other ranks share it from now on; it ends with the last of them."""
        self._shared = True

    def abandon(self) -> None:
        """In a forked child: the daemon belongs to the parent."""
        if self._process is not None:
            atexit.unregister(self._sweep_at_exit)
            self._process.returncode = 0  # or its finalizer would warn, and try to reap it
            self._process = None

    def _relay_lines(self, process: "subprocess.Popen[str]") -> None:
        """Copy the daemon's messages to this process's stderr, and keep the last ones."""
        if process.stderr is None:
            return
        with process.stderr as lines:
            for line in lines:
                self._lines.append(line.rstrip()[:MAX_LINE])
                with suppress(OSError, ValueError):  # a full disk, or closed: continue reading
                    sys.stderr.write(line)
        process.wait()  # a shared one may outlive the session; leave no zombie
        self._sweep()
        atexit.unregister(self._sweep_at_exit)

    def _sweep_at_exit(self, process: "subprocess.Popen[str]") -> None:
        """Sweep before this process exits: a thread that sweeps ends with the process. The kernel
        closes the sockets of a killed daemon before its end can be awaited."""
        if _is_ending(process.pid):
            with suppress(subprocess.TimeoutExpired):
                process.wait(OBITUARY_TIMEOUT)
        self._sweep()

    def _sweep(self) -> None:
        """Remove the socket folder of a daemon that was killed; that of a live one is claimed."""
        with self._sweeping:
            sweep(self._sockets)


def start(
    config: Path | None,
    master: str,
    private_socket: PrivateSocket | None = None,
    ranks: int = 1,
    options: Sequence[str] = (),
    *,
    sessions: int = 0,
) -> tuple[Embedded, ControlConnection]:
    """Start a daemon for `ranks` ranks of this machine: this one, and those that connect through
    `private_socket`. Without `config`, its address is the one from which this host reaches
    `master`; it has one engine per rank, up to the number of CPUs, and serves at least `sessions`
    sessions. `options`: further command line options.

    Raises: DaemonUnavailable.
    """
    client_end, daemon_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    engines = min(ranks, len(os.sched_getaffinity(0)), MAX_ENGINES)
    text = (
        None if config else _memory_file(default_config(local_address(master), engines, sessions))
    )
    inherited = [daemon_end.fileno(), *([text] if text is not None else [])]
    command = [
        *starter.command("dlcpd.daemon.main"),
        "--embedded",
        "--session-fd",
        str(daemon_end.fileno()),
    ]
    if private_socket is not None:  # also for one rank: others may join later
        fds = private_socket.socket.fileno(), private_socket.place.folder.descriptor
        inherited += fds
        command += ["--listen-fd", str(fds[0]), "--listen-folder-fd", str(fds[1])]
    command += ["--config", str(config or f"/proc/self/fd/{text}"), *options]
    try:
        process = spawn(command, inherited, starter.environment(of_daemon()))
    except BaseException:
        client_end.close()
        raise
    finally:
        daemon_end.close()
        if text is not None:
            os.close(text)
    if private_socket is not None:
        private_socket.give()
    sockets = [private_socket.place.folder.path.parent] if private_socket is not None else []
    shared = private_socket is not None and ranks > 1
    daemon = Embedded(process, shared=shared, sockets=sockets)
    return daemon, ControlConnection(client_end, daemon.how_it_ended)


def spawn(
    command: Sequence[str], inherited: Sequence[int], variables: Mapping[str, str]
) -> "subprocess.Popen[str]":
    """Start a process for `Embedded`, with these descriptors. Raises: DaemonUnavailable."""
    try:
        return _unsignalled(
            command,
            env=variables,
            pass_fds=inherited,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # a terminal's Ctrl-C goes to the trainer only
        )
    except OSError as exc:
        raise DaemonUnavailable(f"cannot start {' '.join(command)}: {exc.strerror}") from exc


def _unsignalled(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start a process with all signals blocked until it ignores them: a start takes 0.5 s, and a
    scheduler's signal in that time would end it. Raises: OSError."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        return subprocess.Popen(command, restore_signals=False, **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def default_config(address: str, engines: int = 1, sessions: int = 0) -> str:
    """The configuration of a daemon with one local address; "auto": that of the default route.
    `sessions`: the least number of sessions to serve."""
    wanted = min(sessions, MOST_SESSIONS)
    more = f"max_sessions = {wanted}\n" if wanted > DEFAULT_SESSIONS else ""
    return (
        f'[daemon]\ncontrol_address = "{address}"\n{more}\n'
        f'[network]\npaths = [{{ address = "{address}", port = 0 }}]\nengines = {engines}\n'
    )


def local_address(master: str) -> str:
    """The local address from which this host reaches the job's store; peers use it, too.

    "auto" if that is unknown: no master, or its name is this host's own and resolves to loopback
    here, as Debian's 127.0.1.1 does, but not on other hosts.
    """
    if not master:
        return "auto"
    if master == "localhost":
        return "127.0.0.1"
    try:
        return _source_address(master)
    except OSError:
        return "auto"


def _source_address(master: str) -> str:
    found = socket.getaddrinfo(master, _DISCARD_PORT, type=socket.SOCK_DGRAM)
    family, kind, _, _, target = found[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        address: str = probe.getsockname()[0]
    loopback = ipaddress.ip_address(address.partition("%")[0]).is_loopback
    return "auto" if loopback and not _is_address(master) else address


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _memory_file(text: str) -> int:
    """A descriptor of an anonymous file with `text`, which leaves nothing behind."""
    descriptor = os.memfd_create("dlcpd.toml")
    os.write(descriptor, text.encode())
    return descriptor


def _is_ending(pid: int) -> bool:
    """Whether a process ends or has ended, though it may not have been waited for: `flags` of
    proc_pid_stat(5). The kernel sets the flag before it closes the descriptors."""
    try:
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        return bool(int(fields.split()[_FLAGS]) & _PF_EXITING)
    except (OSError, ValueError, IndexError):  # no such process, or no such /proc
        return False


def _status(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    return f"was killed by {signal.Signals(-status).name}"
