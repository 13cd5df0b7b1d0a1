"""`dlcpctl bench fused`: training steps with the update inside the reduction, and after it."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final

from dlcp_lab.bench.fused_rows import (
    HEADER,
    Blocks,
    FusedRow,
    cells,
    honesty,
    judge,
    rows_of,
)
from dlcp_lab.bench.model_parallel import model_parallel
from dlcp_lab.bench.places import check_places, document, places, where
from dlcp_lab.emulation.plan import FabricError, bits_per_second
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, running
from dlcp_lab.report.checks import Check, broken, report
from dlcp_lab.report.measured import Rows
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig

WAYS: Final = ("gloo", "zero", "hook", "cross-step", "fused", "eager")  # those of fused_rank
LAYERS: Final = 16
WARMUP: Final = 3  # steps: DDP regroups its buckets after the first
BASE_TIMEOUT: Final = 300.0  # seconds for starting
PER_STEP: Final = 20.0  # seconds that a step may take at most before the run is aborted


def fused(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when ranks hold different weights. Raises: BadConfig."""
    check_places(options)
    if options.model_parallel:
        return model_parallel(options, output)
    if options.compiled:
        raise BadConfig("--compiled is a layer of --model-parallel: give that as well")
    if options.one_daemon and (options.switch or options.netns):
        raise BadConfig("--one-daemon: ranks on a switch or in namespaces have a daemon each")
    ratio = options.ratio or 1.0
    rows, checks = Rows(FusedRow), list[Check]()
    with places(options) as plans:
        lines = [_line(size, options, len(plans)) for size in options.sizes]
        computes = [line / ratio for line in lines]
        found = _measure(plans, computes, options, output)
    for size, line, compute, ways in zip(options.sizes, lines, computes, found, strict=True):
        rows.extend(rows_of(size, ways, compute=compute, line=line))
        checks.append(judge(size, ways))
    for text in _heading(options, plans):
        output.line(text)
    output.line(rows.render(HEADER, cells, left=2))
    for text in (*rows.reasons(), *honesty(rows), *report(checks)):
        output.line(text)
    output.document(
        {
            **document("bench fused", options, plans),
            "one_daemon": options.one_daemon,
            "ratio": ratio if options.switch else 0.0,
            "repeat": options.repeat,
            "blocks": options.blocks,
            "seed": options.seed,
            "checks": [asdict(check) for check in checks],
            "rows": rows.document(),
        }
    )
    return 1 if broken(checks) else 0


def _line(size: int, options: argparse.Namespace, hosts: int) -> float:
    """Least seconds that a step keeps each host's line busy; 0: the hosts have no line."""
    if not options.switch:
        return 0.0
    try:
        bits = bits_per_second(options.switch)
    except FabricError as exc:
        raise BadConfig(f"--switch: {exc}") from exc
    return size * 8 * 2 * (hosts - 1) / hosts / bits


def _measure(
    plans: Sequence[HostPlan],
    computes: Sequence[float],
    options: argparse.Namespace,
    output: Output,
) -> list[dict[str, Blocks]]:
    """By size: the blocks of each way. `computes`: seconds of computation per step, by size."""
    arguments = {
        "cases": list(zip(options.sizes, computes, strict=True)),
        "ways": options.ways,
        "layers": LAYERS,
        "warmup": WARMUP,
        "repeat": options.repeat,
        "blocks": options.blocks,
        "seed": options.seed,
        "daemons": 1 if options.one_daemon else len(plans),
    }
    steps = (WARMUP + options.repeat) * options.blocks * len(options.ways) * len(computes)
    timeout = BASE_TIMEOUT + PER_STEP * steps
    with running(plans) as hosts:
        shared = {"DLCPD_SOCKET": hosts.members[0].socket} if options.one_daemon else {}
        work = launch.Work("dlcp_lab.bench.fused_rank", arguments, timeout, shared)
        ranks = launch.run(hosts, work, progress=output.progress)
    return [
        {way: list(zip(*(rank[way] for rank in of_size), strict=True)) for way in of_size[0]}
        for of_size in zip(*ranks, strict=True)
    ]


def _heading(options: argparse.Namespace, plans: Sequence[HostPlan]) -> Iterator[str]:
    daemons = ", all ranks on one daemon" if options.one_daemon else ""
    yield (
        f"training steps with Adam, {where(options, plans, gloo=True)}{daemons}; {LAYERS} equal "
        f"layers of float32; {options.blocks} blocks of {options.repeat} steps by each way in "
        f"random order, slowest rank counts, medians; CPU of all processes per step"
    )
    if options.switch:
        yield (
            f"layers wait instead of computing: 1/{options.ratio or 1:g} of the line's time per "
            f"step, a third of it forward; the bound is the longer of the two"
        )
