"""The schedules of a program that mean the same, each with a kernel. Pure.

Every one of them is made by the transformations of the language, which refuse what would change the
result. Kernels differ in the last bits; nothing else here changes numbers.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from torch import fx

from dlcp_client.fused.language.grouping import fused
from dlcp_client.fused.language.kernels import KERNELS, Hand, checked_kernel, region_of
from dlcp_client.fused.language.layouts import layout_of, shape_of
from dlcp_client.fused.language.operations import REDUCE_SCATTER, UPDATE
from dlcp_client.fused.language.program import FusedProgram
from dlcpd.contract.errors import BadConfig

PIECES: Final = (2, 4, 8, 16)  # more cost more operations than they hide
NODE_BY_NODE: Final = "none"  # the kernel of a schedule without a fused operation: it needs none


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A schedule and a kernel. `title`: unique among the candidates of a program."""

    schedule: str
    kernel: str
    program: FusedProgram

    @property
    def fused(self) -> bool:
        """Whether it has a fused operation, and so a kernel."""
        return self.kernel != NODE_BY_NODE

    @property
    def title(self) -> str:
        """Schedule and kernel."""
        return f"{self.schedule}, {self.kernel}" if self.fused else self.schedule


def candidates(program: FusedProgram, kernel: str = "auto") -> list[Candidate]:
    """The program as it is, then others. `kernel`: of all; "auto": each that exists.

    Raises: BadConfig for an unknown kernel.
    """
    checked_kernel(kernel)
    kernels = [one for one in KERNELS if one != "auto"] if kernel == "auto" else [kernel]
    found, texts = list[Candidate](), set[str]()
    for name, made in _schedules(program):
        if made.text not in texts:
            texts.add(made.text)
            of_it = kernels if _fused_in(made) else [NODE_BY_NODE]
            found += [Candidate(name, one, made) for one in of_it if _may_run(made, one, kernel)]
    return found


def kept(program: FusedProgram) -> list[str]:
    """The inputs that a tuned program keeps itself: equal on all ranks, or slices, updated, and not
    returned. So each schedule may hold them in its own way."""
    returned = set(program.outputs)
    found = list[str]()
    for node in program.graph.nodes:
        if node.target is UPDATE and node not in returned:
            held = node.all_input_nodes[0]
            if layout_of(held).kind != "local" and shape_of(held):
                found.append(held.name)
    sliced = [name for name, layout in program.inputs.items() if layout.kind == "sliced"]
    return list(dict.fromkeys([*found, *sliced]))


def _may_run(program: FusedProgram, kernel: str, asked: str) -> bool:
    """Whether to try a kernel. Unless it was asked for, torch's is left out where it has none."""
    if kernel != "torch" or asked == "torch":
        return True
    try:
        for gather in _fused_in(program):
            Hand(program, region_of(program, gather))
    except BadConfig:
        return False
    return True


def _schedules(program: FusedProgram) -> Iterator[tuple[str, FusedProgram]]:
    """The program, on slices, in one operation, and in pieces: each from the one before."""
    yield "as written", program
    slices = _on_slices(program)
    yield "reduce-scatter, all-gather", slices
    one, ends = _in_one_operation(slices)
    if not ends:
        return
    yield "one operation", one
    for pieces in PIECES:
        cut = one.copy()
        if any([_overlapped(cut, end, pieces) for end in ends]):
            yield f"one operation in {pieces} pieces", cut


def _on_slices(program: FusedProgram) -> FusedProgram:
    """Every all-reduce that allows it becomes a reduce-scatter and an all-gather, with the
    computation between them."""
    found = program.copy()
    for name in program.named("all_reduce"):
        node = next(one for one in found.graph.nodes if one.name == name)
        for dim in range(len(shape_of(node))):
            trial = found.copy()
            with suppress(BadConfig):  # another dimension, or not at all
                trial.reorder(trial.split(name, dim)[1])
                found = trial
                break
    for name in kept(program):
        with suppress(BadConfig):  # something reads all of it
            found.as_slice(name)
    return found


def _in_one_operation(program: FusedProgram) -> tuple[FusedProgram, list[str]]:
    """Each reduce-scatter in one operation with the gather of what is computed from it; the names
    of the gathers."""
    found = program.copy()
    for scatter in program.named("reduce_scatter"):
        for gather in program.named("all_gather"):
            with suppress(BadConfig):  # of another one
                found.fuse(scatter, gather)
                break
    return found, _fused_in(found)


def _fused_in(program: FusedProgram) -> list[str]:
    """The gathers of the fused operations."""
    return list(dict.fromkeys(n.meta["fused"] for n in program.graph.nodes if "fused" in n.meta))


def _overlapped(program: FusedProgram, gather: str, pieces: int) -> bool:
    """Whether the operand of a fused operation is now computed in pieces."""
    scatter: fx.Node = next(n for n in fused(program.graph, gather) if n.target is REDUCE_SCATTER)
    with suppress(BadConfig):
        program.overlap(scatter.all_input_nodes[0].name, gather, pieces)
        return True
    return False
