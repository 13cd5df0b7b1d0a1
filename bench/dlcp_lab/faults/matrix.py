"""The matrix of faults: run, judge, and write into docs/reliability.md.

    python -m dlcp_lab.faults.matrix [--faults NAMES] [--repeat N] [--write FILE]

Exit code: 0 every cell ended as expected, 1 one did not.
"""

import argparse
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.patience import peer_timeout
from dlcp_lab.emulation.scratch import temporary_folders_apart
from dlcp_lab.faults import clock
from dlcp_lab.faults.cell import PATHS, VICTIM, WORLD, Cell, Seen
from dlcp_lab.faults.cluster import Cluster, TrainerJob
from dlcp_lab.faults.expected import Expected, Key, cells
from dlcp_lab.faults.kinds import SILENCES, Fault, Mode, Phase
from dlcp_lab.faults.trainer import RESULT
from dlcpd.cli.grammar import whole
from dlcpd.contract.errors import DlcpError
from dlcpd.daemon.config.tables import NetworkTable

BEGIN: Final = "<!-- matrix: begin -->"
END: Final = "<!-- matrix: end -->"
TIME: Final = re.compile(r" \((\d+\.\d+) s\)")  # of a cell
SILENCE: Final = 1.0  # seconds until a silent peer is lost, on an idle machine
WHILE_RUNNING: Final = ", ".join(phase for phase in Phase if phase is not Phase.JOINING)
ALL: Final = "all"  # the name of these phases in the table
HEADER: Final = ("fault", "phase", *Mode, "its own rank", "next works")


class Clusters:
    """Clusters by kind, each made at its first use; a context.

    `peer_timeout` (seconds) applies to faults that last until a peer is lost, else the default.
    """

    def __init__(self, peer_timeout: float) -> None:
        self._peer_timeout = peer_timeout
        self._stack, self._apart = ExitStack(), ExitStack()
        self._made = dict[tuple[str, float], tuple[Cluster, TrainerJob]]()

    def of(self, fault: Fault, mode: Mode) -> tuple[Cluster, TrainerJob]:
        """An intact cluster, and a job that is in no session."""
        kind = "clock" if fault is Fault.CLOCK_JUMP else mode if mode is Mode.EMBEDDED else "hosts"
        key = kind, self._peer_timeout if fault in SILENCES else NetworkTable().peer_timeout
        if key not in self._made:
            self._made[key] = self._make(*key)
        cluster, job = self._made[key]
        cluster.repair()
        return cluster, job

    def forget(self) -> None:
        """End all clusters: one of them may be broken."""
        self._made.clear()
        self._stack.close()

    def _make(self, kind: str, peer_timeout: float) -> tuple[Cluster, TrainerJob]:
        private = kind == Mode.EMBEDDED
        cluster = self._stack.enter_context(
            Cluster(
                WORLD,
                PATHS,
                peer_timeout=peer_timeout,
                serve=not private,
                clocks=[VICTIM] if kind == "clock" else (),
            )
        )
        job = TrainerJob(cluster, "matrix", embedded=private)
        job.join()  # allocate what the first session allocates
        job.close()
        return cluster, job

    def __enter__(self) -> "Clusters":
        self._apart.enter_context(temporary_folders_apart())
        return self

    def __exit__(self, *_: object) -> None:
        self.forget()
        self._apart.close()


def run(clusters: Clusters, key: Key) -> Seen:
    """Run one cell. Raises: TimeoutError, DlcpError."""
    fault, phase, mode = key
    try:
        return Cell(*clusters.of(fault, mode), fault, phase, mode).run()
    except BaseException:
        clusters.forget()
        raise


def problems(seen: Seen, expected: Expected) -> Iterator[str]:
    """Differences between the outcome of a cell and the expected one."""
    if not set(seen.survivors) <= set(expected.survivors.split(" or ")):
        yield f"survivors: {seen.survivors} instead of {expected.survivors}"
    if seen.victim not in expected.victim.split(" or "):
        yield f"its own rank: {seen.victim} instead of {expected.victim}"
    if seen.then != expected.then:
        yield f"next: {seen.then} instead of {expected.then}"
    if not seen.fired:
        yield "the fault had no effect"
    yield from seen.leaks


def possible(key: Key) -> bool:
    """Whether this host can run a cell."""
    return key[0] is not Fault.CLOCK_JUMP or bool(clock.library())


