"""The failure drill: inject faults into a training, and show the output of each tool.

    python -m dlcp_lab.faults.drill [--only TITLES] [--write FILE]

Two hosts with two paths, a daemon each, and a DDP training over both. Exit code: 0 every tool
printed its expected lines, 1 one did not.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.patience import patience, peer_timeout
from dlcp_lab.emulation.scratch import temporary_folders_apart
from dlcp_lab.faults.breakages import BREAKAGES, VICTIM, Breakage
from dlcp_lab.faults.catalog import make
from dlcp_lab.faults.cluster import Cluster
from dlcp_lab.faults.drill_page import render, write
from dlcp_lab.faults.drill_tools import Heard, Tools
from dlcp_lab.faults.drill_training import DrillTraining
from dlcpd.contract.errors import DlcpError

HOSTS: Final = 2
PATHS: Final = 2
SILENCE: Final = 1.0  # seconds until a silent peer is lost, on an idle machine
PATIENCE: Final = 120.0  # seconds until a tool prints its expected lines, on an idle machine
LOOK: Final = 0.3  # seconds between two looks


class Drill:
    """Injects one fault after the other. A training that survives one is used for the next."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._training: DrillTraining | None = None
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
        tools = Tools(self._cluster, training, self._marks)
        with self._broken(breakage, training):
            return _listen(breakage, tools)

    def _sizes(self) -> dict[Path, int]:
        training_logs = self._training.logs if self._training else []
        logs = [*training_logs, *(host.daemon.log for host in self._cluster.hosts)]
        return {file: file.stat().st_size for file in logs}

    def end(self) -> None:
        """End the training that runs."""
        if self._training:
            self._training.end()
            self._training = None

    def _ready(self, breakage: Breakage) -> DrillTraining:
        """A running training, or one that will run out of memory."""
        if self._training and self._training.ended:
            self.end()
        self._cluster.repair()
        if self._training is None:
            self._trainings += 1
            name = f"training{self._trainings}"
            self._training = DrillTraining(self._cluster, name, breakage.memory)
        if not breakage.memory:
            self._training.wait()
        return self._training

    @contextmanager
    def _broken(self, breakage: Breakage, training: DrillTraining) -> Iterator[None]:
        if breakage.fault is None:
            yield
            return
        injection = make(breakage.fault, self._cluster, training, VICTIM)
        injection.begin()
        try:
            yield
        finally:
            injection.end()


def _listen(breakage: Breakage, tools: Tools) -> list[Heard]:
    """Ask each tool until it has printed its expected lines, for at most PATIENCE seconds."""
    until = time.monotonic() + patience(PATIENCE)
    heard: dict[int, Heard] = {}
    while time.monotonic() < until:
        for number, voice in enumerate(breakage.voices):
            if number not in heard or heard[number].missing:
                heard[number] = tools.hear(voice)
        if not any(one.missing for one in heard.values()):
            break
        time.sleep(LOOK)
    return [heard[number] for number in range(len(breakage.voices))]


@contextmanager
def drills(silence: float = SILENCE) -> Iterator[Drill]:
    """A drill on a new cluster; both end with the context. `silence`: its peer_timeout, seconds."""
    with ExitStack() as stack:
        stack.enter_context(temporary_folders_apart())
        drill = Drill(
            stack.enter_context(Cluster(HOSTS, PATHS, peer_timeout=silence, metrics=True))
        )
        stack.callback(drill.end)
        yield drill


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(
        prog="dlcp_lab.faults.drill", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--only", metavar="TEXT", help=("run the faults whose titles contain this text")
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the results to this page")
    options = parser.parse_args(arguments)
    chosen = [b for b in BREAKAGES if (options.only or "") in b.title]
    if not chosen or (options.write and options.only):
        titles = "; ".join(b.title for b in BREAKAGES)
        parser.error(
            "--only TEXT must be part of a title, and cannot be combined with --write; the "
            f"titles: {titles}"
        )
    sections, good = list[str](), True
    with drills(peer_timeout(SILENCE)) as drill:
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
