"""Settings of the daemon's file that each engine takes over unchanged: one row each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dlcpd.contract.errors import BadConfig
from dlcpd.core.wire.header import MAX_SEGMENTS
from dlcpd.core.wire.sizes import BASE, UNIT
from dlcpd.io.setting_rules import flag, integer, one_of, problem, real
from dlcpd.io.udp.encryption import CHOICES


def special(parse: Callable[[Any, str], Any], default: Any, **rule: Any) -> Any:
    """A setting that `parse` checks: it gets the value and the setting's name for errors, and
    returns the value in use. `rule` only describes it. `parse` raises BadConfig."""
    return field(default=default, metadata={**rule, "parse": parse})


def whole_units(value: Any, where: str, low: int, high: int) -> int:
    """`value`, a multiple of UNIT bytes within low..high. Raises: BadConfig."""
    rule = {"type": int, "low": low, "high": high}
    if wrong := problem(value, rule) or (value % UNIT and f"{value} is not a multiple of {UNIT}"):
        raise BadConfig(f"{where}: {wrong}")
    return int(value)


def chunk_size(value: Any, where: str) -> int:
    """`value`, bytes of a chunk. Raises: BadConfig."""
    return whole_units(value, where, UNIT, MAX_SEGMENTS * BASE)


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """Rows of [network] that the file and the engine share. A comment is the setting's meaning,
    then "; default: " and the reason of the default, if there is one."""

    # bytes of a chunk (the unit of deadline and bound), a multiple of 64; equal on all hosts of a
    # job; default: smaller chunks cost more CPU time; a bitmap limits it to 4.5 MiB
    chunk_bytes: int = special(chunk_size, 4 << 20, type=int, low=UNIT, high=MAX_SEGMENTS * BASE)
    # bytes of receive buffer requested per socket; net.core.rmem_max limits it
    receive_buffer: int = integer(1 << 16, 1 << 30, 32 << 20)
    # bytes in flight to one peer; default: 100 Gb/s times a round trip of 600 us
    window: int = integer(1 << 16, 1 << 30, 8 << 20)
    # implementation of the data path; "auto" = "compiled" (C) if it was built
    data_path: str = one_of("auto", "compiled", "numpy", default="auto")
    # encrypts payloads, in numpy, at many times the CPU cost of "none"; needs `dlcpd[encryption]`;
    # equal on all hosts of a job
    data_encryption: str = one_of(*CHOICES, default="none")
    # GSO and GRO, if the kernel has them
    offload: bool = flag(True)
    # false: the sender does not yield to other traffic: for dedicated networks and measurements
    congestion_control: bool = flag(True)
    # false: all gradients use the last traffic class, in order of arrival
    layer_priority: bool = flag(True)
    # IP header fields that show the drop precedence; "shuffled" = both, at random, to measure its
    # effect
    drop_precedence: str = one_of("both", "dscp", "ecn", "none", "shuffled", default="both")
    # false: this host waives nothing and lets no peer waive anything, whatever the policy
    bounded_loss: bool = flag(True)
    # fraction of lost datagrams above which a path is gray
    alarm_loss: float = real(0.0, 1.0, 0.005)
    # seconds of silence after which a peer is suspected
    suspect_after: float = real(0.05, 3600.0, 1.0)
    # seconds of silence after which a peer is lost; a peer whose process ended is lost at once;
    # default: a paused host may come back
    peer_timeout: float = real(0.05, 3600.0, 30.0)
