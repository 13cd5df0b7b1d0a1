"""`dlcpctl bench engine`: CPU time of an engine per operation, without the scheduler in it.

Two engines run in this process, stepped in turn, so that neither waits for a CPU or is displaced by
the other. Other processes still matter: they take caches, and a pause of this process is a slow
network to the pace of the engines, which then send in smaller batches.
"""

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from dlcp_lab.bench.engine_pair import EnginePair, engine_pair
from dlcp_lab.bench.engine_task import MAX_SIZE, RANKS, EngineTask
from dlcp_lab.bench.priority import highest_priority
from dlcp_lab.emulation.patience import patience, runnable
from dlcp_lab.ranks.hosts import network_table
from dlcp_lab.report.amounts import show_call, show_size
from dlcp_lab.report.machine import properties
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import NotMeasured, Spread
from dlcpd import __version__
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.effective import agreed, engine_configs, resolved
from dlcpd.daemon.config.tables import Config, DaemonTable, LocalPath
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.datapath.compiled import compiled

ADDRESSES: Final = tuple(f"127.0.0.{rank + 1}" for rank in range(RANKS))
OPERATION: Final = 10.0  # seconds on an idle machine after which one is not measured
MEASUREMENT: Final = 60.0  # seconds on an idle machine after which no operation is begun
COUNTED: Final = 5  # operations, at most, whose function calls are counted
CALLS: Final = ("send_calls", "control_calls", "receive_calls")  # system calls on UDP sockets
DATA: Final = "data_out"
BUNDLED: Final = "bundled"  # datagrams fewer, since several left as one
WAKES: Final = "wakes"
HEADER: Final = (
    "collective", "size", "operations", "p10(ms)", "p50(ms)", "s/GB", "wake-ups", "UDP calls",
    "Python calls", "C calls", "datagrams", "DATA", "control", "data(B)", "#wrong",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One collective at one size, per operation and engine. Counts are means of both engines."""

    collective: str
    size: int  # bytes of the largest buffer of a rank; 0 for a barrier
    operations: int
    cpu: Spread  # seconds
    wrong: int  # elements of the first result
    python_calls: float | None  # None: no time was left to count them
    c_calls: float | None  # functions of C that Python called
    data_bytes: float  # of DATA datagrams, with DLCP headers
    effort: dict[str, float]  # the engine's counts: wake-ups, system calls, datagrams by kind
    segment_size: int  # bytes
    features: dict[str, Any]  # of the engine: data path, GSO, GRO, receive buffer
    samples: list[float]  # CPU seconds of each operation

    @property
    def calls(self) -> float:
        """System calls on UDP sockets."""
        return sum(self.effort.get(name, 0.0) for name in CALLS)

    @property
    def datagrams(self) -> dict[str, float]:
        """Datagrams sent alone or in a BUNDLE, by kind."""
        control = {kind: count for kind, count in self.effort.items() if kind.isupper()}
        return {"DATA": self.effort.get(DATA, 0.0)} | control


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The configuration of both engines."""

    configs: Sequence[EngineConfig]
    keyed: bool  # datagrams have checksums, or are encrypted
    protection: str  # in words
    data_path: str


def engine(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when a result was wrong."""
    setup, before = setup_of(options), runnable()
    with highest_priority() if options.priority else nullcontext():
        rows = _rows(setup, options, output)
    loads = before, runnable()
    output.line(heading(setup, loads, options))
    output.line(rows.render(HEADER, cells, left=1))
    for line in (*rows.reasons(), *lines(rows)):
        output.line(line)
    output.document(_document(options, setup, loads, rows))
    return 1 if any(row.wrong for row in rows) else 0


def _rows(setup: EngineSetup, options: argparse.Namespace, output: Output) -> Rows[EngineRow]:
    rows = Rows(EngineRow)
    for name, size in _calls(options):
        rounds = f"{options.warmup} + {options.repeat} operations"
        output.progress(f"{show_call(name, size)}: {rounds}")
        rows.add(
            {"collective": name, "size": size},
            partial(measured, EngineTask(name, size), setup, options),
            (name, show_size(size) if size else None),
        )
    return rows


def _calls(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    for name in options.collectives:
        for size in options.sizes if name != "barrier" else [0]:
            yield name, size


def setup_of(options: argparse.Namespace) -> EngineSetup:
    """The engines that a daemon would start. Raises: BadConfig."""
    if (most := max(options.sizes)) > MAX_SIZE:
        raise BadConfig(f"--sizes: {show_size(most)} is too much: at most {show_size(MAX_SIZE)}")
    if any(line.partition("=")[0].strip() == "engines" for line in options.set):
        raise BadConfig("--set engines: this benchmark has an engine per host")
    checksum = [f'checksum = "{options.checksums}"'] if options.checksums else []
    network = network_table([*options.set, *checksum])  # `engines` is 1, the default
    configs = [
        resolved(
            Config(
                DaemonTable(host=f"host{rank}", control_address=address),
                replace(network, paths=(LocalPath(address),)),
            )
        )
        for rank, address in enumerate(ADDRESSES)
    ]
    encrypted = network.data_encryption != "none"
    protection = network.data_encryption if encrypted else f"checksums {network.checksum}"
    return EngineSetup(
        [engine_configs(config)[0] for config in configs],
        encrypted or bool(agreed(configs[0])["checksum"]),
        protection,
        NUMPY if encrypted or compiled(network.data_path) is None else COMPILED,
    )


def measured(task: EngineTask, setup: EngineSetup, options: argparse.Namespace) -> EngineRow:
    """Measure one collective at one size.

    Raises: BadConfig, which holds for all sizes; another DlcpError.
    """
    until = time.monotonic() + patience(MEASUREMENT)
    try:
        with engine_pair(setup.configs, task.arena_bytes, until, keyed=setup.keyed) as pair:
            return _row(pair, task, options, until)
    except OSError as exc:
        raise NotMeasured(f"this machine refuses a call: {exc.strerror or exc}") from exc
    except MemoryError as exc:
        raise NotMeasured("this machine has too little memory") from exc


def _row(
    pair: EnginePair, task: EngineTask, options: argparse.Namespace, until: float
) -> EngineRow:
    """Raises: NotMeasured, OSError."""
    wrong = _first(pair, task)
    for _ in range(options.warmup):
        _one(pair, task)
    before = _counts(pair)
    samples = list(_timed(pair, task, options.repeat, until))
    counts = _counts(pair)
    counts.subtract(before)
    size = counts.pop("data_bytes")
    calls = _function_calls(pair, task, min(COUNTED, len(samples)), until)
    each = len(samples) * RANKS
    first = pair.hosts[0].engine
    return EngineRow(
        task.collective,
        task.size,
        len(samples),
        Spread.of(samples),
        wrong,
        calls.get("call"),
        calls.get("c_call"),
        size / each,
        {name: count / each for name, count in sorted(counts.items()) if count},
        min(flow.segment_size for flow in first.endpoint.flows.values()),
        dict(first.features),
        samples,
    )


def _one(pair: EnginePair, task: EngineTask) -> float:
    """CPU seconds of one operation. Raises: NotMeasured, OSError."""
    now, number = time.monotonic(), pair.submitted + 1
    requests = [task.request(rank, number, now) for rank in range(RANKS)]
    return pair.operate(requests, now + patience(OPERATION))


def _first(pair: EnginePair, task: EngineTask) -> int:
    """Wrong elements of an operation on small integers; later ones add zeros, which stay zero."""
    inputs = task.inputs()
    for host, values in zip(pair.hosts, inputs, strict=True):
        host.memory[:] = 0xFF  # NaN, where the engine writes no result
        host.memory[: values.nbytes] = values.view(np.uint8)
    _one(pair, task)
    results = [task.result(host.memory, rank) for rank, host in enumerate(pair.hosts)]
    wrong = sum(task.wrong(inputs, rank, result) for rank, result in enumerate(results))
    for host in pair.hosts:
        host.memory[:] = 0
    return wrong


def _timed(pair: EnginePair, task: EngineTask, repeat: int, until: float) -> Iterator[float]:
    """CPU seconds of up to `repeat` operations: none begins after `until`, except the first."""
    for number in range(repeat):
        if number and time.monotonic() > until:
            return
        yield _one(pair, task)


def _counts(pair: EnginePair) -> Counter[str]:
    """Counts of both engines since their start. Raises: NotMeasured, OSError."""
    found = Counter[str]()
    for report in pair.reports(time.monotonic() + patience(OPERATION)):
        found.update(report["effort"])
        for session in report["sessions"].values():
            paths = [path for peer in session["peers"] for path in peer["paths"]]
            rows = [row for path in paths for row in path["classes"].values()]
            found["data_bytes"] += sum(row["bytes"] for row in rows)
    return found


def _function_calls(
    pair: EnginePair, task: EngineTask, operations: int, until: float
) -> dict[str, float]:
    """Function calls per operation and engine by event of sys.setprofile, in operations that are
    not timed. Raises: NotMeasured, OSError."""
    done = 0
    with pair.counting() as calls:
        while done < operations and time.monotonic() <= until:
            _one(pair, task)
            done += 1
    return {event: count / done / RANKS for event, count in calls.items()} if done else {}


def heading(setup: EngineSetup, loads: tuple[float, float], options: argparse.Namespace) -> str:
    """Heading: the measurement and the machine in words."""
    machine = properties()
    return (
        f"engines alone: {RANKS} of them in one thread, {' and '.join(ADDRESSES)}, per operation "
        f"and engine\n"
        f"data path {setup.data_path}, {setup.protection}, exact sums of float32 in the arena\n"
        f"{machine['cpus']} CPUs ({machine['model']}), Linux {machine['kernel']}, "
        f"Python {machine['python']}, load {loads[0]:.1f} to {loads[1]:.1f}"
        f"{', highest priority' if options.priority else ''}"
    )


def cells(row: EngineRow) -> list[object]:
    """Cells of a row of the table."""
    sent = sum(row.datagrams.values())
    counts = (
        row.effort.get(WAKES, 0.0),
        row.calls,
        row.python_calls,
        row.c_calls,
        sent - row.effort.get(BUNDLED, 0.0),
        row.datagrams["DATA"],
        sent - row.datagrams["DATA"],
    )
    return [
        row.collective,
        show_size(row.size) if row.size else None,
        row.operations,
        f"{row.cpu.p10 * 1e3:.3f}",
        f"{row.cpu.p50 * 1e3:.3f}",
        row.cpu.p50 / row.size * 1e9 if row.size else None,
        *(None if count is None else f"{count:.1f}" for count in counts),
        f"{row.data_bytes:.0f}",
        row.wrong,
    ]


def lines(rows: Sequence[EngineRow]) -> Iterator[str]:
    """Counts by kind, and wrong results."""
    for row in rows:
        name = show_call(row.collective, row.size)
        yield f"{name}: {_listed(row.datagrams)}; {_listed(row.effort, CALLS)}"
        if row.wrong:
            yield f"WRONG RESULT of {name}: {row.wrong} elements (promise P1)"


def _listed(counts: Mapping[str, float], names: Sequence[str] = ()) -> str:
    return ", ".join(f"{name} {counts.get(name, 0.0):.2f}" for name in names or counts)


def _document(
    options: argparse.Namespace,
    setup: EngineSetup,
    loads: tuple[float, float],
    rows: Rows[EngineRow],
) -> dict[str, Any]:
    return {
        "command": "bench engine",
        "version": __version__,
        "machine": properties() | {"load": list(loads)},
        "hosts": RANKS,
        "conditions": f"data path {setup.data_path}, {setup.protection}, one thread",
        "settings": list(options.set),
        "priority": options.priority,
        "repeat": options.repeat,
        "warmup": options.warmup,
        "rows": rows.document(),
    }
