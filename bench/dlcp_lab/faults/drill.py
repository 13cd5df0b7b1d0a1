"""The failure drill: inject faults into a training, and show the output of each tool.

    python -m dlcp_lab.faults.drill [--only TITLES] [--write FILE]

Two hosts with two paths, a daemon each, and a DDP training over both. Exit code: 0 every tool
printed its expected lines, 1 one did not.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.scratch import temporary_folders_apart
from dlcp_lab.faults.breakages import BREAKAGES, JOB, VICTIM, Breakage, Tool, Voice
from dlcp_lab.faults.cluster import Cluster
from dlcp_lab.faults.injections import make
from dlcp_lab.faults.leaks import children
from dlcp_lab.faults.network import METRICS_PORT
from dlcp_lab.ranks.processes import Child, start
from dlcpd import starter
from dlcpd.contract.errors import DlcpError

HOSTS: Final = 2
PATHS: Final = 2
BEGIN: Final = "<!-- drill: begin -->"
END: Final = "<!-- drill: end -->"
WARM: Final = "step 20"  # of rank 0: bounded loss begins after 10
PATIENCE: Final = 120.0  # seconds until a training trains, or a tool prints its expected lines
LOOK: Final = 0.3  # seconds between two looks
WIDTH: Final = 260  # characters of a line that is shown
MARGIN: Final = 100  # characters of a line of prose


@dataclass(frozen=True, slots=True)
class Heard:
    """Output of a tool: the expected lines, and all of it."""

    voice: Voice
    lines: tuple[str, ...]
    missing: tuple[str, ...]  # expressions without a match
    all: str  # the whole output


class Training:
    """A rank on every host. `memory`: see Breakage."""

    def __init__(self, cluster: Cluster, name: str, memory: int = 0) -> None:
        self._cluster = cluster
        self.logs = [cluster.folder / f"{name}-{rank}.log" for rank in range(HOSTS)]
        self.trainers: list[Rank] = []
        for rank, log in enumerate(self.logs):
            arguments = ["--store", str(cluster.folder / f"{name}-store")]
            if memory and rank == VICTIM:
                arguments += ["--address-space-left", str(memory)]
            environ = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": str(HOSTS),
                "TORCHELASTIC_RUN_ID": JOB,
                "DLCPD_SOCKET": cluster.hosts[rank].socket,
            }
            self.trainers.append(
                Rank(
                    start(
                        "dlcp_lab.faults.training_script",
                        *arguments,
                        name=f"rank {rank}",
                        log=log,
                        environ=environ,
                    )
                )
            )

    def wait(self) -> None:
        """Wait until it trains. Raises: TimeoutError with the end of the logs."""
        until = time.monotonic() + PATIENCE
        while WARM not in self.logs[0].read_text():
            if time.monotonic() > until or self.ended:
                texts = "\n".join(log.read_text()[-2000:] for log in self.logs)
                raise TimeoutError(f"the training does not train: {texts}")
            time.sleep(LOOK)

    @property
    def ended(self) -> bool:
        """Whether a rank has ended."""
        return any(rank.child.process.poll() is not None for rank in self.trainers)

    def control(self, rank: int) -> int:
        """Process id of the daemon that serves a rank."""
        return self._cluster.controls()[rank]

    def engine(self, rank: int) -> int:
        """Process id of the engine that serves a rank."""
        [engine] = children(self.control(rank))
        return engine

    def end(self) -> None:
        """End all ranks."""
        for rank in self.trainers:
            rank.child.stop(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of a training."""

    child: Child

    @property
    def pid(self) -> int:
        """Process id."""
        return self.child.process.pid


