"""The command `dlcpd`: reads the command line and the environment, and runs the daemon."""

import argparse
import asyncio
import errno
import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from dlcpd.contract.command_line import Parser
from dlcpd.contract.errors import BadConfig, DaemonUnavailable, DlcpError
from dlcpd.contract.printable import lines
from dlcpd.daemon import commands, early_signals, log
from dlcpd.daemon.activation import activated
from dlcpd.daemon.clients.server import claim
from dlcpd.daemon.config.effective import Automatic, resolved, to_toml
from dlcpd.daemon.config.file import load
from dlcpd.daemon.config.tables import LEVELS, LOG, Config
from dlcpd.daemon.engine_process import ENGINE
from dlcpd.daemon.metrics import web_config
from dlcpd.daemon.service import Service
from dlcpd.daemon.show_versions import ShowVersions
from dlcpd.ipc.oom_score import undo_what_was_added
from dlcpd.ipc.signals import ignore_all
from dlcpd.ipc.socket_folder import SocketFolder
from dlcpd.ipc.standard_output import open_missing, write

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
try:
    import uvloop
except ModuleNotFoundError:  # not built for this Python: control is slower, data is not
    pass
else:
    new_event_loop = uvloop.new_event_loop

LEAST_DESCRIPTORS: Final = 48  # the daemon itself has 20, and a rank some more
CLEAN: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # argparse's own code for bad usage


def main(arguments: Sequence[str] | None = None, engine_command: Sequence[str] = ENGINE) -> int:
    """Run the daemon. Exit code: 0 clean, 1 runtime failure, 2 bad usage or configuration.

    `engine_command` starts another engine that speaks dlcpd.io.control_frames.
    """
    open_missing()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        if (command := commands.found(given)) is not None:
            early_signals.release()
            return command(given[1:])
    except BadConfig as exc:
        return _complain(exc, USAGE)
    options = _options(given)
    if options.check_config:
        early_signals.release()
    elif not options.embedded:  # whose signals its trainer has blocked
        early_signals.end_on_signals()
    try:
        return _run(options, engine_command)
    except BadConfig as exc:
        return _complain(exc, USAGE)
    except DlcpError as exc:
        return _complain(exc, FAILED)
    except OSError as exc:  # of the kernel: no process, descriptor or memory is left
        return _complain(DaemonUnavailable(f"cannot start: {exc.strerror or exc}"), FAILED)


def _options(given: Sequence[str]) -> argparse.Namespace:
    """The options of a daemon. Raises: SystemExit, after a line on stderr."""
    parser = _parser()
    options = parser.parse_args(given)
    if options.embedded != (options.session_fd is not None):
        parser.error("--embedded and --session-fd go together")
    if options.ledger_inputs and options.ledger is None:
        parser.error("--ledger-inputs needs --ledger")
    if options.listen_fd is not None and not options.embedded:
        parser.error("--listen-fd needs --embedded")
    if options.listen_folder_fd is not None and options.listen_fd is None:
        parser.error("--listen-folder-fd needs --listen-fd")
    return options


def _run(options: argparse.Namespace, engine_command: Sequence[str]) -> int:
    """Raises: DlcpError."""
    config = _configuration(options)
    if options.check_config:
        web_config.load(config.metrics.web_config)
        write(to_toml(config), sys.stdout)
        return CLEAN
    _raise_descriptor_limit()
    if options.embedded:
        ignore_all()
        undo_what_was_added()
    journal = log.journal_of(os.environ.get("JOURNAL_STREAM", ""))
    log.configure(config.daemon.log_level, config.daemon.log_format, to_journal=journal)
    client = inherited_socket(options.session_fd) if options.embedded else None
    automatic = Automatic() if options.embedded else Automatic.of(_written(options))
    listener = _listener(options)
    folder = _folder(options, listener)
    alone = client is None and listener is None
    claimed = claim(Path(config.daemon.socket)) if alone else None  # before ports and engines
    again = partial(_configuration, options)
    try:
        service = Service(config, automatic, os.environ, engine_command, again)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(service.run(client, listener, claimed))
    finally:
        if claimed is not None:
            claimed.release()
        if folder is not None:
            folder.remove()


def _configuration(options: argparse.Namespace) -> Config:
    """Read command line, environment and file, and resolve them. Raises: BadConfig."""
    config = _with_log_level(_written(options), os.environ.get(LOG, ""))
    return resolved(_with_ledger(config, options), embedded=options.embedded)


