"""Soak test: two jobs on four hosts, one fault after the other, promises checked all the time.

    python -m dlcp_lab.faults.soak [--seconds N] [--seed N] [--calm] [--load N]

One job is exact: results equal the reference bit for bit. The other is bounded: all ranks hold the
same bytes, the missing part of each sender stays within the bound, and all produced values are
delivered in the end. Every operation ends soon after its deadline, with a result or an error code.
At every stop no process has more descriptors, threads, children or memory than before.
With `--load N`, N processes per core compute all the time, there are no faults, `peer_timeout` is
the default, and no operation may fail: a slow host is not lost.
Exit code: 0 no promise was broken, 1 one was. The same seed chooses the same faults.
"""

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dlcp_lab.emulation.patience import peer_timeout
from dlcp_lab.faults import leaks
from dlcp_lab.faults.catalog import make
from dlcp_lab.faults.cluster import ANSWER, Cluster, TrainerJob
from dlcp_lab.faults.kinds import PAUSES, Fault
from dlcp_lab.faults.load import load
from dlcp_lab.faults.trainer import DEAD, RESULT, Outcome
from dlcpd.cli.grammar import whole
from dlcpd.contract.errors import DlcpError
from dlcpd.daemon.config.tables import NetworkTable

HOSTS: Final = 4
PATHS: Final = 2
SECONDS: Final = 1200
FAULTS: Final = tuple(
    # A jump of the clock needs daemons under libfaketime, which are slow.
    fault for fault in Fault if fault is not Fault.CLOCK_JUMP and fault not in PAUSES
)  # fmt: skip
NAMED: Final = frozenset({  # codes with which a job may end under these faults
    "peer_lost", "operation_aborted", "daemon_lost", "daemon_unavailable", "deadline_exceeded",
    "session_closed", "arena_full", "too_many",
})  # fmt: skip
HOLD: Final = (0.1, 2.5)  # seconds of a fault
PAUSE: Final = (0.2, 2.0)  # seconds between two
COUNTS: Final = (16, 5_000, 100_000, 400_000)  # elements
PER_SESSION: Final = (5, 40)  # operations
DEADLINE: Final = 8.0  # seconds
JOIN: Final = 8.0  # seconds to join: a host may be cut off for HOLD, and two cores run everything
BUSY: Final = 120.0  # seconds, replaces DEADLINE and JOIN under load: no operation may fail
AGAIN: Final = 0.5  # seconds from a join that failed to the next
LATE: Final = 10.0  # seconds from a deadline to the outcome, at most, on a loaded machine
QUIET: Final = 30.0  # seconds between two stops
REST: Final = 120.0  # seconds in which a job comes to a stop
SILENCE: Final = 1.0  # seconds until a silent peer is lost, on an idle machine
SLACK: Final = 32 * leaks.MB  # private memory: heaps of trainers fragment, caches fill


@dataclass(slots=True)
class Books:
    """Counts of a run. Several threads write them, each under `lock`."""

    operations: Counter[str] = field(default_factory=Counter)  # by job
    sessions: int = 0
    failures: Counter[str] = field(default_factory=Counter)  # by code, of all ranks
    faults: Counter[str] = field(default_factory=Counter)  # injected, by kind
    fired: Counter[str] = field(default_factory=Counter)  # their effects, by kind
    looks: int = 0
    violations: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def violated(self, text: str) -> None:
        """Record a broken promise."""
        with self.lock:
            self.violations.append(text)
        print(f"VIOLATION: {text}", flush=True)

    def lines(self, seed: int) -> list[str]:
        """A summary."""
        made = [
            f"{kind} {count} ({self.fired[kind]})" for kind, count in sorted(self.faults.items())
        ]
        return [
            f"operations: {_listed(self.operations)}, in {self.sessions} sessions",
            f"faults made (and their effects): {', '.join(made) or 'none'}",
            f"failures by code, of every rank: {_listed(self.failures)}",
            f"pauses in which no process had grown: {self.looks}",
            f"violations: {len(self.violations)}",
            f"seed: {seed}",
        ]


