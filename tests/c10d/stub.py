"""The collectives of a ProcessGroup, as PyTorch's stub of its C++ part documents them."""

import ast
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from dlcp_client.c10d.overloads import FORMS, CallForm
from dlcp_client.c10d.process_group import ProcessGroup

STUB: Final = Path(torch.__file__).parent / "_C" / "_distributed_c10d.pyi"


class Overload(NamedTuple):
    """A method, and the names of its arguments; each is a list of lists, a list, or neither: 2, 1
    or 0."""

    name: str
    arguments: tuple[str, ...]
    depths: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"

    @property
    def form(self) -> CallForm:
        """Ours."""
        return FORMS[getattr(ProcessGroup, self.name).__name__]


def overloads() -> Iterator[Overload]:
    """What returns a Work."""
    classes = (node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ClassDef))
    [group] = [each for each in classes if each.name == "ProcessGroup"]
    for node in group.body:
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or node) == "Work":
            given = node.args.args[1:]
            said = [ast.unparse(each.annotation) if each.annotation else "" for each in given]
            depths = tuple(text.count("list[") for text in said)
            yield Overload(node.name, tuple(each.arg for each in given), depths)


DOCUMENTED: Final = [each for each in overloads() if not each.name.startswith("_end")]
TIME: Final = timedelta(seconds=20)
SIZE: Final = 6  # elements of a tensor


class Given:
    """Arguments of each overload for one rank of a group: inputs that differ by rank, and room."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def of(self, overload: Overload) -> tuple[list[Any], list[torch.Tensor]]:
        """Arguments by position, and the tensors that get results."""
        name = getattr(ProcessGroup, overload.name).__name__
        first, results = self._first(name)
        depths = zip(overload.form.depths, overload.depths, strict=False)
        for at, (ours, theirs) in enumerate(depths):
            if theirs < ours:  # each tensor stands for a list of one
                first[at] = first[at][0] if first[at] else []
        options = overload.form.options
        named = {
            "op": dist.ReduceOp.MAX,
            "root": 0,
            "timeout": TIME,
            "opts": getattr(dist.distributed_c10d, options)() if options else None,
        }
        return [*first, *(named[each] for each in overload.arguments if each in named)], results

    def _first(self, name: str) -> tuple[list[Any], list[torch.Tensor]]:
        """Arguments before the options, all as lists where the method takes lists; and results."""
        mine, whole = self._mine(), self._mine(self._size)
        part, parts, room = torch.zeros(SIZE), self._parts(), torch.zeros(SIZE * self._size)
        rows = [torch.zeros(SIZE) for _ in range(self._size)]
        root = not self._rank
        in_place: Any = [[mine]], [mine]
        peer, tag = 1 - self._rank, 3  # of messages between ranks 0 and 1
        known: dict[str, tuple[list[Any], list[torch.Tensor]]] = {
            "allreduce": in_place,
            "allreduce_coalesced": in_place,
            "broadcast": in_place,
            "reduce": ([[mine]], [mine] if root else []),
            "allgather": ([[rows], [mine]], rows),
            "allgather_coalesced": ([[[each] for each in rows], [mine]], rows),
            "gather": ([[rows] if root else [], [mine]], rows if root else []),
            "scatter": ([[part], [parts] if root else []], [part]),
            "reduce_scatter": ([[part], [parts]], [part]),
            "alltoall": ([rows, parts], rows),
            "all_gather_single": ([room, mine], [room]),
            "all_gather_single_coalesced": ([[room], [mine]], [room]),
            "reduce_scatter_single": ([part, whole], [part]),
            "reduce_scatter_single_coalesced": ([[part], [whole]], [part]),
            "all_to_all_single": ([room, whole, [], []], [room]),
            "send": ([[mine], peer, tag], [mine]),
            "recv": ([[mine], peer, tag], [mine]),
            "recv_anysource": ([[mine], peer], [mine]),
            "barrier": ([], []),
        }
        return known[name]

    def _mine(self, times: int = 1) -> torch.Tensor:
        return torch.arange(SIZE * times, dtype=torch.float32) * (self._rank + 1)

    def _parts(self) -> list[torch.Tensor]:
        return [self._mine() + part for part in range(self._size)]
