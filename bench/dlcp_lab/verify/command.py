"""`dlcpctl verify`: promises P1-P5 on real daemons with injected loss, against a reference."""

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from dlcp_lab.emulation.patience import peer_timeout
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import on_loopback, running
from dlcp_lab.report.amounts import show_fraction
from dlcp_lab.report.checks import Check, broken, report
from dlcp_lab.verify.judge import judge
from dlcpd import __version__
from dlcpd.cli.output import Output
from dlcpd.core.wire.sizes import BASE
from dlcpd.daemon.config.tables import NetworkTable

TIMEOUT: Final = 120.0  # seconds for all ranks; four hosts on two idle cores take ten
STEPS: Final = 6  # bounded steps; a digit counts to seven, and the flush is the seventh


def verify(options: argparse.Namespace, output: Output) -> int:
    """Run, judge and print. Exit code 1 when a promise is broken."""
    begin = time.monotonic()
    # Checks by segment need one size throughout: the size with which every path begins.
    network = NetworkTable(segment_size=BASE, peer_timeout=peer_timeout())
    # Every chunk is in the engines' digest, so their divergence alarm is tested as well.
    plans = on_loopback(
        options.hosts, network=network, loss=options.loss, seed=options.seed, digest_every=1
    )
    output.progress(f"{options.hosts} daemons on loopback")
    with running(plans) as hosts:
        work = launch.Work("dlcp_lab.verify.rank", _arguments(options, network), TIMEOUT)
        seen = launch.run(hosts, work, progress=output.progress)
    max_loss = options.max_loss if options.mode == "bounded" else 0.0
    checks = judge(seen, max_loss=max_loss, segment_size=network.largest_segment)
    _print(options, output, seen, checks)
    output.document(_document(options, seen, checks, time.monotonic() - begin))
    return 1 if broken(checks) else 0


def _arguments(options: argparse.Namespace, network: NetworkTable) -> dict[str, Any]:
    return {
        "mode": options.mode,
        "max_loss": options.max_loss,
        "seed": options.seed,
        "steps": STEPS,
        "segment_size": network.largest_segment,
        "chunk_bytes": network.chunk_bytes,
    }


def _print(
    options: argparse.Namespace,
    output: Output,
    seen: Sequence[dict[str, Any]],
    checks: Sequence[Check],
) -> None:
    injected = sum(one["books"]["injected"] for one in seen)
    output.line(
        f"{options.hosts} hosts, {options.mode} mode, INJECTED loss "
        f"{show_fraction(options.loss)} at each host's sockets: they dropped {injected} "
        f"datagrams, seed {options.seed}"
    )
    for line in report(checks):
        output.line(line)


def _document(
    options: argparse.Namespace,
    seen: Sequence[dict[str, Any]],
    checks: Sequence[Check],
    seconds: float,
) -> dict[str, Any]:
    return {
        "command": "verify",
        "version": __version__,
        "hosts": options.hosts,
        "mode": options.mode,
        "injected_loss": options.loss,
        "injected_datagrams": sum(one["books"]["injected"] for one in seen),
        "max_loss": options.max_loss if options.mode == "bounded" else 0.0,
        "seed": options.seed,
        "seconds": seconds,
        "broken": broken(checks),
        "checks": [asdict(check) for check in checks],
    }
