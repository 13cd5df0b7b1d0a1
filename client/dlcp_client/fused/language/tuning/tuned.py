"""A program whose schedule and kernel are chosen in the job's own steps."""

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from dlcp_client.fused.language.costs import Rates, predicted
from dlcp_client.fused.language.execution import LoweredProgram, agree, check_parts
from dlcp_client.fused.language.explanation import explain
from dlcp_client.fused.language.kernels import checked_kernel
from dlcp_client.fused.language.layouts import shape_of
from dlcp_client.fused.language.oracle import check_input, check_mapping
from dlcp_client.fused.language.program import FusedProgram
from dlcp_client.fused.language.tuning.candidates import NODE_BY_NODE, Candidate, candidates, kept
from dlcp_client.fused.language.tuning.choosing import Finalists, StepChoice
from dlcp_client.fused.language.tuning.measuring import FINALISTS
from dlcp_client.fused.language.tuning.probes import Probed, agreed, probe
from dlcp_client.fused.language.tuning.results import Results, Row, key_of
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
        self.kept: Final = kept(program)  # names of the state
        self._whole = _checked(program, state)  # state that the present schedule has whole
        self._made: dict[str, LoweredProgram] = {}  # by title: those in use, or compared
        self._probed = Probed(Rates(), {})
        self._now = ""  # title
        self._choice = StepChoice(
            program.name,
            group,
            results=results,
            key=key_of(group, program.name, program.text, f"another kernel= ({kernel})"),
            usable=self._usable,
            finalists=self._finalists,
            seconds="min",
        )
        if self._choice.result is not None:
            self._probed = Probed(self._choice.result.rates, {})
        self._use(self._choice.next())

    def __call__(self, **given: Tensor) -> list[Tensor]:
        """Run the program once. Every rank calls it, with all inputs but the state; see
        `LoweredProgram`. Some calls compare candidates, so their times differ.

        Raises: BadConfig naming the input; the error that ended an operation.
        """
        self._use(self._choice.next())
        if wrong := [name for name in given if name in self.kept]:
            raise BadConfig(
                f"input {wrong[0]!r} is state, which the tuned program keeps: give it to tune()"
            )
        lowered = self._made[self._now]
        begun = time.perf_counter()
        found = lowered(**given, **self._whole)
        self._choice.ran(time.perf_counter() - begun)
        return found

    @property
    def measured(self) -> int:
        """Number of runs and probes whose times were taken; 0 after a cached start."""
        return self._choice.measured

    @property
    def chosen(self) -> str:
        """Title of the candidate in use after the comparison; empty: it is not over."""
        return self._choice.chosen

    @property
    def rows(self) -> list[Row]:
        """All candidates with their times, best prediction first."""
        return list(self._choice.rows)

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
        used = self._candidate(self._now)
        rates = self._probed.of(used.kernel)
        return f"{self._choice.table()}\n\n{explain(used.program, self.group.size, rates)}"

    # --- candidates ---------------------------------------------------------------------------

    def _finalists(self, now: str) -> Finalists:
        """The best candidates by probes, the program as it was written, and the one in use."""
        computing = {one.kernel: one.program for one in reversed(self.candidates) if one.fused}
        probed = self._probed = probe(self.group, computing)
        works = [one for one in self.candidates if one.kernel in {NODE_BY_NODE, *probed.kernels}]
        # of kernels that the network hides, the faster one
        works.sort(key=lambda one: -probed.kernels.get(one.kernel, 0.0))
        ranks = self.group.size
        rows = [Row(c.title, predicted(c.program, ranks, probed.of(c.kernel))) for c in works]
        rows.sort(key=lambda row: row.predicted)
        best = [row.title for row in rows[:FINALISTS]]
        asked = [*best, *({self.candidates[0].title, now} - {*best, ""})]
        titles = [title for title in sorted(asked) if self._built(title)]
        if not titles:
            raise ArenaFull(
                f"no schedule of {self.program.name} has space in the arena: give connect() a "
                f"larger arena_bytes"
            )
        rates = {title: probed.of(self._candidate(title).kernel) for title in titles}
        return Finalists(titles, rows, rates)

    def _usable(self, title: str) -> bool:
        """Whether a candidate exists, and works on every rank."""
        return any(one.title == title for one in self.candidates) and self._built(title)

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
        if title != self._now:
            self._move_to(title)
        if not self._choice.comparing and len(self._made) > 1:
            self._made = {title: self._made[title]}  # the others' memory is free

    def _move_to(self, title: str) -> None:
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
    state = {} if state is None else state
    check_parts(program, group)
    _checked(program, state)
    checked_kernel(kernel)
    results = Results.of_user(folder)
    agree(program, group)
    return TunedProgram(program, group, state, kernel, results)


def _checked(program: FusedProgram, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state's initial values. Raises: BadConfig."""
    check_mapping("state", state)
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
            found[node.name] = check_input(node, whole).detach().clone()
    return found
