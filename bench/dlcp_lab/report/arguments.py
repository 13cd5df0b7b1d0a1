"""Command-line arguments that several commands of this package share."""

import argparse
from collections.abc import Callable, Collection
from typing import Final

from dlcp_lab.report.amounts import bound, scale, several, sizes, some_of
from dlcpd.cli.grammar import Need, whole
from dlcpd.contract.policy import DEFAULT_MAX_LOSS

MAX_SEED: Final = 1 << 31
MAX_SEEDS: Final = 100  # of a benchmark whose seed takes minutes
TORCH: Final = Need("torch", "torch", "client")
SCIKIT_LEARN: Final = Need("sklearn", "scikit-learn", "demo")  # the digits data set


def add_policy(made: argparse.ArgumentParser) -> None:
    """The loss policy of a command's operations, and the seed."""
    add_mode(made)
    add_seed(made)


def add_mode(made: argparse.ArgumentParser) -> None:
    """The loss policy alone."""
    made.add_argument(
        "--mode", choices=("exact", "bounded"), default="exact", help="loss policy (%(default)s)"
    )
    made.add_argument(
        "--max-loss",
        type=bound,
        default=DEFAULT_MAX_LOSS,
        metavar="F",
        help="bound of the bounded mode (%(default)s)",
    )


def add_seed(made: argparse.ArgumentParser) -> None:
    """`--seed`, one for the whole run."""
    made.add_argument(
        "--seed", type=whole(0, MAX_SEED), default=1, help="random seed (%(default)s)"
    )


def add_seeds(made: argparse.ArgumentParser, most: int) -> None:
    """`--seeds`: how often everything is measured."""
    made.add_argument(
        "--seeds",
        type=whole(1, most),
        default=3,
        metavar="N",
        help="measure with seeds 1..N (%(default)s)",
    )


def add_repetition(made: argparse.ArgumentParser) -> None:
    """`--seeds`, and `--quick` for one seed and little work."""
    add_seeds(made, MAX_SEEDS)
    made.add_argument("--quick", action="store_true", help="smoke test: one seed, little work")


def add_share(made: argparse.ArgumentParser) -> None:
    """`--share` of a training's steps."""
    made.add_argument(
        "--share",
        type=scale,
        default=1.0,
        metavar="F",
        help="fraction of the demo's steps (%(default)s)",
    )


def add_steps(made: argparse.ArgumentParser, default: int, per: str) -> None:
    """`--steps`: steps to measure. `per`: the unit of that count, for the help text."""
    made.add_argument(
        "--steps",
        type=whole(1, 10_000),
        default=default,
        metavar="N",
        help=f"steps to measure, per {per} (%(default)s)",
    )


def add_rounds(made: argparse.ArgumentParser, repeat: int = 20) -> None:
    """`--repeat` and `--warmup`: rounds that count, and rounds before them."""
    made.add_argument(
        "--repeat",
        type=whole(1, 100_000),
        default=repeat,
        metavar="N",
        help="rounds (%(default)s)",
    )
    made.add_argument(
        "--warmup",
        type=whole(0, 1000),
        default=3,
        metavar="N",
        help="rounds before the measured ones (%(default)s)",
    )


def add_blocks(made: argparse.ArgumentParser, steps: int, blocks: int) -> None:
    """`--repeat` and `--blocks`: ways take turns of that many steps, that many times."""
    made.add_argument(
        "--repeat", type=whole(1, 1000), default=steps, metavar="N", help="steps (%(default)s)"
    )
    made.add_argument(
        "--blocks",
        type=whole(1, 100),
        default=blocks,
        metavar="N",
        help="blocks of that many steps by each way (%(default)s)",
    )


def add_list(
    made: argparse.ArgumentParser,
    option: str,
    kind: Callable[[str], object],
    default: str,
    text: str,
) -> None:
    """Add an option of several values of `kind`, with commas between them."""
    made.add_argument(
        option,
        type=several(kind),
        default=default,
        metavar="LIST",
        help=f"{text} (%(default)s)",
    )


def add_sizes(made: argparse.ArgumentParser, default: str) -> None:
    """`--sizes` of tensors."""
    made.add_argument("--sizes", type=sizes, default=default, help="bytes of tensors (%(default)s)")


def add_some(
    made: argparse.ArgumentParser, option: str, known: Collection[str], default: str = ""
) -> None:
    """An option that takes names from `known`; by default all."""
    made.add_argument(
        option,
        type=some_of(known),
        default=default or ",".join(known),
        metavar="NAMES",
        help="names to choose from (%(default)s)",
    )


def add_settings(made: argparse.ArgumentParser) -> None:
    """`--set`, for `dlcp_lab.ranks.hosts.network_table`."""
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a line of [network] of the hosts' configuration",
    )