class Driver(threading.Thread):
    """Runs sessions of one job until `stopping`; rests while the gate is closed. `well`: no
    operation may fail."""

    def __init__(
        self, job: TrainerJob, seed: int, books: Books, gate: threading.Event, *, well: bool = False
    ) -> None:
        super().__init__(name=job.name, daemon=True)
        self.job, self._books, self._gate = job, books, gate
        self._random = random.Random(f"{seed} {job.name}")
        self._bounded, self._well = job.name == "bounded", well
        self._deadline, self._join = (BUSY, BUSY) if well else (DEADLINE, JOIN)
        self.resting, self.stopping = threading.Event(), False

    def run(self) -> None:
        """Run sessions, one after the other."""
        while not self.stopping:
            self.resting.set()
            self._gate.wait()
            self.resting.clear()
            if self.stopping:
                break
            try:
                self._session()
            except Exception as exc:  # the thread would end without a report
                self._books.violated(f"{self.job.name}: {type(exc).__name__}: {exc}")
                self.job.renew()
        self.resting.set()

    def _session(self) -> None:
        """Join, run some operations, leave."""
        self.job.repair()
        self.job.begin_join(self._join)
        limit = time.monotonic() + self._join
        well = self._judge("join", self.job.answers(self._join + ANSWER), limit)
        if well:
            self._reductions()
        self.job.close()
        if not well:
            time.sleep(AGAIN)

    def _reductions(self) -> None:
        with self._books.lock:
            self._books.sessions += 1
        count, begun = self._random.choice(COUNTS), 1
        operations = self._random.randint(*PER_SESSION)
        # A digit of the sums counts to seven: before that, waived values must be reapplied.
        for number in range(begun, operations + 1):
            if not self._operation(number, count):
                return
            if self._bounded and not number % 5 and not self._all("flush", count=count):
                return

    def _operation(self, number: int, count: int) -> bool:
        if self._bounded:
            return self._all("reduce_bounded", count=count)
        return self._all("reduce", number=number, count=self._random.choice(COUNTS))

    def _all(self, name: str, **arguments: int) -> bool:
        """One operation on all ranks; whether all succeeded."""
        limit = time.monotonic() + self._deadline
        outcomes = self.job.all(name, deadline=self._deadline, **arguments)
        with self._books.lock:
            self._books.operations[self.job.name] += 1
        return self._judge(name, outcomes, limit)

    def _judge(self, what: str, outcomes: Sequence[Outcome], limit: float) -> bool:
        """Whether all ranks have a result. Records broken promises."""
        digests = {one["digest"] for one in outcomes if "digest" in one}
        if len(digests) > 1:
            self._books.violated(f"{self.job.name}: {what}: replicas differ")
        for rank, one in enumerate(outcomes):
            self._judge_one(f"{self.job.name}: {what}: rank {rank}", one, limit)
        return all(one["code"] == RESULT for one in outcomes)

    def _judge_one(self, where: str, one: Outcome, limit: float) -> None:
        code = one["code"]
        if code not in ({RESULT} if self._well else {RESULT, DEAD, *NAMED}):
            self._books.violated(f"{where}: {code}: {one['text']}")
        if one["at"] > limit + LATE:
            self._books.violated(f"{where}: {code} {one['at'] - limit:.1f} s after its deadline")
        if code != RESULT:
            with self._books.lock:
                self._books.failures[code] += 1


