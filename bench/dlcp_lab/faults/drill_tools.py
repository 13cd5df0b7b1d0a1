"""Asks the tools that report faults, and compares their output with the expected lines."""

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.patience import patience
from dlcp_lab.faults.breakages import JOB, Tool, Voice
from dlcp_lab.faults.cluster import Cluster
from dlcp_lab.faults.drill_training import DrillTraining
from dlcp_lab.faults.network import METRICS_PORT
from dlcpd import starter

ANSWER: Final = 120.0  # seconds in which a tool ends, on an idle machine


@dataclass(frozen=True, slots=True)
class Heard:
    """Output of a tool: the expected lines, and all of it."""

    voice: Voice
    lines: tuple[str, ...]
    missing: tuple[str, ...]  # expressions without a match
    all: str  # the whole output


class Tools:
    """Asks the tools of a cluster and of a training about a fault.

    `marks`: the length of each log when the fault began, bytes.
    """

    def __init__(
        self, cluster: Cluster, training: DrillTraining, marks: Mapping[Path, int]
    ) -> None:
        self._cluster, self._training, self._marks = cluster, training, marks

    def hear(self, voice: Voice) -> Heard:
        """The output of a tool on a host. A tool that does not answer has its error as output."""
        text = self._shorter(self._text(voice))
        lines = text.splitlines()
        found = [next(filter(re.compile(p).search, lines), None) for p in voice.lines]
        missing = [p for p, line in zip(voice.lines, found, strict=True) if line is None]
        shown = tuple(dict.fromkeys(line for line in found if line is not None))
        return Heard(voice, shown, tuple(missing), text)

    def _text(self, voice: Voice) -> str:
        host = self._cluster.hosts[voice.host]
        asked: dict[Tool, Callable[[], str]] = {
            Tool.STATUS: lambda: _dlcpctl("status", "--socket", host.socket),
            Tool.PEERS: lambda: _dlcpctl("peers", "--socket", host.socket),
            Tool.TOP: lambda: _dlcpctl("top", "--once", "--interval", "1", "--socket", host.socket),
            Tool.PAGE: lambda: _page(host.socket),
            Tool.METRICS: lambda: _metrics(self._cluster.network.address(voice.host)),
            Tool.LOG: lambda: self._new(host.daemon.log, leave_out="client=dlcpctl"),
            Tool.TRAINER: lambda: self._new(self._training.logs[voice.host]),
        }
        return asked[voice.tool]()

    def _new(self, log: Path, leave_out: str = "\0") -> str:
        """Lines of a log since the fault began, without lines that contain `leave_out`."""
        data = log.read_bytes()[self._marks.get(log, 0) :].decode(errors="replace")
        return "\n".join(line for line in data.splitlines() if leave_out not in line)

    def _shorter(self, text: str) -> str:
        """The text without paths, times and ids of this run, and with narrower columns."""
        text = text.replace(str(self._cluster.folder), "/run")
        text = re.sub(r"(?m)^ts=\S+ |^\[rank\d\]: ?", "", text)
        return re.sub(r"(?<=\S)  +", "  ", re.sub(rf"\b{JOB}-[0-9a-f]{{16}}\b", JOB, text))


def _dlcpctl(*words: str) -> str:
    limit = patience(ANSWER)
    try:
        done = subprocess.run(
            starter.command("dlcpd.ctl.main", *words),
            env=starter.environment(),
            text=True,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return f"dlcpctl {words[0]} did not end within {limit:g} s"
    return done.stdout


def _page(socket: str) -> str:
    """The alarms that the status page gets, or its error."""
    words = ("page", "--socket", socket, "--listen", "127.0.0.1:0")
    with subprocess.Popen(
        starter.command("dlcpd.ctl.main", *words),
        env=starter.environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as child:
        try:
            said = child.stdout.readline() if child.stdout else ""
            address = re.match(r"http://([^/]+)/", said)
            if address is None:
                return said
            try:
                with urllib.request.urlopen(f"http://{address[1]}/status", timeout=60) as answer:
                    found = json.load(answer)
            except urllib.error.HTTPError as exc:
                found = json.load(exc)
            except OSError as exc:
                return f"page: {exc}"
        finally:
            child.terminate()
    return str(found["error"]) if "error" in found else "\n".join(found["alarms"])


def _metrics(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}:{METRICS_PORT}/metrics", timeout=10) as page:
            return str(page.read().decode())
    except OSError as exc:
        return f"metrics: {exc}"
