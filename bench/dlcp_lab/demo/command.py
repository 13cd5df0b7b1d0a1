"""`dlcpctl demo`: one small training over Gloo and over dlcpd, a step each in turn.

Both have the same conditions: an emulated fabric that is congested and loses datagrams, or, on a
host that allows none, loopback without loss, where no time is compared.
"""

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dlcp_lab.demo.full import full
from dlcp_lab.demo.pictures import html
from dlcp_lab.demo.turns import Turns, answer, header, judge, rows
from dlcp_lab.emulation import unavailable
from dlcp_lab.emulation.own_namespace import inside
from dlcp_lab.emulation.patience import peer_timeout
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import Hosts, on_loopback, running
from dlcp_lab.report.amounts import show_fraction
from dlcp_lab.report.checks import broken, report
from dlcp_lab.scenarios import congested
from dlcp_lab.scenarios.congested import HOSTS, LOSS, PATHS
from dlcp_lab.scenarios.job import on_fabric
from dlcpd import __version__, starter
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.daemon.config.tables import NetworkTable

HOST_RATE, SPINE_RATE = "120mbit", "60mbit"
SECONDS: Final = 40.0  # of steps; processes and imports take 15 more on two idle cores
REPORT: Final = Path("dlcpd-demo.html")  # pictures
TIMEOUT: Final = 900.0  # seconds for everything, on a machine that is busy


def demo(options: argparse.Namespace, output: Output) -> int:
    """Train, print, judge. Exit code 1 when a promise is broken."""
    if options.full:
        return full(options, output)
    picture = OutputFile("--report", options.report)
    picture.check()
    begin = time.monotonic()
    reason = unavailable()
    if reason and not options.inside and (again := inside(_command(options))):
        os.execvpe(again[0], again, starter.environment())  # noqa: S606  # this command again
    turns = Turns(_train(reason, options.seconds, output), fair=not reason)
    for line in _said(turns, reason):
        output.line(line)
    checks = list(judge(turns))
    for line in report(checks):
        output.line(line)
    found = {
        "command": "demo",
        "version": __version__,
        "hosts": HOSTS,
        "fabric": not reason,
        "seconds": time.monotonic() - begin,
        "broken": broken(checks),
        "checks": [asdict(check) for check in checks],
        "lanes": turns.document(),
    }
    picture.write(html(turns, checks, _conditions(reason)))
    output.line(f"{options.report}: times, losses and paths as pictures; open it in a browser")
    output.document(found)
    return 1 if broken(checks) else 0


def _command(options: argparse.Namespace) -> list[str]:
    """The same demo, which does not look for a namespace again."""
    words = ["demo", "--inside", "--report", str(options.report)]
    words += ["--seconds", str(options.seconds)]
    words += ["--json", options.json] if options.json else []
    return starter.command("dlcpd.ctl.main", *words)


def _train(reason: str, seconds: float, output: Output) -> list[dict[str, Any]]:
    work = launch.Work("dlcp_lab.demo.turns_rank", {"seconds": seconds}, TIMEOUT)
    with ExitStack() as stack:
        output.line(_conditions(reason))
        hosts = stack.enter_context(_loopback()) if reason else _fabric(stack)
        return launch.run(hosts, work, progress=output.progress)


def _loopback() -> Any:
    return running(on_loopback(HOSTS, 2, network=NetworkTable(peer_timeout=peer_timeout())))


def _fabric(stack: ExitStack) -> Hosts:
    plan = congested.plan(1, HOST_RATE, SPINE_RATE)
    net, hosts = stack.enter_context(on_fabric(plan, {"entropy": PATHS}))
    stack.enter_context(net.background(*congested.others("48mbit", TIMEOUT)))
    return hosts


def _conditions(reason: str) -> str:
    if reason:
        return (
            f"this host cannot create the emulated fabric ({reason}), so the demo runs {HOSTS} "
            "hosts on loopback without loss. It judges promises; the times say nothing about "
            "a network"
        )
    return (
        f"the same fabric for both: {HOSTS} hosts on 2 leaves and 2 spines, {HOST_RATE} to a "
        f"host, {SPINE_RATE} to a spine, {show_fraction(LOSS)} random loss per switch output, "
        "with a full TCP flow and bursts of UDP as background"
    )


def _said(turns: Turns, reason: str) -> Sequence[str]:
    shown = table.render(header(turns), list(rows(turns)), left=1)
    return (shown,) if reason else (shown, answer(turns))
