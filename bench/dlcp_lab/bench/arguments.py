"""The grammar of `dlcpctl bench`."""

import argparse
from typing import Final

from dlcp_lab.bench.account import add_account
from dlcp_lab.bench.all_reduce import bench
from dlcp_lab.bench.codecs import codecs
from dlcp_lab.bench.collectives import COLLECTIVES, collectives
from dlcp_lab.bench.cuda import cuda
from dlcp_lab.bench.engine import engine
from dlcp_lab.bench.engine_task import NAMES
from dlcp_lab.bench.fused import WAYS, fused
from dlcp_lab.bench.places import add_places
from dlcp_lab.bench.plan import add_plan
from dlcp_lab.bench.schedules import add_schedules
from dlcp_lab.bench.simulate import add_simulate
from dlcp_lab.bench.spmd import add_spmd
from dlcp_lab.bench.sweep import add_sweep
from dlcp_lab.bench.trace import trace
from dlcp_lab.bench.training import training
from dlcp_lab.emulation.plan import FabricError, bits_per_second
from dlcp_lab.ranks.reference import DTYPES, OPERATIONS
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.step import step
from dlcp_lab.report.amounts import bound, duration, fraction, ratio, scale, size
from dlcp_lab.report.arguments import (
    SCIKIT_LEARN,
    TORCH,
    add_blocks,
    add_list,
    add_mode,
    add_policy,
    add_repetition,
    add_rounds,
    add_seed,
    add_seeds,
    add_settings,
    add_share,
    add_sizes,
    add_some,
    add_steps,
)
from dlcp_lab.scenarios.ablation import ablation
from dlcp_lab.scenarios.drop import drop
from dlcp_lab.scenarios.fairness import fairness
from dlcp_lab.scenarios.incast import incast
from dlcp_lab.scenarios.loss import loss
from dlcp_lab.scenarios.priority import priority
from dlcp_lab.scenarios.ps import ps
from dlcp_lab.scenarios.rtt import TCP, rtt
from dlcp_lab.scenarios.spray import spray
from dlcp_lab.scenarios.uneven import uneven
from dlcpd.cli.grammar import Commands, command, whole

