"""Run one program as a rank on each host of an emulated switch.

    sudo .venv/bin/python -m bench.two_hosts --rate 1gbit --loss 0.01 -- \\
        .venv/bin/python -m bench.gloo_all_reduce --sizes 1048576 --repeat 20

The program finds what torchrun would give it: RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT (rank 0's host), and beside these HOST_ADDRESS (its own) and
GLOO_SOCKET_IFNAME. At the end one line per switch port says what the port did.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.switch import Switch, SwitchError, cleanup, switch

MASTER_PORT: Final = 29500  # torchrun's; each switch has its own port space
TIMED_OUT: Final = 124  # exit status, as timeout(1) says it


def rank_environment(net: Switch, rank: int) -> dict[str, str]:
    """The environment of one rank: this process's own, and its place in the job."""
    place = {
        "RANK": str(rank),
        "WORLD_SIZE": str(net.hosts),
        "MASTER_ADDR": net.address(0),
        "MASTER_PORT": str(MASTER_PORT),
        "HOST_ADDRESS": net.address(rank),
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    return os.environ | place


def run_ranks(net: Switch, argv: Sequence[str], *, timeout: float) -> int:
    """Run `argv` on every host and wait; the first exit status that is not 0, or 0.

    The first failure or `timeout` (seconds) ends the wait: a rank that waits for a
    dead one must not keep the switch. What still runs is ended with the switch.
    """
    ranks = [net.run(r, argv, env=rank_environment(net, r)) for r in range(net.hosts)]
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        codes = [child.poll() for child in ranks]
        if any(codes) or None not in codes:
            return next((code for code in codes if code), 0)
        _wait_briefly(ranks)
    print(f"two_hosts: not finished after {timeout:.0f} s", file=sys.stderr)
    return TIMED_OUT


def _wait_briefly(ranks: Sequence[subprocess.Popen[Any]]) -> None:
    running = next(child for child in ranks if child.poll() is None)
    try:
        running.wait(0.1)
    except subprocess.TimeoutExpired:
        return


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="1gbit", help="of each port, as tc writes it")
    parser.add_argument("--loss", type=float, default=0.0, help="fraction of packets, 0..1")
    parser.add_argument("--buffer", type=int, default=256 * 1024, help="bytes per port")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds")
    parser.add_argument("--cleanup", action="store_true", help="remove left-overs, run nothing")
    parser.add_argument("argv", nargs="*", metavar="PROGRAM", help="program and its arguments")
    options = parser.parse_args()
    if not options.argv and not options.cleanup:
        parser.error("a program is needed, after --")
    return options


def _run(options: argparse.Namespace) -> int:
    if options.cleanup:
        print("\n".join(cleanup()) or "nothing left over")
        return 0
    with switch(
        options.rate, loss=options.loss, buffer_bytes=options.buffer, hosts=options.hosts
    ) as net:
        status = run_ranks(net, options.argv, timeout=options.timeout)
        for host in range(net.hosts):
            print(f"port {host}: {net.port(host)}", file=sys.stderr)
        print(f"random loss took {net.lost_packets()} packets", file=sys.stderr)
    return status


def main() -> int:
    """Command line; the exit status is the first failing rank's."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # tears down
    try:
        return _run(_options())
    except SwitchError as error:
        print(f"two_hosts: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
