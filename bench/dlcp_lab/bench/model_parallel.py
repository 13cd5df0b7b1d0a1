"""`dlcpctl bench fused --model-parallel`: a divided layer in pieces, and with one all-reduce."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from dlcp_lab.bench.places import document, places, where
from dlcp_lab.emulation.plan import FabricError, bits_per_second
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, running
from dlcp_lab.report.amounts import show_size
from dlcp_lab.report.checks import Check, broken, report, verdict
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import Spread, median, quotient, slowest
from dlcp_lab.training.learning import distinct
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig

RATIOS: Final = (0.5, 1.0, 2.0)  # communication time / computation time, without --ratio
PER_CALL: Final = 60.0  # seconds that a call may take at most before the run is aborted
SUMS: Final = 2  # all-reduces of a compiled block: of its result, and of its input's gradient
COMPILING: Final = 600.0  # seconds that a case may take to compile
CLOSE: Final = 1e-6  # relative: ways add the contributions of ranks in other orders
HEADER: Final = (
    "size", "comm/comp", "way", "call (ms)", "p10..p90", "CPU (ms)", "gloo/this", "dlcp/this",
    "bound/this",
)  # fmt: skip

Ranks = Sequence[dict[str, Any]]  # of one block, see dlcp_lab.bench.model_parallel_rank
Blocks = Sequence[Ranks]


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One way for one size and ratio. Seconds; a ratio of medians above 1: this way is faster."""

    size: int  # bytes of the result
    ratio: float  # communication time / computation time
    way: str
    time: Spread  # of a call
    cpu: float  # per call, of all processes: the median of the blocks
    over: dict[str, float]  # by reference
    of_bound: float  # max(computation, communication) / the median call
    samples: list[float]


def model_parallel(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Exit code 1 when results differ. Raises: BadConfig."""
    if options.one_daemon:
        raise BadConfig("--model-parallel measures hosts on a switch: leave --one-daemon out")
    try:
        bits = bits_per_second(options.switch)
    except FabricError as exc:
        raise BadConfig(f"--model-parallel needs --switch RATE: {exc}") from exc
    ratios = [options.ratio] if options.ratio else RATIOS
    rows, checks = Rows(LayerRow), list[Check]()
    with places(options) as plans:
        sums = SUMS if options.compiled else 1
        passes = 2 * sums * (len(plans) - 1) / len(plans)
        cases = [
            (size, ratio, size * 8 * passes / bits) for size in options.sizes for ratio in ratios
        ]
        found = _measure(plans, cases, options, output)
    for (size, ratio, line), ways in zip(cases, found, strict=True):
        rows.extend(rows_of(size, ratio, line, ways))
        checks.append(judge(size, ratio, ways))
    for text in _heading(options, plans):
        output.line(text)
    output.line(rows.render(HEADER, cells, left=3))
    for text in (*rows.reasons(), *report(checks)):
        output.line(text)
    output.document(
        {
            **document("bench fused --model-parallel", options, plans),
            "repeat": options.repeat,
            "blocks": options.blocks,
            "seed": options.seed,
            "checks": [asdict(check) for check in checks],
            "rows": rows.document(),
        }
    )
    return 1 if broken(checks) else 0


def rows_of(size: int, ratio: float, line: float, found: Mapping[str, Blocks]) -> Rows[LayerRow]:
    """The rows of one case. `line`: least seconds that the sum keeps each host's line busy."""
    rows = Rows(LayerRow)
    for way in found:
        labels = {"size": size, "ratio": ratio, "way": way}
        shown = (show_size(size), ratio, way)
        rows.add(labels, partial(_row, size, ratio, line, way, found), shown)
    return rows


def _row(size: int, ratio: float, line: float, way: str, found: Mapping[str, Blocks]) -> LayerRow:
    """Raises: NotMeasured."""
    samples = _samples(found[way])
    time = Spread.of(samples)
    others = [name for name in ("gloo", "dlcp") if name != way]
    return LayerRow(
        size,
        ratio,
        way,
        time,
        median([sum(rank["cpu"] for rank in ranks) for ranks in found[way]]),
        {name: quotient(median(_samples(found[name])), time.p50) for name in others},
        quotient(max(line, line / ratio), time.p50),
        samples,
    )


def _samples(blocks: Blocks) -> list[float]:
    return [one for ranks in blocks for one in slowest([rank["times"] for rank in ranks])]


def cells(row: LayerRow) -> list[object]:
    """Cells of a row of the table."""
    return [
        show_size(row.size),
        row.ratio,
        row.way,
        f"{row.time.p50 * 1e3:.0f}",
        f"{row.time.p10 * 1e3:.0f}..{row.time.p90 * 1e3:.0f}",
        f"{row.cpu * 1e3:.0f}",
        row.over.get("gloo"),
        row.over.get("dlcp"),
        row.of_bound,
    ]


def judge(size: int, ratio: float, found: Mapping[str, Blocks]) -> Check:
    """Whether all ranks have the same result, and all ways nearly the same."""
    wrong = [
        f"{way}: {len(different)} results"
        for way, blocks in found.items()
        for ranks in blocks
        if len(different := distinct([rank["digest"] for rank in ranks])) > 1
    ]
    [first, *others] = [blocks[0][0] for blocks in found.values()]
    for way, other in zip(list(found)[1:], others, strict=True):
        apart = max(abs(first[name] - other[name]) for name in ("sum", "size")) / first["size"]
        if apart > CLOSE:
            wrong.append(f"{way}: differs by {apart:.1e}")
    what = f"{show_size(size)}, {ratio:g}: equal results"
    return Check("P2", what, *verdict(wrong, "on all ranks, by all ways"))


def _measure(
    plans: Sequence[HostPlan],
    cases: Sequence[tuple[int, float, float]],
    options: argparse.Namespace,
    output: Output,
) -> list[dict[str, Blocks]]:
    """By case (size, ratio, seconds of the line): the blocks of each way."""
    arguments = {
        "cases": [(size, line / ratio) for size, ratio, line in cases],
        "pieces": options.pieces,
        "repeat": options.repeat,
        "blocks": options.blocks,
        "seed": options.seed,
    }
    timeout = COMPILING * len(cases) * options.compiled
    timeout += PER_CALL * (1 + options.repeat) * options.blocks * len(cases)
    with running(plans) as hosts:
        module = "compiled_rank" if options.compiled else "model_parallel_rank"
        work = launch.Work(f"dlcp_lab.bench.{module}", arguments, timeout)
        ranks = launch.run(hosts, work, progress=output.progress)
    return [
        {way: list(zip(*(rank[way] for rank in of_case), strict=True)) for way in of_case[0]}
        for of_case in zip(*ranks, strict=True)
    ]


def _heading(options: argparse.Namespace, plans: Sequence[HostPlan]) -> Iterator[str]:
    if options.compiled:
        made = "a compiled block of DTensor, forward and backward"
        ways = "gloo, dlcp: as DTensor's graphs are; pieces: with fused.inductor_options"
    else:
        made = "a layer of row_parallel"
        ways = "gloo, dlcp: product, all-reduce, bias, dropout, residual; pieces: row_parallel"
    yield (
        f"{made}, {where(options, plans, gloo=True)}; {options.blocks} blocks of "
        f"{options.repeat} calls by each way in random order, slowest rank counts, medians; CPU of "
        f"all processes per call"
    )
    yield (
        f"{ways}; products also wait, so that communication / computation is as given; the bound "
        f"is the longer of the two"
    )