def render(times: dict[Key, list[float]], expected: dict[Key, Expected]) -> str:
    """The table. A cell has the outcome of the survivors' operation, and the seconds until the last
    of them had its error: the median of its runs, the longest of its phases."""
    rows = ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    # Faults by the rest of their row; those of which no rank has an error share one.
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for fault, phases, modes in _rows(expected):
        any_one = next(iter(modes.values()))
        entries = [
            _entry(_medians(times, fault, phases, mode), modes[mode]) if mode in modes else "-"
            for mode in Mode
        ]
        named = ", ".join(phases).replace(WHILE_RUNNING, ALL)
        ends = (named, *entries, any_one.victim, any_one.then)
        fine = {end.survivors for end in modes.values()} == {RESULT}
        alike["" if fine else fault, *ends].append(fault)
    rows += [
        f"| {', '.join(faults)} | {' | '.join(ends)} |" for (_, *ends), faults in alike.items()
    ]
    return "\n".join(rows)


def _rows(expected: dict[Key, Expected]) -> list[tuple[Fault, list[Phase], dict[Mode, Expected]]]:
    """Fault, phases and modes of each row. Phases of a fault that end alike share a row."""
    by_row: dict[tuple[Fault, Phase], dict[Mode, Expected]] = defaultdict(dict)
    for (fault, phase, mode), one in expected.items():
        by_row[fault, phase][mode] = one
    rows: list[tuple[Fault, list[Phase], dict[Mode, Expected]]] = []
    for (fault, phase), modes in by_row.items():
        if rows and rows[-1][0] is fault and set(rows[-1][2].values()) == set(modes.values()):
            rows[-1][1].append(phase)
            rows[-1][2].update(modes)
        else:
            rows.append((fault, [phase], modes))
    return rows


def _medians(
    times: dict[Key, list[float]], fault: Fault, phases: Sequence[Phase], mode: Mode
) -> list[float]:
    """The medians of the phases that were measured."""
    found = (times.get((fault, phase, mode)) for phase in phases)
    return [statistics.median(seconds) for seconds in found if seconds]


def _entry(seconds: Sequence[float], expected: Expected) -> str:
    when = f" ({max(seconds):.2f} s)" if seconds else ""
    return f"{expected.survivors}{when}"


def write(file: Path, times: dict[Key, list[float]], expected: dict[Key, Expected]) -> None:
    """Put the table between its marks. A cell that was not measured keeps its old time."""
    before, _, rest = file.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    table = render(measured(old) | times, expected)
    file.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def measured(table: str) -> dict[Key, list[float]]:
    """The seconds in a table: those of a row for each of its phases."""
    found: dict[Key, list[float]] = {}
    for row in table.splitlines()[3:]:
        fault, phases, *entries = (each.strip() for each in row.strip("|").split("|"))
        for mode, entry in zip(Mode, entries, strict=False):
            if time := TIME.search(entry):
                for phase in phases.replace(ALL, WHILE_RUNNING).split(", "):
                    found[Fault(fault), Phase(phase), mode] = [float(time[1])]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(
        prog="dlcp_lab.faults.matrix", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--faults", metavar="NAMES", help=("run these cells only, named as in the table")
    )
    parser.add_argument("--repeat", type=whole(1, 100), default=1, metavar="N")
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    wanted = {Fault(name) for name in options.faults.split(",")} if options.faults else set(Fault)
    expected = cells()
    times: dict[Key, list[float]] = defaultdict(list)
    bad: list[str] = []
    with Clusters(peer_timeout(SILENCE)) as clusters:
        for key, one in expected.items():
            if key[0] in wanted:
                good = _run(clusters, key, one, times, options.repeat)
                bad += [] if good else [", ".join(key)]
    print(
        (f"{len(bad)} cells ended in another way: {'; '.join(bad)}")
        if bad
        else "every cell ended as expected"
    )
    if options.write:
        write(options.write, times, expected)
    return 1 if bad else 0


def _run(
    clusters: Clusters, key: Key, expected: Expected, times: dict[Key, list[float]], repeat: int
) -> bool:
    """Run a cell `repeat` times; whether it always ended as expected."""
    name = ", ".join(key)
    if not possible(key):
        print(f"{name}: SKIPPED, libfaketime is not installed")
        return True
    wrong = list[str]()
    for _ in range(repeat):
        try:
            seen = run(clusters, key)
        except (DlcpError, TimeoutError) as exc:
            wrong.append(f"{type(exc).__name__}: {exc}")
            continue
        found = list(problems(seen, expected))
        wrong += found + (seen.texts if found else [])
        if seen.seconds is not None:
            times[key].append(seen.seconds)
    took = f" {statistics.median(times[key]):.2f} s" if times[key] else ""
    print(f"{name}: {expected.survivors}{took}{'; BAD: ' if wrong else ''}{'; '.join(wrong)}")
    sys.stdout.flush()
    return not wrong


if __name__ == "__main__":
    sys.exit(main())