SCENARIO_SEEDS: Final = 20  # at most
SCENARIOS: Final = (
    ("drop", drop, "Losses at 2:1 overload, with drop precedences by magnitude and at random."),
    ("priority", priority, "Time of a front layer while back layers are in flight."),
    ("ablation", ablation, "A congested fabric, with one more mechanism at each step."),
    ("spray", spray, "Several paths against one; unequal paths; a path that fails."),
    ("loss", loss, "Random loss and bursts of loss, exact against bounded."),
    ("incast", incast, "2 to 16 hosts that all send to each other at once."),
    ("uneven", uneven, "A slow host, and racks behind slow uplinks, with and without a plan."),
    ("fairness", fairness, "Shares of a TCP flow and a job, and of two jobs, on one link."),
)


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the operations."""
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    for add in (
        _add_ps,
        _add_scenarios,
        _add_rtt,
        _add_all_reduce,
        _add_collectives,
        _add_engine,
        _add_trace,
        _add_step,
        _add_cuda,
        _add_training,
        _add_codecs,
        _add_fused,
        add_schedules,
        add_sweep,
        add_simulate,
        add_spmd,
        add_plan,
    ):
        add(operations)


def _add_ps(operations: Commands) -> None:
    text = "Step time with a parameter server, Gloo and all-reduce. On an emulated fabric (root)."
    add_repetition(command(operations, "ps", ps, text, needs=(TORCH,)))


def _add_scenarios(operations: Commands) -> None:
    for name, run, text in SCENARIOS:
        made = command(
            operations, name, run, f"{text} On an emulated fabric (root).", needs=(TORCH,)
        )
        add_seeds(made, SCENARIO_SEEDS)


def _rate(text: str) -> str:
    """A rate such as 100mbit. Raises: ArgumentTypeError."""
    try:
        bits_per_second(text)
    except FabricError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
    return text


def _add_rtt(operations: Commands) -> None:
    text = "Long paths with and without loss: exact, bounded, and Gloo over TCP BBR and cubic."
    made = command(operations, "rtt", rtt, f"{text} On an emulated fabric (root).", needs=(TORCH,))
    made.add_argument("--hosts", type=whole(2, 16), default=2, help="hosts (%(default)s)")
    rates, round_trips, losses = "50mbit,200mbit", "2ms,20ms,50ms", "0,0.01"
    for option, kind, default, text in (
        ("--rates", _rate, rates, "rates of the switch's ports"),
        ("--round-trips", duration, round_trips, "round-trip times without queues"),
        ("--losses", fraction, losses, "random loss of each direction between two hosts"),
    ):
        add_list(made, option, kind, default, text)
    made.add_argument("--size", type=size, default="2M", help="bytes of the tensor (%(default)s)")
    made.add_argument(
        "--max-loss",
        type=bound,
        default=0.05,
        metavar="F",
        help="bound of the bounded mode (%(default)s)",
    )
    add_some(made, "--against", TCP)
    add_rounds(made)
    add_settings(made)
    add_seeds(made, SCENARIO_SEEDS)


def _add_all_reduce(operations: Commands) -> None:
    text = "Time of an all-reduce over dlcpd and over Gloo, in alternation, per size."
    made = command(operations, "all-reduce", bench, text, needs=(TORCH,))
    add_sizes(made, "4K,1M,16M,64M")
    made.add_argument("--dtype", choices=DTYPES, default="float32")  # dtypes of the reference
    made.add_argument("--op", choices=OPERATIONS, default="sum")
    add_policy(made)
    made.add_argument(
        "--codec", default="", metavar="NAME", help="codec, e.g. bf16, int8 or topk:0.01"
    )
    made.add_argument(
        "--arena", action="store_true", help="use tensors in the arena (session.empty())"
    )
    made.add_argument(
        "--result-only",
        action="store_true",
        help="stop timing when the result is complete, as the DDP hook does (needs --arena)",
    )
    made.add_argument("--against", choices=("gloo", "none"), default="gloo")
    add_rounds(made)
    made.add_argument(
        "--back-to-back",
        action="store_true",
        help="start each round at once, without waiting until all ranks are ready",
    )
    add_account(made)
    add_places(made)


def _add_collectives(operations: Commands) -> None:
    text = "Time of the collectives of torch.distributed over dlcpd and over Gloo, in alternation."
    made = command(operations, "collectives", collectives, text, needs=(TORCH,))
    add_some(made, "--collectives", COLLECTIVES)
    add_sizes(made, "4K,1M,16M")
    add_rounds(made)
    add_seed(made)
    add_places(made)


def _add_engine(operations: Commands) -> None:
    text = "CPU time and counts of an engine per operation, without other processes. On loopback."
    made = command(operations, "engine", engine, text)
    add_some(made, "--collectives", NAMES, "all_reduce")
    add_sizes(made, "4K,1M,16M,64M")
    made.add_argument(
        "--checksums", choices=("on", "off"), help="checksums of datagrams (as in the settings: on)"
    )
    made.add_argument(
        "--priority",
        action="store_true",
        help="run at the highest priority (root), so that other processes disturb less",
    )
    add_rounds(made, 100)
    add_settings(made)


def _add_trace(operations: Commands) -> None:
    text = "Cost of `dlcpctl trace`: all-reduces with and without a recording, in alternation."
    made = command(operations, "trace", trace, text, needs=(TORCH,))
    made.add_argument("--size", type=size, default="16M", help="bytes of the tensor (%(default)s)")
    made.add_argument(
        "--pairs",
        type=whole(1, 1000),
        default=40,
        metavar="N",
        help="pairs of blocks with and without a recording (%(default)s)",
    )
    add_seed(made)
    add_places(made)


def _add_step(operations: Commands) -> None:
    text = "Step times of replayed networks: dlcpd with and without cross_step, and Gloo."
    made = command(operations, "step", step, text, needs=(TORCH,))
    add_some(made, "--models", NETWORKS)
    made.add_argument("--rate", default="100mbit", help="rate of the emulated switch (%(default)s)")
    made.add_argument(
        "--scale",
        type=scale,
        default=0.05,
        metavar="F",
        help="fraction of each layer's parameters (%(default)s)",
    )
    made.add_argument(
        "--ratio",
        type=ratio,
        default=1.5,
        metavar="F",
        help="communication time / computation time (%(default)s)",
    )
    add_mode(made)
    add_steps(made, 8, "system and seed")
    add_settings(made)
    add_repetition(made)


def _add_fused(operations: Commands) -> None:
    text = "Training steps with the update inside the reduction, and by DDP, ZeRO and cross_step."
    made = command(operations, "fused", fused, text, needs=(TORCH,))
    add_sizes(made, "16M,64M,256M")
    add_some(made, "--ways", WAYS)
    made.add_argument(
        "--one-daemon",
        action="store_true",
        help="all ranks on one daemon, as on one machine; else each has its own",
    )
    made.add_argument(
        "--ratio",
        type=ratio,
        metavar="F",
        help="with --switch: communication time / computation time (1; 0.5, 1 and 2 with "
        "--model-parallel)",
    )
    made.add_argument(
        "--model-parallel",
        action="store_true",
        help="with --switch: a layer of row_parallel, against an all-reduce and what follows it; "
        "sizes are those of its result",
    )
    made.add_argument(
        "--compiled",
        action="store_true",
        help="with --model-parallel: a block of DTensor's tensor parallelism by torch.compile, "
        "forward and backward, with fused.inductor_options and without",
    )
    made.add_argument(
        "--pieces",
        type=whole(0, 256),
        default=0,
        metavar="N",
        help="with --model-parallel: pieces of a result; 0: by size (%(default)s)",
    )
    add_blocks(made, steps=8, blocks=3)
    add_seed(made)
    add_places(made)


def _add_cuda(operations: Commands) -> None:
    text = "Step times of replayed networks on the GPUs of this host: dlcpd, NCCL and Gloo."
    made = command(operations, "cuda", cuda, text, needs=(TORCH,))
    add_some(made, "--models", NETWORKS, "resnet50,gpt2-small")
    made.add_argument(
        "--ranks",
        type=whole(0, 64),
        default=0,
        metavar="N",
        help="number of ranks; 0 = one per GPU (%(default)s)",
    )
    made.add_argument(
        "--samples",
        type=whole(1, 4096),
        default=32,
        metavar="N",
        help="images per step; the number of texts is a hundredth (%(default)s)",
    )
    add_steps(made, 20, "transport")


def _add_training(operations: Commands) -> None:
    text = "Two trainings on four hosts of a congested fabric, over Gloo and over dlcpd."
    made = command(operations, "training", training, text, needs=(TORCH, SCIKIT_LEARN))
    add_share(made)
    made.add_argument(
        "--one-queue",
        action="store_true",
        help="one queue per switch port: no priority for any class",
    )
    add_repetition(made)


def _add_codecs(operations: Commands) -> None:
    text = "Bytes, CPU time and accuracy of two trainings, per codec. On loopback."
    made = command(operations, "codecs", codecs, text, needs=(TORCH, SCIKIT_LEARN))
    add_share(made)
    add_repetition(made)
