"""The demo's results as one HTML file. Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from dlcp_lab.demo.turns import DLCPD, GLOO, SKIPPED, Turns, answer
from dlcp_lab.report.checks import Check
from dlcpd import __version__
from dlcpd.ctl.report.document import document
from dlcpd.ctl.report.parts import Block, Section, lines, ranges, spread, table

NAMES: Final = (DLCPD, GLOO)
COLOURS: Final = {GLOO: "orange", DLCPD: "blue"}


def html(turns: Turns, checks: Sequence[Check], conditions: str) -> str:
    """The whole file."""
    sentences = [answer(turns)] if turns.fair else []
    sentences.append(f"Conditions: {conditions}.")
    measured = [name for name in NAMES if turns.times(name)]
    steps = max(len(turns.times(name)) for name in NAMES)
    times = [
        ranges(
            "Seconds of a step: 10th percentile, median, 90th",
            "s",
            [(name, *spread(turns.times(name)), COLOURS[name]) for name in measured],
        ),
        lines(
            "Milliseconds of each step",
            " ms",
            "step",
            {"step": [SKIPPED + n + 1 for n in range(steps)]}
            | {name: [t * 1e3 for t in turns.times(name)] for name in measured},
        ),
        _learning(turns),
    ]
    blocks = [
        *(times if turns.fair else ()),
        table(
            "Datagrams of dlcpd, by path",
            ("path", "sent"),
            list(enumerate(turns.network["paths"])),
        ),
        table(
            "Verdicts",
            ("promise", "what", "verdict", "seen"),
            [(one.promise, one.what, one.verdict, one.detail) for one in checks],
        ),
    ]
    section = Section("dlcpctl demo: one training over Gloo and over dlcpd", sentences, blocks)
    return document([section], f"made by dlcpctl demo {__version__}")


def _learning(turns: Turns) -> Block:
    """Loss over the seconds that the steps of each transport took: between steps the last one."""
    ends = {name: list(accumulate(turns.times(name))) for name in NAMES if turns.times(name)}
    seconds = sorted({at for some in ends.values() for at in some})
    return lines(
        "Training loss over seconds of training",
        "",
        "s",
        {"s": seconds}
        | {name: _last(ends[name], turns.losses(name)[SKIPPED:], seconds) for name in ends},
    )


def _last(
    ends: Sequence[float], losses: Sequence[float], at: Sequence[float]
) -> list[float | None]:
    """The loss of the last step that had ended at each time; none before the first, and none after
    the last."""
    found = [bisect_right(ends, when) - 1 for when in at]
    return [
        losses[n] if n >= 0 and when <= ends[-1] else None
        for n, when in zip(found, at, strict=True)
    ]
