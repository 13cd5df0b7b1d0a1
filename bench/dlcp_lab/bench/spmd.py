"""`dlcpctl bench spmd`: steps of divided one-device programs, and of torch's own ways."""

import argparse
from dataclasses import asdict
from typing import Final

from dlcp_lab.bench.places import add_places, check_places, document, places, where
from dlcp_lab.bench.spmd_rows import HEADER, by_key, cells, claims, honesty, judge, rows_of
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import running
from dlcp_lab.report.arguments import TORCH, add_blocks, add_seed, add_some
from dlcp_lab.report.checks import broken, report
from dlcpd.cli.grammar import Commands, command, whole
from dlcpd.cli.output import Output

CASES: Final = ("tensor", "data", "sharded", "space")  # those of spmd_rank
BACKENDS: Final = ("gloo", "dlcp")
TIMEOUT: Final = 600.0  # seconds for starting, and for capturing models
PER_STEP: Final = 10.0  # seconds that a step may take at most before the run is aborted


def add_spmd(operations: Commands) -> None:
    """Add the command."""
    text = "Training steps of divided one-device programs, and by DTensor, DDP and FSDP2."
    made = command(operations, "spmd", spmd, text, needs=(TORCH,))
    add_some(made, "--cases", CASES)
    add_some(made, "--backends", BACKENDS)
    made.add_argument(
        "--layers",
        type=whole(1, 100),
        default=4,
        metavar="N",
        help="layers of the transformer (%(default)s)",
    )
    made.add_argument(
        "--measured", action="store_true", help="divided programs have plans by measured costs"
    )
    add_blocks(made, steps=5, blocks=5)
    add_seed(made)
    add_places(made)


def spmd(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when ways learn different things, not when a figure falls
    short: that depends on the machine. Raises: BadConfig."""
    check_places(options)
    names = ("cases", "backends", "layers", "measured", "repeat", "blocks", "seed")
    arguments = {name: getattr(options, name) for name in names}
    steps = (options.blocks + 1) * (options.repeat + 1) * 3 * len(options.cases)
    work = launch.Work("dlcp_lab.bench.spmd_rank", arguments, TIMEOUT + PER_STEP * steps)
    with places(options) as plans, running(plans) as hosts:
        ranks = launch.run(hosts, work, progress=output.progress)
    rows = rows_of(by_key(ranks))
    checks, asked = [judge(rows)], claims(rows, emulated=bool(options.switch))
    output.line(
        f"training steps with SGD, {where(options, plans, gloo=True)}; {options.layers} layers of "
        f"a transformer, and a network of images divided in width; {options.blocks} blocks of "
        f"{options.repeat} steps by each way in random order, slowest rank counts, medians; CPU of "
        "all processes per step"
    )
    output.line(rows.render(HEADER, cells, left=3))
    verdicts = [claim.line() for claim in asked]
    for text in (*rows.reasons(), *honesty(rows), *verdicts, *report(checks)):
        output.line(text)
    output.document(
        {
            **document("bench spmd", options, plans),
            **arguments,
            "checks": [asdict(check) for check in checks],
            "claims": [{**asdict(claim), "holds": claim.holds} for claim in asked],
            "rows": rows.document(),
        }
    )
    return 1 if broken(checks) else 0
