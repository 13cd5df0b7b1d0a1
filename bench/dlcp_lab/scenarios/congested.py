"""The congested, lossy fabric of `demo` and `bench training`: its plan and its other traffic."""

from typing import Any, Final

from dlcp_lab.emulation.traffic.background import Tcp, Udp

HOSTS: Final = 4
LOSS: Final = 0.005  # at random, of every switch output
ECN: Final = 64 * 1024  # bytes of backlog: a quarter of a port's buffer
PATHS: Final = 8  # source ports, which ECMP hashes to two spines


def plan(seed: int, host_rate: str, spine_rate: str, *, classes: bool = True) -> dict[str, Any]:
    """Fields of `Plan`: two hosts share two uplinks, 2:1 if a spine has half of a host's rate."""
    return {
        "hosts": HOSTS,
        "leaves": 2,
        "spines": 2,
        "host_rate": host_rate,
        "spine_rate": spine_rate,
        "loss": LOSS,
        "classes": classes,
        "ecn_bytes": ECN,
        "seed": seed,
    }


def others(rate: str, seconds: float) -> tuple[Tcp, Udp]:
    """A TCP flow that is always full, and bursts of UDP of `rate`, a tenth of the time."""
    return Tcp(2, 1, seconds=seconds), Udp(3, 0, rate, on=0.05, off=0.45, seconds=seconds)
