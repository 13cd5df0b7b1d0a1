"""The numbers in a captured graph: of annotations, and of calls of random numbers.

A model may run several times until its graph is whole, and each run counts on.
"""

from torch import fx

from .annotations import Annotation
from .borders import ENTER, LEAVE
from .marks import MARK, Marks
from .random_bits import BITS


def number_calls(graph: fx.Graph, marks: Marks) -> None:
    """Number the calls of random numbers in order, and keep the annotations that the graph has,
    equal ones of `mesh_split` once."""
    drawn = 0
    numbers: dict[int | Annotation, int] = {}
    found: list[Annotation] = []
    regions: dict[int, set[str]] = {}
    for node in graph.nodes:
        if node.target == BITS:
            node.args = node.args[0], drawn
            drawn += 1
        elif node.target in (MARK, ENTER, LEAVE):
            x, number, *others = node.args
            said = marks.found[number]
            key = said if node.target == MARK else number
            if key not in numbers:
                numbers[key] = len(found)
                found.append(said)
                if number in marks.regions:
                    regions[numbers[key]] = marks.regions[number]
            node.args = x, numbers[key], *others
    marks.found[:] = found
    marks.regions.clear()
    marks.regions.update(regions)
