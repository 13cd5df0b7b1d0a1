"""Speeds of the network and of a core, by which a plan chooses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from dlcpd.contract.errors import BadConfig

from .meshes import Mesh

# Seconds of sending, or of work, that are as dear as one operation more: ranks and engines compute
# about as long for each.
WORTHWHILE: Final = 3e-3
# Seconds of one of several operations that share a task, at least: over dlcpd, each takes 1 ms of
# CPU time per rank.
LEAST: Final = 5e-3


@dataclass(frozen=True, slots=True)
class Link:
    """The network of a mesh axis, on which all its groups are busy at once.

    Raises: BadConfig naming the field.
    """

    latency: float  # seconds of a collective without data
    bytes_per_s: float  # that a rank sends

    def __post_init__(self) -> None:
        _check(self, "latency", "bytes_per_s")


@dataclass(frozen=True, slots=True)
class Costs:
    """The speed of a network and of a core. The defaults are those of Ethernet with 10 Gb/s.

    Raises: BadConfig naming the field.
    """

    latency: float = 1e-4  # seconds of a collective without data
    bytes_per_s: float = 1.25e9
    work_per_s: float = 1e10  # multiplications, or elements that an operation reads or writes
    axes: Mapping[str, Link] = field(default_factory=dict)  # of the axes that have other speeds

    def __post_init__(self) -> None:
        _check(self, "latency", "bytes_per_s", "work_per_s")
        given: Any = self.axes
        if not isinstance(given, Mapping) or not all(isinstance(v, Link) for v in given.values()):
            raise BadConfig(
                f"Costs axes={given!r:.60} is not valid: give a Link for each of some axes"
            )

    def link(self, axis: str) -> Link:
        """The network of an axis."""
        return self.axes.get(axis) or Link(self.latency, self.bytes_per_s)

    def of(self, sent: float, axis: str) -> float:
        """Seconds of one collective; one that sends nothing is left out."""
        link = self.link(axis)
        return link.latency + sent / link.bytes_per_s if sent else 0.0

    def check_axes(self, mesh: Mesh) -> None:
        """Raises: BadConfig naming an axis that the mesh lacks."""
        if strange := sorted(self.axes.keys() - set(mesh.names)):
            raise BadConfig(
                f"Costs names the axis {strange[0]!r}, and the mesh has {', '.join(mesh.names)}"
            )


def _check(costs: Any, *names: str) -> None:
    for name in names:
        value = getattr(costs, name)
        least = 0 if name == "latency" else 1  # the others divide
        if not isinstance(value, int | float) or not least <= value < inf:
            raise BadConfig(
                f"{type(costs).__name__} {name}={value!r} is out of range: use {least} or more"
            )
