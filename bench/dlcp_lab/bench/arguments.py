"""The grammar of `dlcpctl bench`."""

import argparse
from typing import Final

from dlcp_lab.bench.account import add_account
from dlcp_lab.bench.all_reduce import bench
from dlcp_lab.bench.codecs import codecs
from dlcp_lab.bench.collectives import COLLECTIVES, collectives
from dlcp_lab.bench.cuda import cuda
from dlcp_lab.bench.places import add_places
from dlcp_lab.bench.trace import trace
from dlcp_lab.bench.training import training
from dlcp_lab.ranks.reference import DTYPES, OPERATIONS
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.step import step
from dlcp_lab.report.amounts import ratio, scale, size, sizes, some_of
from dlcp_lab.report.arguments import MAX_SEED, SCIKIT_LEARN, TORCH, add_mode, add_policy
from dlcp_lab.scenarios.ablation import ablation
from dlcp_lab.scenarios.drop import drop
from dlcp_lab.scenarios.fairness import fairness
from dlcp_lab.scenarios.incast import incast
from dlcp_lab.scenarios.loss import loss
from dlcp_lab.scenarios.priority import priority
from dlcp_lab.scenarios.ps import ps
from dlcp_lab.scenarios.spray import spray
from dlcpd.ctl.grammar import Commands, command, whole


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the operations."""
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    _add_scenarios(operations)
    text = "Time of an all-reduce over dlcpd and over Gloo, in alternation, per size."
    made = command(operations, "all-reduce", bench, text, needs=(TORCH,))
    made.add_argument(
        "--sizes", type=sizes, default="4K,1M,16M,64M", help="bytes of tensors (%(default)s)"
    )
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
        help="stop timing when the result is complete, as the DDP hook does; needs --arena",
    )
    made.add_argument("--against", choices=("gloo", "none"), default="gloo")
    made.add_argument("--repeat", type=whole(1, 100_000), default=20, metavar="N")
    made.add_argument("--warmup", type=whole(0, 1000), default=3, metavar="N")
    made.add_argument(
        "--back-to-back",
        action="store_true",
        help="start each round at once, without waiting until all ranks are ready",
    )
    add_account(made)
    add_places(made)
    _add_collectives(operations)
    _add_trace(operations)
    _add_trainings(operations)


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
    made.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=1, help="random seed (%(default)s)"
    )
    add_places(made)


def _add_collectives(operations: Commands) -> None:
    text = "Time of the collectives of torch.distributed over dlcpd and over Gloo, in alternation."
    made = command(operations, "collectives", collectives, text, needs=(TORCH,))
    made.add_argument(
        "--collectives",
        type=some_of(COLLECTIVES),
        default=",".join(COLLECTIVES),
        metavar="NAMES",
        help="some of them (%(default)s)",
    )
    made.add_argument(
        "--sizes", type=sizes, default="4K,1M,16M", help="bytes of tensors (%(default)s)"
    )
    made.add_argument("--repeat", type=whole(1, 100_000), default=20, metavar="N")
    made.add_argument("--warmup", type=whole(0, 1000), default=3, metavar="N")
    made.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=1, help="random seed (%(default)s)"
    )
    add_places(made)


def _add_trainings(operations: Commands) -> None:
    text = "Step times of replayed networks: dlcpd with and without cross_step, and Gloo."
    made = command(operations, "step", step, text, needs=(TORCH,))
    made.add_argument(
        "--models",
        type=some_of(NETWORKS),
        default=",".join(NETWORKS),
        metavar="NAMES",
        help="some of them (%(default)s)",
    )
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
    made.add_argument(
        "--steps",
        type=whole(1, 10_000),
        default=8,
        metavar="N",
        help="steps to measure, per system and seed (%(default)s)",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a line of [network] of the hosts' configuration",
    )
    _add_repetition(made)
    text = "Step times of replayed networks on the GPUs of this host: dlcpd, NCCL and Gloo."
    made = command(operations, "cuda", cuda, text, needs=(TORCH,))
    made.add_argument(
        "--models",
        type=some_of(NETWORKS),
        default="resnet50,gpt2-small",
        metavar="NAMES",
        help="some of them (%(default)s)",
    )
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
    made.add_argument(
        "--steps",
        type=whole(1, 10_000),
        default=20,
        metavar="N",
        help="steps to measure, per transport (%(default)s)",
    )
    text = "Two trainings on four hosts of a congested fabric, over Gloo and over dlcpd."
    made = command(operations, "training", training, text, needs=(TORCH, SCIKIT_LEARN))
    made.add_argument(
        "--share",
        type=scale,
        default=1.0,
        metavar="F",
        help="fraction of the demo's steps (%(default)s)",
    )
    made.add_argument(
        "--one-queue",
        action="store_true",
        help="one queue per switch port: no priority for any class",
    )
    _add_repetition(made)
    text = "Bytes, CPU time and accuracy of two trainings, per codec. On loopback."
    made = command(operations, "codecs", codecs, text, needs=(TORCH, SCIKIT_LEARN))
    made.add_argument(
        "--share",
        type=scale,
        default=1.0,
        metavar="F",
        help="fraction of the demo's steps (%(default)s)",
    )
    _add_repetition(made)


def _add_repetition(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--seeds",
        type=whole(1, 100),
        default=3,
        metavar="N",
        help="measure with seeds 1..N (%(default)s)",
    )
    made.add_argument("--quick", action="store_true", help="smoke test: one seed, little work")


SCENARIOS: Final = (
    ("drop", drop, "Losses at 2:1 overload, with drop precedences by magnitude and at random."),
    ("priority", priority, "Time of a front layer while back layers are in flight."),
    ("ablation", ablation, "A congested fabric, with one more mechanism at each step."),
    ("spray", spray, "Several paths against one; unequal paths; a path that fails."),
    ("loss", loss, "Random loss and bursts of loss, exact against bounded."),
    ("incast", incast, "2 to 16 hosts that all send to each other at once."),
    ("fairness", fairness, "Shares of a TCP flow and a job, and of two jobs, on one link."),
)


def _add_scenarios(operations: Commands) -> None:
    text = "Step time with a parameter server, Gloo and all-reduce. On an emulated fabric (root)."
    made = command(operations, "ps", ps, text, needs=(TORCH,))
    _add_repetition(made)
    for name, run, text in SCENARIOS:
        made = command(
            operations, name, run, f"{text} On an emulated fabric (root).", needs=(TORCH,)
        )
        made.add_argument(
            "--seeds",
            type=whole(1, 20),
            default=3,
            metavar="N",
            help="measure with seeds 1..N (%(default)s)",
        )
