"""The command `dlcpd server`: the shards of one process, until it is told to end."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dlcp_client.environment import Environment
from dlcp_client.job.secret import job_secret
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.server.config import ServerConfig, load
from dlcp_client.server.hosting import HostedShards
from dlcpd.contract.command_line import Parser
from dlcpd.contract.errors import BadConfig, DlcpError

CLEAN: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # argparse's own code for bad usage


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve. Exit code: 0 told to end, 1 runtime failure, 2 bad usage or configuration."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s"
    )
    try:
        return _serve(load(options.config), standby=options.standby)
    except BadConfig as exc:
        sys.stderr.write(f"dlcpd server: {exc}\n")
        return USAGE
    except DlcpError as exc:
        sys.stderr.write(f"dlcpd server: {exc}\n")
        return FAILED


def _serve(config: ServerConfig, *, standby: bool) -> int:
    """Serve until a signal. Raises: BadConfig before serving; DlcpError that ended a shard."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    directory = Directory(FileStore(config.store), config.name, job_secret(Environment.read()))
    host_daemon = HostDaemon(config.socket or None, config.daemon_config or None)
    try:
        with HostedShards(config, directory, host_daemon) as hosting:
            hosting.run(stop, standby=standby)
    finally:
        host_daemon.close()
    return CLEAN


def _parser() -> Parser:
    parser = Parser(prog="dlcpd server", description="Run shards of a parameter server.")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", required=True, help="configuration file (TOML)"
    )
    parser.add_argument(
        "--standby",
        action="store_true",
        help="if another process serves a shard, wait for its end, then take over",
    )
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
