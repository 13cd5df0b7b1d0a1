"""A program whose schedule and kernel are chosen in the job's own steps."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from dlcp_client.auto.choice import MIN_PAUSE
from dlcp_client.auto.turns import typical
from dlcp_client.fused.language.costs import Rates, predicted
from dlcp_client.fused.language.execution import LoweredProgram, agree
from dlcp_client.fused.language.explanation import explain, table
from dlcp_client.fused.language.layouts import shape_of
from dlcp_client.fused.language.oracle import check_input
from dlcp_client.fused.language.program import FusedProgram
from dlcp_client.fused.language.tuning.candidates import NODE_BY_NODE, Candidate, candidates, kept
from dlcp_client.fused.language.tuning.measuring import (
    FINALISTS,
    Comparison,
    Watch,
    fastest,
    next_pause,
)
from dlcp_client.fused.language.tuning.probes import LEAST, Probed, agreed, probe
from dlcp_client.fused.language.tuning.results import Result, Results, Row, key_of
from dlcp_client.group import Group
from dlcpd.contract.errors import ArenaFull, BadConfig

_log: Final = logging.getLogger("dlcp_client")


class TunedProgram:
    """A program on this rank. All ranks use the same candidate in the same step, and change
    together. It keeps the state, the inputs of `kept`, whatever the schedule makes of them."""

    def __init__(
        self,
        program: FusedProgram,
        group: Group[Tensor],
        state: Mapping[str, Tensor],
        kernel: str,
        results: Results,
    ) -> None:
        self.program, self.group = program.copy(), group
        self.candidates = candidates(program, kernel)
        self.measured = 0  # runs and probes whose times were taken: 0 after a cached start
        self.kept: Final = kept(program)  # names of the state
        self._whole = _checked(program, state)  # state that the present schedule has whole
        self._results, self._key = results, key_of(program, group, kernel)
        self._result: Result | None = None
        self._watch: Watch | None = None
        self._comparison: Comparison | None = None
        self._pause = MIN_PAUSE
        self._made: dict[str, LoweredProgram] = {}  # by title: those in use, or compared
        self._rows: list[Row] = []
        self._probed = Probed(Rates(), {})
        self._finalists: list[str] = []  # titles
        self._now = ""  # title
        cached = results.shared(group, self._key)
        if cached is None or not self._use_cached(cached):
            self._begin()

    def __call__(self, **given: Tensor) -> list[Tensor]:
        """Run the program once. Every rank calls it, with all inputs but the state; see
        `LoweredProgram`. Some calls compare candidates, so their times differ.

        Raises: BadConfig naming the input; the error that ended an operation.
        """
        self._prepare()
        if wrong := [name for name in given if name in self.kept]:
            raise BadConfig(
                f"input {wrong[0]!r} is state, which the tuned program keeps: give it to tune()"
            )
        lowered = self._made[self._now]
        begun = time.perf_counter()
        found = lowered(**given, **self._whole)
        self._ran(time.perf_counter() - begun)
        return found

    @property
    def chosen(self) -> str:
        """Title of the candidate in use after the comparison; empty: it is not over."""
        return self._result.title if self._result is not None else ""

    @property
    def rows(self) -> list[Row]:
        """All candidates with their times, best prediction first."""
        return list(self._rows)

    @property
    def state_bytes(self) -> int:
        """Bytes of state that this rank keeps; of a fused operation, after its first run."""
        held = self._made[self._now].state_bytes
        return held + sum(x.nbytes for x in self._whole.values())

    def state(self, name: str) -> Tensor:
        """All of an input that the program keeps. Every rank calls it.

        Raises: BadConfig; the error that ended the operation.
        """
        if name not in self.kept:
            names = ", ".join(self.kept) or "it has none"
            raise BadConfig(f"{name!r:.80} is not state of {self.program.name}: {names}")
        if name in self._whole:
            return self._whole[name].clone()
        return self._made[self._now].state(name)

    def explain(self) -> str:
        """The candidates with predicted and measured times, and the schedule in use."""
        rows = [("candidate", "predicted (ms)", "measured (ms)", "")]
        for row in self._rows:
            measured = f"{row.measured * 1e3:.2f}" if row.measured else ""
            mark = "chosen" if row.title == self.chosen else ""
            rows.append((row.title, f"{row.predicted * 1e3:.2f}", measured, mark))
        used = self._candidate(self._now)
        rates = self._probed.of(used.kernel)
        return f"{table(rows)}\n\n{explain(used.program, self.group.size, rates)}"

    # --- choice -------------------------------------------------------------------------------

    def _use_cached(self, result: Result) -> bool:
        """Use a result of an earlier job, if its candidate works on every rank."""
        titles = [one.title for one in self.candidates]
        if result.title not in titles or not self._built(result.title):
            return False
        self._result, self._rows = result, result.rows
        self._probed = Probed(result.rates, {})
        self._watch = Watch(result.seconds, cached=True)
        self._use(result.title)
        self._say("from an earlier job")
        return True

    def _begin(self) -> None:
        """Rank the candidates by probes, and compare the best in the next steps."""
        computing = {one.kernel: one.program for one in reversed(self.candidates) if one.fused}
        probed = self._probed = probe(self.group, computing)
        self.measured += 1
        works = [one for one in self.candidates if one.kernel in {NODE_BY_NODE, *probed.kernels}]
        # of kernels that the network hides, the faster one
        works.sort(key=lambda one: -probed.kernels.get(one.kernel, 0.0))
        ranks = self.group.size
        rows = [Row(c.title, predicted(c.program, ranks, probed.of(c.kernel))) for c in works]
        self._rows = sorted(rows, key=lambda row: row.predicted)
        written = self.candidates[0].title
        best = [row.title for row in self._rows[:FINALISTS]]
        asked = [*best, *({written, self._now} - {*best, ""})]
        self._finalists = [title for title in sorted(asked) if self._built(title)]
        if not self._finalists:
            raise ArenaFull(
                f"no schedule of {self.program.name} has space in the arena: give connect() a "
                f"larger arena_bytes"
            )
        self._comparison, self._watch = Comparison(len(self._finalists)), None

    def _prepare(self) -> None:
        """Decide, if it is time, and use the candidate of the next step."""
        if self._comparison is not None and self._comparison.over:
            self._decide(self._comparison)
        elif self._watch is not None and self._watch.due:
            before = self._watch.changed(agreed(self.group, self._watch.seconds, "min"))
            if before and self._result is not None:
                _log.info(
                    "%s: a run takes at least %.3g ms, not %.3g ms: schedules are measured again",
                    self.program.name,
                    before * 1e3,
                    self._result.seconds * 1e3,
                )
                self._begin()
        if self._comparison is not None:
            self._use(self._finalists[self._comparison.way])

    def _ran(self, seconds: float) -> None:
        if self._comparison is not None:
            self._comparison.ran(seconds)
            self.measured += 1
        elif self._watch is not None:
            self._watch.ran(seconds)

    def _decide(self, comparison: Comparison) -> None:
        runs = comparison.by_way(agreed(self.group, comparison.seconds, "min"))
        times = [typical(one) for one in runs]
        used = self._result.title if self._result is not None else ""
        before = self._finalists.index(used) if used in self._finalists else None
        chosen = fastest(times, before)
        title, seconds = self._finalists[chosen], max(min(runs[chosen]), LEAST)
        measured = dict(zip(self._finalists, times, strict=True))
        self._rows = [Row(r.title, r.predicted, measured.get(r.title, 0.0)) for r in self._rows]
        at = [row.title for row in self._rows].index(title)
        rates = self._probed.of(self._candidate(title).kernel)
        self._result = Result(rates, self._rows, at, seconds)
        self._pause = next_pause(self._pause, confirmed=chosen == before)
        self._watch = Watch(seconds, cached=False, pause=self._pause)
        self._comparison = None
        self._use(title)
        self._made = {title: self._made[title]}  # the others' memory is free
        self._results.keep(self._key, self._result)
        others = ", ".join(f"{name} {s * 1e3:.3g}" for name, s in measured.items() if name != title)
        self._say(
            f"{measured[title] * 1e3:.3g} ms a run; measured as well: {others or 'none'} (ms)"
        )

    def _say(self, how: str) -> None:
        _log.info("%s on %d ranks: %s; %s", self.program.name, self.group.size, self.chosen, how)

    # --- candidates ---------------------------------------------------------------------------

    def _candidate(self, title: str) -> Candidate:
        return next(one for one in self.candidates if one.title == title)

    def _built(self, title: str) -> bool:
        """Whether a candidate has its memory and its kernel on every rank. All call it alike."""
        if title in self._made:
            return True
        one, works = self._candidate(title), True
        kernel = one.kernel if one.fused else "eager"
        try:
            made = LoweredProgram(one.program, self.group, {}, kernel)
            works = all(name == kernel for name in made.kernels.values())
        except ArenaFull as error:
            _log.info("%s: no space for %s: %s", self.program.name, title, error)
            works = False
        if agreed(self.group, [float(works)], "min") == [0.0]:
            return False
        self._made[title] = made
        return True

    def _use(self, title: str) -> None:
        """Go on with another candidate, from the same state. Every rank calls it alike."""
        if title == self._now:
            return
        state = {name: self.state(name) for name in self.kept} if self._now else self._whole
        self._now = title
        layouts = self._candidate(title).program.inputs
        self._whole = {name: x for name, x in state.items() if layouts[name].kind != "sliced"}
        sliced = {name: x for name, x in state.items() if name not in self._whole}
        self._made[title].load(sliced)


def tune(
    program: FusedProgram,
    group: Group[Tensor],
    *,
    state: Mapping[str, Tensor] | None = None,
    kernel: str = "auto",
    folder: str | Path | None = None,
) -> TunedProgram:
    """The program with the fastest schedule and kernel for this network and these hosts. Every rank
    of the group calls it alike, with the program as it was written, or transformed.

    It measures a few operations, and the kernels. In the first runs, the best three schedules of
    the cost model, and the program as given, take turns; then all ranks go on with the fastest. A
    later job reads the result from the user's cache, and measures nothing. Results differ by
    rounding at most: kernels differ in the last bits, and schedules in the order of sums.

    Args:
        state: whole initial values of the inputs that the program updates and does not return,
            such as moments; by default zeros. The tuned program keeps them.
        kernel: "auto" compares all; or the only one, as of `lower`.
        folder: of results; by default dlcpd/tuning in the user's cache.

    Raises: BadConfig; RanksDisagree naming the first line in which programs differ; ArenaFull.
    """
    agree(program, group)
    return TunedProgram(program, group, state or {}, kernel, Results.of_user(folder))


def _checked(program: FusedProgram, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state's initial values. Raises: BadConfig."""
    names = kept(program)
    if strange := [name for name in state if name not in names]:
        raise BadConfig(
            f"state {strange[0]!r:.80} is not an input that {program.name} updates and does not "
            f"return: {', '.join(names) or 'it has none'}"
        )
    found = dict[str, Tensor]()
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            whole = state.get(node.name)
            if whole is None:
                whole = torch.zeros(shape_of(node), dtype=node.meta["val"].dtype)
            found[node.name] = check_input(node, whole).clone()
    return found