class Soak:
    """One run. `calm`: without faults. `load`: processes per core that compute; with them there are
    no faults either, and no operation may fail."""

    def __init__(
        self, seed: int, *, calm: bool = False, peer_timeout: float = 1.0, load: int = 0
    ) -> None:
        self._seed, self._calm, self._load = seed, calm or bool(load), load
        self._peer_timeout = NetworkTable().peer_timeout if load else peer_timeout
        self._random = random.Random(seed)
        self.books = Books()
        self._gate = threading.Event()
        self._held: leaks.Held = {}

    def run(self, seconds: float) -> Books:
        """Run for `seconds`. Raises: DaemonUnavailable if a daemon does not start."""
        hosts = Cluster(HOSTS, PATHS, peer_timeout=self._peer_timeout)
        with hosts as cluster, load(self._load):
            jobs = [TrainerJob(cluster, name) for name in ("exact", "bounded")]
            for job in jobs:
                job.join()  # first allocations
                job.close()
            until = time.monotonic() + seconds
            drivers = [
                Driver(job, self._seed, self.books, self._gate, well=bool(self._load))
                for job in jobs
            ]
            for driver in drivers:
                driver.start()
            try:
                while time.monotonic() < until:
                    self._gate.set()
                    self._stir(cluster, jobs, min(time.monotonic() + QUIET, until))
                    self._look(cluster, drivers)
            finally:
                for driver in drivers:
                    driver.stopping = True
                self._gate.set()
                for driver in drivers:
                    driver.join(REST)
        return self.books

    def _stir(self, cluster: Cluster, jobs: Sequence[TrainerJob], until: float) -> None:
        """Inject one fault after the other."""
        while time.monotonic() < until:
            time.sleep(self._random.uniform(*PAUSE))
            if not self._calm:
                self._fault(cluster, self._random.choice(jobs))

    def _fault(self, cluster: Cluster, job: TrainerJob) -> None:
        fault, victim = self._random.choice(FAULTS), self._random.randrange(HOSTS)
        hold = self._random.uniform(*HOLD)
        injection = make(fault, cluster, job, victim, self._random.getrandbits(32))
        try:
            injection.begin()
            time.sleep(hold)
        except (OSError, ValueError):  # its process ends at this moment
            return
        finally:
            injection.end()
            cluster.restart()
        self.books.faults[fault] += 1
        self.books.fired[fault] += injection.fired

    def _look(self, cluster: Cluster, drivers: Sequence[Driver]) -> None:
        """Stop the jobs, and check for leaks."""
        self._gate.clear()
        for driver in drivers:
            if not driver.resting.wait(REST):
                self.books.violated(f"{driver.job.name} does not end")
        cluster.repair()

        def now() -> leaks.Held:
            jobs = [one for driver in drivers for one in driver.job.processes()]
            return leaks.held([*cluster.processes(), *jobs])

        def left() -> list[str]:
            known = {one.pid for one in now().values()} | {os.getpid()}
            marks = (str(cluster.folder), f'"{cluster.network.address(0)[:-1]}')
            return [*leaks.grown(self._held, now(), SLACK), *leaks.strays(marks, known)]

        for problem in leaks.settled(left):
            self.books.violated(problem)
        for name, usage in now().items():
            if name not in self._held or self._held[name].pid != usage.pid:
                self._held[name] = usage
        self.books.looks += 1


def _listed(counted: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counted.most_common()) or "none"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(
        prog="dlcp_lab.faults.soak", description=__doc__.partition("\n")[0]
    )
    seconds = int(os.environ.get("SOAK_SECONDS", SECONDS))
    parser.add_argument("--seconds", type=whole(1, 86_400), default=seconds, metavar="N")
    parser.add_argument("--seed", type=whole(0, 1 << 31), default=1, metavar="N")
    parser.add_argument("--calm", action="store_true", help="without faults")
    busy, text = int(os.environ.get("SOAK_LOAD", "0")), "compute-bound processes per core"
    parser.add_argument("--load", type=whole(0, 64), default=busy, metavar="N", help=text)
    options = parser.parse_args(arguments)
    try:
        silence = peer_timeout(SILENCE)
        soak = Soak(options.seed, calm=options.calm, peer_timeout=silence, load=options.load)
        books = soak.run(options.seconds)
    except DlcpError as exc:
        sys.stderr.write(f"dlcp_lab.faults.soak: {exc}\n")
        return 1
    for line in books.lines(options.seed):
        print(line)
    return 1 if books.violations else 0


if __name__ == "__main__":
    sys.exit(main())