def _written(options: argparse.Namespace) -> Config:
    """The file, or the defaults. Raises: BadConfig."""
    file = options.check_config or options.config
    return load(file) if file else Config()


def _with_log_level(config: Config, level: str) -> Config:
    """The environment overrides the file. Raises: BadConfig."""
    if not level:
        return config
    if level not in LEVELS:
        raise BadConfig(f"{LOG}={level}: use one of {', '.join(LEVELS)}")
    return replace(config, daemon=replace(config.daemon, log_level=level))


def _listener(options: argparse.Namespace) -> socket.socket | None:
    """The listening socket that another process passed, or None. Raises: BadConfig."""
    if options.embedded:  # LISTEN_FDS, if set, is meant for the trainer
        return None if options.listen_fd is None else inherited_listener(options.listen_fd)
    return activated(os.environ, os.getpid(), partial(inherited_listener, option="LISTEN_FDS"))


def _folder(options: argparse.Namespace, listener: socket.socket | None) -> SocketFolder | None:
    """The folder of the listening socket, if this process is to remove it."""
    if listener is None or options.listen_folder_fd is None:
        return None
    os.set_inheritable(options.listen_folder_fd, False)
    return SocketFolder(options.listen_folder_fd, Path(listener.getsockname()).parent)


def _with_ledger(config: Config, options: argparse.Namespace) -> Config:
    """The ledger options of the command line override the file."""
    if options.ledger is None:
        return config
    inputs = options.ledger_inputs or config.ledger.inputs
    ledger = replace(config.ledger, directory=str(options.ledger.absolute()), inputs=inputs)
    return replace(config, ledger=ledger)


def inherited_socket(descriptor: int) -> socket.socket:
    """The connected SEQPACKET socket that a parent process left open.

    Raises: BadConfig.
    """
    return _inherited(descriptor, "--session-fd", socket.socket.getpeername)


def inherited_listener(descriptor: int, option: str = "--listen-fd") -> socket.socket:
    """The listening SEQPACKET socket that a parent process left open; `option` names it in errors.

    Raises: BadConfig.
    """

    def look(sock: socket.socket) -> None:
        if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sock.setblocking(False)
        sock.set_inheritable(False)

    return _inherited(descriptor, option, look)


def _inherited(
    descriptor: int, option: str, look: Callable[[socket.socket], object]
) -> socket.socket:
    """The socket, if `look` raises no OSError. Raises: BadConfig."""
    try:
        sock = socket.socket(fileno=descriptor)
        look(sock)
    except OSError as exc:
        raise BadConfig(f"{option} {descriptor}: {exc.strerror}") from exc
    if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        raise BadConfig(f"{option} {descriptor}: is no SOCK_SEQPACKET UNIX socket")
    return sock


def _raise_descriptor_limit() -> None:
    """Raise the soft limit, usually 1024: a job of 256 ranks takes three descriptors a peer.

    Raises: BadConfig where no job could run.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = len(os.listdir("/proc/self/fd"))
    if hard != resource.RLIM_INFINITY and hard - taken < LEAST_DESCRIPTORS:
        raise BadConfig(
            f"this process may open {hard} files, and {taken} are open: it needs "
            f"{LEAST_DESCRIPTORS} more, and three per peer of a rank; raise the limit (ulimit -n, "
            f"or LimitNOFILE= of a unit)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _complain(error: DlcpError, code: int) -> int:
    sys.stderr.write(f"dlcpd: {lines(str(error))}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="dlcpd",
        description="Per-host gradient transport daemon.",
        epilog="`dlcpd server --help`: run shards of a parameter server.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--config", type=Path, metavar="FILE", help="configuration file (TOML)")
    what.add_argument(
        "--check-config",
        type=Path,
        metavar="FILE",
        help="print the values in use with FILE, and exit",
    )
    parser.add_argument("--version", action=ShowVersions)
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="DIR",
        help="record waived segments in this folder; overrides [ledger] directory",
    )
    parser.add_argument(
        "--ledger-inputs",
        action="store_true",
        help="with --ledger: also record the contributions of ranks",
    )
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="private daemon: serve one inherited session, then end",
    )
    parser.add_argument(
        "--listen-fd",
        type=int,
        metavar="M",
        help="with --embedded: also serve clients of this listening socket; end with the last one",
    )
    parser.add_argument(
        "--listen-folder-fd",
        type=int,
        metavar="D",
        help="with --listen-fd: the folder of that socket, to remove at the end",
    )
    parser.add_argument(
        "--session-fd", type=int, metavar="N", help="with --embedded: socket of the session"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
