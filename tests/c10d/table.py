"""Every form of a collective that PyTorch's stub documents, over dlcp and over Gloo.

    python -m tests.c10d.table

Prints the table.
"""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from tests.c10d.stub import DOCUMENTED, Given, Overload
from tests.c10d.worlds import over

RANKS: Final = 2
WORKS: Final = "works"
Found = tuple[str, list[list[float]]]  # what came of a form, and the results


def called(rank: int, size: int) -> list[Found]:
    """What comes of each form on one rank."""
    group: Any = dist.group.WORLD
    found: list[Found] = []
    for overload in DOCUMENTED:
        arguments, results = Given(rank, size).of(overload)
        try:
            work_of(group, overload, rank, arguments).wait()
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as exc:
            found.append((f"refused: {type(exc).__name__}", []))
        else:
            found.append((WORKS, [tensor.tolist() for tensor in results]))
    return found


def work_of(group: Any, overload: Overload, rank: int, arguments: list[Any]) -> Any:
    """Begin it. A message goes from rank 0 to rank 1: each rank calls one end of it, with the other
    end's form of `send` and `recv`."""
    if overload.name == "send" and rank:
        return group.recv(*arguments)
    if overload.name.startswith("recv") and not rank:
        return group.send([arguments[0][0]], 1, 3)
    if overload.name == "recv_anysource":
        return group.recv_anysource(arguments[0], 3)
    return getattr(group, overload.name)(*arguments)


def rows(folder: Path) -> Iterable[tuple[str, str, str]]:
    """Each form, and what comes of it over dlcp and over Gloo.

    Raises: AssertionError where both work and results differ.
    """
    by_backend = {each: over(each, called, RANKS, folder) for each in ("dlcp", "gloo")}
    for at, overload in enumerate(DOCUMENTED):
        ours, theirs = ([rank[at] for rank in by_backend[name]] for name in ("dlcp", "gloo"))
        said = [outcome for outcome, _ in (ours[0], theirs[0])]
        if said == [WORKS, WORKS]:
            assert ours == theirs, f"{overload}: {ours} and not {theirs}"
        yield f"`{overload}`", said[0], said[1]


def table(folder: Path) -> str:
    """In Markdown."""
    lines = ["| form | dlcp | Gloo |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows(folder))])


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        print(table(Path(made)))
