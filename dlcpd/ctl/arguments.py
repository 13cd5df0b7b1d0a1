"""What can be typed after `dlcpctl`."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Final

from dlcp_lab.bench.all_reduce import bench
from dlcp_lab.bench.training import training
from dlcp_lab.demo.command import demo
from dlcp_lab.lab import command as lab
from dlcp_lab.ranks.hosts import MAX_HOSTS
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.step import step
from dlcp_lab.report.amounts import fraction, size, sizes, some_of, whole
from dlcp_lab.scenarios.ablation import ablation
from dlcp_lab.scenarios.drop import drop
from dlcp_lab.scenarios.fairness import fairness
from dlcp_lab.scenarios.incast import incast
from dlcp_lab.scenarios.loss import loss
from dlcp_lab.scenarios.priority import priority
from dlcp_lab.scenarios.spray import spray
from dlcp_lab.verify.command import verify
from dlcp_lab.verify.digits import MAX_RANKS
from dlcpd import __version__
from dlcpd.contract.messages import DTYPES, REDUCE_OPS
from dlcpd.contract.policy import DEFAULT_MAX_LOSS, MAX_LOSS_LIMIT
from dlcpd.core.wire import MAX_PATHS
from dlcpd.ctl.status import peers, status
from dlcpd.daemon.config import DaemonTable

MAX_LEDGER: Final = 1000  # rows; what a daemon gives out at once
MAX_SEED: Final = 1 << 31
DEFAULT_BUFFER: Final = 256 * 1024  # bytes per port of the emulated switch: a shallow one

MAX_LAB_HOSTS: Final = 250  # what the fabric's addresses have room for

Commands = Any  # argparse has no public name for what add_subparsers returns


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    """The whole grammar. `options.run(options, output)` is the command."""
    top = argparse.ArgumentParser(
        prog="dlcpctl",
        description="Inspect, measure and verify dlcpd.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"dlcpctl {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_inspection(commands, environ)
    _add_bench(commands)
    _add_verify(commands)
    _add_lab(commands)
    text = "Train two small models over Gloo, dlcpd exact and dlcpd bounded, and compare."
    made = _command(commands, "demo", demo, text, torch=True)
    made.add_argument("--quick", action="store_true", help="fewer steps")
    return top


def _command(
    commands: Commands, name: str, run: Callable[..., int], text: str, *, torch: bool
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, allow_abbrev=False
    )
    made.add_argument("--json", metavar="FILE", help='also write JSON; "-" = to stdout')
    made.set_defaults(run=run, needs_torch=torch)
    return made


def _add_inspection(commands: Commands, environ: Mapping[str, str]) -> None:
    door = environ.get("DLCPD_SOCKET") or DaemonTable().socket
    for name, run, text in (
        ("status", status, "Show a daemon's sessions, paths and counters."),
        ("peers", peers, "Show the peers of a daemon's sessions, path by path."),
    ):
        made = _command(commands, name, run, text, torch=False)
        made.add_argument(
            "--socket", default=door, metavar="S", help="session socket (%(default)s)"
        )
        if name == "status":
            made.add_argument(
                "--ledger", type=whole(0, MAX_LEDGER), default=0, metavar="N",
                help="newest rows of the loss ledger to show",
            )  # fmt: skip


def _add_bench(commands: Commands) -> None:
    text = "Measure an operation of dlcpd and of Gloo by turns."
    operations = commands.add_parser("bench", help=text, description=text).add_subparsers(
        dest="operation", required=True, metavar="OPERATION"
    )
    _add_scenarios(operations)
    made = _command(operations, "all-reduce", bench, text, torch=True)
    made.add_argument("--hosts", type=whole(2, MAX_HOSTS), default=2)
    made.add_argument("--sizes", type=sizes, default="4K,1M,16M,64M", help="tensors (%(default)s)")
    made.add_argument("--dtype", choices=DTYPES, default="float32")
    made.add_argument("--op", choices=REDUCE_OPS, default="sum")
    _add_policy(made)
    made.add_argument("--arena", action="store_true", help="use tensors from session.empty()")
    made.add_argument(
        "--result-only",
        action="store_true",
        help="as the DDP hook does: done when the result stands; needs --arena",
    )
    made.add_argument("--against", choices=("gloo", "none"), default="gloo")
    made.add_argument("--repeat", type=whole(1, 100_000), default=20, metavar="N")
    made.add_argument("--warmup", type=whole(0, 1000), default=3, metavar="N")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                      help="a line of [network] of the hosts' configuration")  # fmt: skip
    made.add_argument(
        "--back-to-back",
        action="store_true",
        help="begin each round at once, not when all ranks are ready",
    )
    made.add_argument(
        "--pin", action="store_true", help="give each host CPUs of its own, if there are enough"
    )
    _add_places(made)
    _add_trainings(operations)


def _add_trainings(operations: Commands) -> None:
    text = "Step times of replayed networks: gradients that cross the step, or do not, and Gloo."
    made = _command(operations, "step", step, text, torch=True)
    made.add_argument("--models", type=some_of(NETWORKS), default=",".join(NETWORKS),
                      metavar="NAMES", help="(%(default)s)")  # fmt: skip
    made.add_argument("--rate", default="100mbit", help="of the emulated switch (%(default)s)")
    made.add_argument("--scale", type=_scale, default=0.05, metavar="F",
                      help="of each layer's parameters (%(default)s)")  # fmt: skip
    made.add_argument("--ratio", type=_ratio, default=1.5, metavar="F",
                      help="of communication to computation (%(default)s)")  # fmt: skip
    made.add_argument("--mode", choices=("exact", "bounded"), default="exact")
    made.add_argument("--max-loss", type=_bound, default=DEFAULT_MAX_LOSS, metavar="F",
                      help="bound of bounded mode (%(default)s)")  # fmt: skip
    made.add_argument("--steps", type=whole(1, 10_000), default=8, metavar="N",
                      help="to measure, per system and seed (%(default)s)")  # fmt: skip
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                      help="a line of [network] of the hosts' configuration")  # fmt: skip
    _add_repetition(made)
    text = "Two trainings end to end on four hosts of a congested fabric, over Gloo and dlcpd."
    made = _command(operations, "training", training, text, torch=True)
    made.add_argument("--share", type=_scale, default=1.0, metavar="F",
                      help="of the demo's steps (%(default)s)")  # fmt: skip
    made.add_argument(
        "--one-queue",
        action="store_true",
        help="per port: no class goes before another, nor before other traffic",
    )
    _add_repetition(made)


def _add_repetition(made: argparse.ArgumentParser) -> None:
    made.add_argument("--seeds", type=whole(1, 100), default=3, metavar="N",
                      help="measure with seeds 1..N (%(default)s)")  # fmt: skip
    made.add_argument("--quick", action="store_true", help="one seed, little work: a smoke test")


SCENARIOS: Final = (
    ("drop", drop, "What 2:1 overload takes, with drop ranks by magnitude and at random."),
    ("priority", priority, "A front layer against back layers that are under way."),
    ("ablation", ablation, "One congested fabric, one mechanism more at each step."),
    ("spray", spray, "Several paths against one, unequal ones, and one that dies."),
    ("loss", loss, "Random loss and bursts, exact against bounded."),
    ("incast", incast, "2 to 16 hosts send to every one at once."),
    ("fairness", fairness, "A TCP flow beside us, and two jobs beside each other."),
)


def _add_scenarios(operations: Commands) -> None:
    for name, run, text in SCENARIOS:
        made = _command(operations, name, run, f"{text} On an emulated fabric (root).", torch=True)
        made.add_argument("--seeds", type=whole(1, 20), default=3, metavar="N",
                          help="seeds 1..N (%(default)s)")  # fmt: skip


def _add_verify(commands: Commands) -> None:
    text = "Check promises P1-P5 on real hosts with injected loss."
    made = _command(commands, "verify", verify, text, torch=True)
    made.add_argument("--hosts", type=whole(2, MAX_RANKS), default=4)
    made.add_argument("--loss", type=_injected, default=0.05, metavar="F",
                      help="loss to inject at each host's sockets (%(default)s)")  # fmt: skip
    _add_policy(made)


def _add_policy(made: argparse.ArgumentParser) -> None:
    made.add_argument("--mode", choices=("exact", "bounded"), default="exact")
    made.add_argument("--max-loss", type=_bound, default=DEFAULT_MAX_LOSS, metavar="F",
                      help="bound of bounded mode (%(default)s)")  # fmt: skip
    made.add_argument("--seed", type=whole(0, MAX_SEED), default=1, help="(%(default)s)")


def _add_places(made: argparse.ArgumentParser) -> None:
    made.add_argument("--loss", type=_injected, default=0.0, metavar="F",
                      help="loss to inject at each loopback host's sockets")  # fmt: skip
    made.add_argument(
        "--paths", type=whole(1, MAX_PATHS), default=1, help="loopback paths per host"
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument("--switch", metavar="RATE", default="",
                       help="put the hosts on an emulated switch (root), e.g. 1gbit")  # fmt: skip
    where.add_argument(
        "--netns",
        action="append",
        default=[],
        metavar="NS=ADDRESS",
        help="put a host into a network namespace (root); once per host, instead of --hosts",
    )
    made.add_argument("--switch-loss", type=fraction, default=0.0, metavar="F")
    made.add_argument("--switch-buffer", type=size, default=DEFAULT_BUFFER, metavar="BYTES")


def _add_lab(commands: Commands) -> None:
    text = "Run an emulated leaf-spine fabric in network namespaces (root)."
    actions = commands.add_parser("lab", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    _add_lab_up(_lab_command(actions, "up", lab.up, "Make a fabric that stays until `down`."))
    made = _command(actions, "status", lab.status, "Show hosts, links and counters.", torch=False)
    made.add_argument("--name", default="", help="of one fabric (default: all)")
    text = "Run a program on one host, or on every host with a place in the job as its environment."
    made = _lab_command(actions, "run", lab.run, text)
    made.add_argument("--host", type=whole(0, MAX_LAB_HOSTS), help="(default: all)")
    made.add_argument("--timeout", type=float, default=3600.0, help="seconds (%(default)s)")
    made.add_argument("argv", nargs="*", metavar="PROGRAM", help="after --, with its arguments")
    made = _lab_command(actions, "down", lab.down, "Remove a fabric and end what runs in it.")
    made.add_argument("--all", action="store_true", help="remove all of them")
    _add_lab_changes(actions)


def _lab_command(
    actions: Commands, name: str, run: Callable[..., int], text: str
) -> argparse.ArgumentParser:
    made = _command(actions, name, run, text, torch=False)
    made.add_argument("--name", default="lab", help="of the fabric (%(default)s)")
    return made


def _add_lab_up(made: argparse.ArgumentParser) -> None:
    made.add_argument("--hosts", type=whole(1, MAX_LAB_HOSTS), default=4)
    made.add_argument("--leaves", type=whole(1, MAX_LAB_HOSTS), default=1, help="per rail")
    made.add_argument("--spines", type=whole(0, MAX_LAB_HOSTS), default=0, help="per rail")
    made.add_argument("--rails", type=whole(1, 8), default=1, help="interfaces per host")
    made.add_argument("--rate", default="1gbit", help="of leaf to host (%(default)s)")
    made.add_argument("--spine-rate", default="", metavar="RATE", help="(default: as --rate)")
    made.add_argument("--buffer", dest="buffer_bytes", type=size, default=DEFAULT_BUFFER,
                      metavar="BYTES", help="per switch port (%(default)s)")  # fmt: skip
    made.add_argument("--loss", type=fraction, default=0.0, metavar="F",
                      help="taken by every switch output")  # fmt: skip
    made.add_argument("--burst-loss", type=fraction, default=0.0, metavar="F",
                      help="taken in bursts by every switch output")  # fmt: skip
    made.add_argument("--burst-length", type=float, default=8.0, metavar="N",
                      help="mean packets per burst (%(default)s)")  # fmt: skip
    made.add_argument("--classes", action="store_true", help="a queue per traffic class")
    made.add_argument("--ecn", dest="ecn_bytes", type=size, default=0, metavar="BYTES",
                      help="mark and drop early above this backlog")  # fmt: skip
    made.add_argument("--bare", action="store_true", help="switches without queues and rates")
    made.add_argument("--seed", type=whole(1, 1 << 30), default=1, help="of the ECMP hash")


def _add_lab_changes(actions: Commands) -> None:
    link = "a link (l0-s1), one direction of it (l0:s1)"
    cut = _lab_command(actions, "cut", lab.change, "Take a link out of service.")
    cut.add_argument("link", metavar="LINK", help=f"{link}; one direction only with --silent")
    cut.add_argument("--silent", action="store_true", help="lose packets, change no route")
    restore = _lab_command(actions, "restore", lab.change, "Put a link back into service.")
    restore.add_argument("link", metavar="LINK", nargs="?", default="", help="(default: all)")
    limit = _lab_command(actions, "limit", lab.change, "Change the rate of a link.")
    limit.add_argument("link", metavar="LINK", help=link)
    limit.add_argument("rate", metavar="RATE", help="such as 100mbit")
    lose = _lab_command(actions, "lose", lab.change, "Take a fraction of a link's packets.")
    lose.add_argument("loss", metavar="F", type=fraction, help="0.01 or 1%%; 0 ends it")
    lose.add_argument("link", metavar="LINK", nargs="?", default="", help=f"{link} (default: all)")
    lose.add_argument("--burst-length", type=float, default=0.0, metavar="N",
                      help="in bursts of so many packets in the mean")  # fmt: skip
    for name, made in {"cut": cut, "restore": restore, "limit": limit, "lose": lose}.items():
        made.set_defaults(change=name)


def _bound(text: str) -> float:
    value = fraction(text)
    if not 0.0 < value <= MAX_LOSS_LIMIT:
        raise argparse.ArgumentTypeError(f"{text!r}: a bound is above 0, up to {MAX_LOSS_LIMIT}")
    return value


def _scale(text: str) -> float:
    value = fraction(text)
    if not value:
        raise argparse.ArgumentTypeError(f"{text!r}: a scale is above 0, up to 1")
    return value


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text!r} is no ratio; write a number from 0.1 to 10")
    return value


def _injected(text: str) -> float:
    value = fraction(text)
    if value > 0.9:
        raise argparse.ArgumentTypeError(f"{text!r}: at most 0.9 can be injected")
    return value
