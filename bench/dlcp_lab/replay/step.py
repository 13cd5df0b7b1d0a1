"""`dlcpctl bench step`: step times of replayed networks over Gloo, the hook and cross-step."""

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation.plan import FabricError, bits_per_second
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import network_table
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.pace import on_the_line, paces
from dlcp_lab.replay.shapes import scaled
from dlcp_lab.replay.step_rows import (
    ABOUT,
    HEADER,
    SYSTEMS,
    Ranks,
    ReplayedNetwork,
    StepRow,
    about,
    cells,
    honesty,
    judge,
    rows,
)
from dlcp_lab.report.amounts import show_fraction
from dlcp_lab.report.checks import broken, report
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.measured import Gap, Rows, attempt
from dlcp_lab.scenarios.job import on_fabric
from dlcpd import __version__
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig

HOSTS: Final = 2  # two cores: engines that share a core would measure the scheduler
WARMUP: Final = 3  # steps: DDP regroups buckets after the first, bounded loss begins in these
QUICK_STEPS: Final = 3
QUICK_SCALE: Final = 0.2  # factor of the scale, with --quick
PER_STEP: Final = 20.0  # seconds that a step may take at most before the run is aborted
BASE_TIMEOUT: Final = 120.0  # seconds for starting

Runs = list[dict[str, dict[str, Ranks]]]  # per seed: network -> system -> ranks


def step(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when weights differ where they must not.

    Raises: BadConfig.
    """
    setting = _setting(options)
    cases = [_case(name, setting, options.rate) for name in setting["models"]]
    setting["line"] = {case.name: case.line for case in cases}
    seeds = 1 if options.quick else options.seeds
    runs, failed = _measure(setting, options, seeds, output)
    checks = [
        check
        for case in cases
        for check in judge(case.name, _of(runs, case), exact=setting["mode"] == "exact")
    ]
    found = {case.name: rows(case.name, _of(runs, case)) for case in cases}
    for line in _heading(setting, options, seeds):
        output.line(line)
    _print(cases, found, setting["scale"], output)
    for line in (*(gap.line() for gap in failed), *report(checks)):
        output.line(line)
    output.document(
        {
            "command": "bench step",
            "version": __version__,
            "hosts": HOSTS,
            "rate": options.rate,
            "settings": options.set,
            "tcp_congestion_control": tcp_congestion_control(),
            "seeds": seeds,
            **setting,
            "at_best": {case.name: case.best() for case in cases},
            "rows": [row for of_case in found.values() for row in of_case.document()],
            "failed": [gap.document(()) for gap in failed],
            "checks": [asdict(check) for check in checks],
        }
    )
    return 1 if broken(checks) or not runs else 0


def _network(settings: Sequence[str]) -> dict[str, Any]:
    """[network] of the hosts, with KEY=VALUE as in a configuration file. Raises: BadConfig."""
    found = network_table(settings)
    return {one.name: getattr(found, one.name) for one in fields(found) if one.name != "paths"}


def _setting(options: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the ranks, except `seed` and `line`."""
    scale, steps = options.scale, options.steps
    if options.quick:
        scale, steps = scale * QUICK_SCALE, QUICK_STEPS
    return {
        "models": options.models,
        "systems": SYSTEMS,
        "scale": scale,
        "ratio": options.ratio,
        "mode": options.mode,
        "max_loss": options.max_loss,
        "warmup": WARMUP,
        "steps": steps,
    }


def _case(name: str, setting: dict[str, Any], rate: str) -> ReplayedNetwork:
    """Scale and pace one network. Raises: BadConfig for an invalid rate."""
    try:
        bits = bits_per_second(rate)
    except FabricError as exc:
        raise BadConfig(f"--rate: {exc}") from exc
    network = scaled(NETWORKS[name](), setting["scale"])
    line = on_the_line(network, bits_per_second=bits, hosts=HOSTS)
    return ReplayedNetwork(name, network, paces(network, line, setting["ratio"]), line)


def _measure(
    setting: dict[str, Any], options: argparse.Namespace, seeds: int, output: Output
) -> tuple[Runs, list[Gap]]:
    """Measurements of the ranks by seed, and the seeds that failed."""
    steps = (WARMUP + setting["steps"]) * len(SYSTEMS) * len(setting["models"])
    plan = {"hosts": HOSTS, "host_rate": options.rate, "classes": True}
    runs: Runs = []
    failed: list[Gap] = []
    with on_fabric(plan, _network(options.set)) as (_, hosts):
        for seed in range(1, seeds + 1):
            output.progress(f"seed {seed} of {seeds}")
            work = launch.Work(
                "dlcp_lab.replay.step_rank",
                {**setting, "seed": seed},
                BASE_TIMEOUT + PER_STEP * steps,
            )
            ranks = attempt(
                {"seed": f"seed {seed}"},
                partial(launch.run, hosts, work, progress=output.progress),
            )
            if isinstance(ranks, Gap):
                failed.append(ranks)
            else:
                runs.append(_by_system(ranks))
            (hosts.folder / "store").unlink(missing_ok=True)  # the next ranks need a new one
    return runs, failed


def _by_system(ranks: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Ranks]]:
    return {
        name: {system: [rank[name][system] for rank in ranks] for system in of_network}
        for name, of_network in ranks[0].items()
    }


def _of(runs: Runs, case: ReplayedNetwork) -> list[dict[str, Ranks]]:
    return [run[case.name] for run in runs]


def _heading(setting: dict[str, Any], options: argparse.Namespace, seeds: int) -> Iterator[str]:
    """Heading: the measurement in words."""
    mode = setting["mode"]
    if mode == "bounded":
        mode += f" ({show_fraction(setting['max_loss'])})"
    changed = f" with {', '.join(options.set)}" if options.set else ""
    yield (
        f"replayed networks at {show_fraction(setting['scale'])} of their parameters, {HOSTS} "
        f"hosts on one emulated switch of {options.rate} with a queue per traffic class; dlcpd "
        f"{mode}{changed}, Gloo over TCP {tcp_congestion_control()}; seeds 1..{seeds}, "
        f"{setting['steps']} steps each after {setting['warmup']}, slowest rank counts, medians"
    )
    yield (
        f"layers wait instead of computing: 1/{setting['ratio']:g} of the line's time per step, a "
        f"third of it forward, shared out by multiply-adds; all hosts share "
        f"{len(os.sched_getaffinity(0))} cores; buckets are scaled too (25 MB x scale), dlcpd's "
        "1 MiB pieces are not: small networks are cut more coarsely than real ones"
    )


def _print(
    cases: list[ReplayedNetwork], found: dict[str, Rows[StepRow]], scale: float, output: Output
) -> None:
    output.line(table.render(ABOUT, [about(case, scale) for case in cases]))
    output.line()
    everything = Rows(StepRow)
    for of_case in found.values():
        everything.extend(of_case)
    output.line(everything.render(HEADER, cells, left=2))
    for line in everything.reasons():
        output.line(line)
    for case in cases:
        for line in honesty(case, found[case.name]):
            output.line(line)
