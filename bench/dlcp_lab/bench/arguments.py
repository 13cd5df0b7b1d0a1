"""What can be typed after `dlcpctl bench`."""

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
from dlcp_lab.report.amounts import bound, ratio, scale, size, sizes, some_of
from dlcp_lab.report.arguments import MAX_SEED, SCIKIT_LEARN, TORCH, add_policy
from dlcp_lab.scenarios.ablation import ablation
from dlcp_lab.scenarios.drop import drop
from dlcp_lab.scenarios.fairness import fairness
from dlcp_lab.scenarios.incast import incast
from dlcp_lab.scenarios.loss import loss
from dlcp_lab.scenarios.priority import priority
from dlcp_lab.scenarios.ps import ps
from dlcp_lab.scenarios.spray import spray
from dlcpd.contract.policy import DEFAULT_MAX_LOSS
from dlcpd.ctl.grammar import Commands, command, whole


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the operations."""
    operations = parser.add_subparsers(dest="operation", required=True, metavar="OPERATION")
    _add_scenarios(operations)
    text = "An all-reduce over dlcpd and over Gloo by turns, size by size."
    made = command(operations, "all-reduce", bench, text, needs=(TORCH,))
    made.add_argument("--sizes", type=sizes, default="4K,1M,16M,64M", help="tensors (%(default)s)")
    made.add_argument("--dtype", choices=DTYPES, default="float32")  # those of the reference
    made.add_argument("--op", choices=OPERATIONS, default="sum")
    add_policy(made)
    made.add_argument("--codec", default="", metavar="NAME", help="e.g. bf16, int8 or topk:0.01")
    made.add_argument("--arena", action="store_true", help="use tensors from session.empty()")
    made.add_argument(
        "--result-only",
        action="store_true",
        help="as the DDP hook does: done when the result stands; needs --arena",
    )
    made.add_argument("--against", choices=("gloo", "none"), default="gloo")
    made.add_argument("--repeat", type=whole(1, 100_000), default=20, metavar="N")
    made.add_argument("--warmup", type=whole(0, 1000), default=3, metavar="N")
    made.add_argument(
        "--back-to-back",
        action="store_true",
        help="begin each round at once, not when all ranks are ready",
    )
    add_account(made)
    add_places(made)
    _add_collectives(operations)
    _add_trace(operations)
    _add_trainings(operations)


def _add_trace(operations: Commands) -> None:
    text = "What `dlcpctl trace` costs: all-reduces by turns with and without a recording."
    made = command(operations, "trace", trace, text, needs=(TORCH,))
    made.add_argument("--size", type=size, default="16M", help="of the tensor (%(default)s)")
    made.add_argument(
        "--pairs",
        type=whole(1, 1000),
        default=40,
        metavar="N",
        help="of blocks with and without (%(default)s)",
    )
    made.add_argument("--seed", type=whole(0, MAX_SEED), default=1, help="(%(default)s)")
    add_places(made)


def _add_collectives(operations: Commands) -> None:
    text = "Every collective of torch.distributed, over dlcpd and over Gloo by turns."
    made = command(operations, "collectives", collectives, text, needs=(TORCH,))
    made.add_argument(
        "--collectives",
        type=some_of(COLLECTIVES),
        default=",".join(COLLECTIVES),
        metavar="NAMES",
        help="(%(default)s)",
    )
    made.add_argument("--sizes", type=sizes, default="4K,1M,16M", help="(%(default)s)")
    made.add_argument("--repeat", type=whole(1, 100_000), default=20, metavar="N")
    made.add_argument("--warmup", type=whole(0, 1000), default=3, metavar="N")
    made.add_argument("--seed", type=whole(0, MAX_SEED), default=1, help="(%(default)s)")
    add_places(made)


def _add_trainings(operations: Commands) -> None:
    text = "Step times of replayed networks: gradients that cross the step, or do not, and Gloo."
    made = command(operations, "step", step, text, needs=(TORCH,))
    made.add_argument(
        "--models",
        type=some_of(NETWORKS),
        default=",".join(NETWORKS),
        metavar="NAMES",
        help="(%(default)s)",
    )
    made.add_argument("--rate", default="100mbit", help="of the emulated switch (%(default)s)")
    made.add_argument(
        "--scale",
        type=scale,
        default=0.05,
        metavar="F",
        help="of each layer's parameters (%(default)s)",
    )
    made.add_argument(
        "--ratio",
        type=ratio,
        default=1.5,
        metavar="F",
        help="of communication to computation (%(default)s)",
    )
    made.add_argument("--mode", choices=("exact", "bounded"), default="exact")
    made.add_argument(
        "--max-loss",
        type=bound,
        default=DEFAULT_MAX_LOSS,
        metavar="F",
        help="bound of bounded mode (%(default)s)",
    )
    made.add_argument(
        "--steps",
        type=whole(1, 10_000),
        default=8,
        metavar="N",
        help="to measure, per system and seed (%(default)s)",
    )
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a line of [network] of the hosts' configuration",
    )
    _add_repetition(made)
    text = "Step times of replayed networks on this host's GPUs: dlcpd, NCCL and Gloo by turns."
    made = command(operations, "cuda", cuda, text, needs=(TORCH,))
    made.add_argument(
        "--models",
        type=some_of(NETWORKS),
        default="resnet50,gpt2-small",
        metavar="NAMES",
        help="(%(default)s)",
    )
    made.add_argument(
        "--ranks",
        type=whole(0, 64),
        default=0,
        metavar="N",
        help="0: one for each GPU (%(default)s)",
    )
    made.add_argument(
        "--samples",
        type=whole(1, 4096),
        default=32,
        metavar="N",
        help="images; texts are a hundredth of it (%(default)s)",
    )
    made.add_argument(
        "--steps",
        type=whole(1, 10_000),
        default=20,
        metavar="N",
        help="to measure, each way (%(default)s)",
    )
    text = "Two trainings end to end on four hosts of a congested fabric, over Gloo and dlcpd."
    made = command(operations, "training", training, text, needs=(TORCH, SCIKIT_LEARN))
    made.add_argument(
        "--share", type=scale, default=1.0, metavar="F", help="of the demo's steps (%(default)s)"
    )
    made.add_argument(
        "--one-queue",
        action="store_true",
        help="per port: no class goes before another, nor before other traffic",
    )
    _add_repetition(made)
    text = "Codecs: bytes, CPU time, and what two trainings learn with each. On loopback."
    made = command(operations, "codecs", codecs, text, needs=(TORCH, SCIKIT_LEARN))
    made.add_argument(
        "--share", type=scale, default=1.0, metavar="F", help="of the demo's steps (%(default)s)"
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
    made.add_argument("--quick", action="store_true", help="one seed, little work: a smoke test")


SCENARIOS: Final = (
    ("drop", drop, "What 2:1 overload takes, with drop precedences by magnitude and at random."),
    ("priority", priority, "A front layer against back layers that are under way."),
    ("ablation", ablation, "One congested fabric, one mechanism more at each step."),
    ("spray", spray, "Several paths against one, unequal ones, and one that dies."),
    ("loss", loss, "Random loss and bursts, exact against bounded."),
    ("incast", incast, "2 to 16 hosts send to every one at once."),
    ("fairness", fairness, "A TCP flow beside us, and two jobs beside each other."),
)


def _add_scenarios(operations: Commands) -> None:
    text = (
        "A step with a parameter server, beside Gloo and all-reduce. On a fabric of its own (root)."
    )
    made = command(operations, "ps", ps, text, needs=(TORCH,))
    _add_repetition(made)
    for name, run, text in SCENARIOS:
        made = command(
            operations, name, run, f"{text} On an emulated fabric (root).", needs=(TORCH,)
        )
        made.add_argument(
            "--seeds", type=whole(1, 20), default=3, metavar="N", help="seeds 1..N (%(default)s)"
        )