class Drill:
    """Injects one fault after the other. A training that survives one is used for the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._training: Training | None = None
        self._trainings = 0
        self._marks: dict[Path, int] = {}  # length of each log before the fault, bytes

    def run(self, breakage: Breakage) -> list[Heard]:
        """Output of each tool. Raises: TimeoutError, DlcpError if no training begins."""
        if breakage.memory:  # the fault is in the start of a training
            self.end()
            self._marks = self._sizes()
            training = self._ready(breakage)
        else:
            training = self._ready(breakage)
            self._marks = self._sizes()
        with self._broken(breakage, training):
            return self._listen(breakage, training)

    def _sizes(self) -> dict[Path, int]:
        ours = self._training.logs if self._training else []
        logs = [*ours, *(host.daemon.log for host in self._cluster.hosts)]
        return {file: file.stat().st_size for file in logs}

    def end(self) -> None:
        """End the training that runs."""
        if self._training:
            self._training.end()
            self._training = None

    def _ready(self, breakage: Breakage) -> Training:
        """A running training, or one that will run out of memory."""
        if self._training and self._training.ended:
            self.end()
        self._cluster.repair()
        if self._training is None:
            self._trainings += 1
            name = f"training{self._trainings}"
            self._training = Training(self._cluster, name, breakage.memory)
        if not breakage.memory:
            self._training.wait()
        return self._training

    @contextmanager
    def _broken(self, breakage: Breakage, training: Training) -> Iterator[None]:
        if breakage.fault is None:
            yield
            return
        injection = make(breakage.fault, self._cluster, training, VICTIM)
        injection.begin()
        try:
            yield
        finally:
            injection.end()

    def _listen(self, breakage: Breakage, training: Training) -> list[Heard]:
        """Ask each tool until it has printed its expected lines, for at most PATIENCE seconds."""
        begun = time.monotonic()
        heard: dict[int, Heard] = {}
        while time.monotonic() - begun < PATIENCE:
            for number, voice in enumerate(breakage.voices):
                if number not in heard or heard[number].missing:
                    heard[number] = self._hear(voice, training)
            if not any(one.missing for one in heard.values()):
                break
            time.sleep(LOOK)
        return [heard[number] for number in range(len(breakage.voices))]

    def _hear(self, voice: Voice, training: Training) -> Heard:
        text = self._shorter(self._text(voice, training))
        lines = text.splitlines()
        found = [next(filter(re.compile(p).search, lines), None) for p in voice.lines]
        missing = [p for p, line in zip(voice.lines, found, strict=True) if line is None]
        shown = tuple(dict.fromkeys(line for line in found if line is not None))
        return Heard(voice, shown, tuple(missing), text)

    def _text(self, voice: Voice, training: Training) -> str:
        host = self._cluster.hosts[voice.host]
        asked: dict[Tool, Callable[[], str]] = {
            Tool.STATUS: lambda: _dlcpctl("status", "--socket", host.socket),
            Tool.PEERS: lambda: _dlcpctl("peers", "--socket", host.socket),
            Tool.TOP: lambda: _dlcpctl("top", "--once", "--interval", "1", "--socket", host.socket),
            Tool.PAGE: lambda: _page(host.socket),
            Tool.METRICS: lambda: _metrics(self._cluster.network.address(voice.host)),
            Tool.LOG: lambda: self._new(host.daemon.log, leave_out="client=dlcpctl"),
            Tool.TRAINER: lambda: self._new(training.logs[voice.host]),
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
    done = subprocess.run(
        starter.command("dlcpd.ctl.main", *words),
        env=starter.environment(),
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
    )
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
        finally:
            child.terminate()
    return str(found["error"]) if "error" in found else "\n".join(found["alarms"])


def _metrics(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}:{METRICS_PORT}/metrics", timeout=10) as page:
            return str(page.read().decode())
    except OSError as exc:
        return f"metrics: {exc}"


def wrapped(text: str) -> list[str]:
    """Lines of a paragraph of a page."""
    return textwrap.wrap(text, MARGIN, break_long_words=False, break_on_hyphens=False)


def render(breakage: Breakage, heard: Sequence[Heard]) -> str:
    """The section of a fault on the page."""
    lines = [
        f"### {breakage.title}",
        "",
        *wrapped(f"Fault: {breakage.how}. {breakage.meaning}"),
        "",
        "```text",
    ]
    for one in heard:
        where = (
            f"rank {one.voice.host}"
            if one.voice.tool is Tool.TRAINER
            else (f"host{one.voice.host}")
        )
        lines.append(f"{where}, {one.voice.tool}:")
        lines += [f"  {line[:WIDTH]}{' ...' if len(line) > WIDTH else ''}" for line in one.lines]
    return "\n".join([*lines, "```"])


def write(file: Path, sections: Sequence[str]) -> None:
    """Put the sections between their marks."""
    before, _, rest = file.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    file.write_text(f"{before}{BEGIN}\n" + "\n\n".join(sections) + f"\n{END}{after}")


@contextmanager
def drills(peer_timeout: float = 1.0) -> Iterator[Drill]:
    """A drill on a new cluster; both end with the context."""
    with ExitStack() as stack:
        stack.enter_context(temporary_folders_apart())
        drill = Drill(
            stack.enter_context(Cluster(HOSTS, PATHS, peer_timeout=peer_timeout, metrics=True))
        )
        stack.callback(drill.end)
        yield drill


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(
        prog="dlcp_lab.faults.drill", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--only", metavar="TEXT", help="what has this in its title")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put it into this page, too")
    options = parser.parse_args(arguments)
    chosen = [b for b in BREAKAGES if (options.only or "") in b.title]
    if not chosen or (options.write and options.only):
        titles = "; ".join(b.title for b in BREAKAGES)
        parser.error(f"--only TEXT is part of one of these titles, and without --write: {titles}")
    sections, good = list[str](), True
    with drills() as drill:
        for breakage in chosen:
            try:
                heard = drill.run(breakage)
            except (DlcpError, TimeoutError) as exc:
                print(f"{breakage.title}: FAILED: {exc}", flush=True)
                return 1
            sections.append(render(breakage, heard))
            print(sections[-1] + "\n", flush=True)
            for one in heard:
                for line in one.missing:
                    good = False
                    print(f"MISSING of {one.voice.tool} on host{one.voice.host}: {line}\n{one.all}")
    if options.write and good:
        write(options.write, sections)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
