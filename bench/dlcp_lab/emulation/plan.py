"""The plan of a fabric: a checked value, from which everything else is computed."""

from dataclasses import dataclass
from typing import Final

from dlcpd.planning import rates

MAX_HOSTS: Final = 250  # one /24 of each rail's 10.x.0.0/16; switches have the last six
MAX_RAILS: Final = 8  # as many as a large training host has network cards
MAX_PAIRS: Final = 256  # leaf-spine links per rail: two addresses each out of a /23
SHALLOW_BUFFER: Final = 256 * 1024  # bytes
MAX_DELAY: Final = 10.0  # seconds; the longest route to a satellite and back takes 0.6
MIN_BUFFER: Final = 2 * 1514  # bytes; a queue that holds no full packet carries none


class FabricError(RuntimeError):
    """A fabric cannot be planned, made, changed or read. The text has the remedy."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Hosts on leaves, and every leaf on every spine.

    Host i is on the leaf that `place` gives, or on leaf `i % leaves`: then neighbouring ranks are
    on different leaves, and even two hosts use the spines. Rails are separate, as in rail-optimised
    fabrics: each has its own leaves and spines, and every host has one interface on each.

    Raises: FabricError naming the field.
    """

    hosts: int = 2
    leaves: int = 1  # per rail; 1 without a spine is a single switch
    spines: int = 0  # per rail
    rails: int = 1
    host_rate: str = "1gbit"  # leaf to host, in the notation of tc
    spine_rate: str = "1gbit"  # leaf to spine and back
    buffer_bytes: int = SHALLOW_BUFFER  # per switch port
    loss: float = 0.0  # fraction dropped at random by every switch output
    burst_loss: float = 0.0  # fraction dropped in bursts by every switch output
    burst_length: float = 8.0  # mean packets per such burst
    classes: bool = False  # one strict priority queue per traffic class
    ecn_bytes: int = 0  # backlog above which ECT packets are marked, droppable ones dropped; 0: off
    early_drop: str = ""  # mechanism of early drops: "bpf", "nft"; "" = the best available
    bare: bool = False  # switch ports have no queues and rates: switchcfg configures them
    # Seconds that links delay a packet, each way. As in `topology.chosen` a name is that of a link,
    # of a direction, or "" for all; a later pair replaces an earlier one.
    delays: tuple[tuple[str, float], ...] = ()
    # Rates of links that differ from `host_rate` and `spine_rate`; names and order as in `delays`.
    limits: tuple[tuple[str, str], ...] = ()
    place: tuple[int, ...] = ()  # leaf of each host, counted on its rail; empty: `i % leaves`
    seed: int = 1  # of the ECMP hash

    def __post_init__(self) -> None:
        _within("hosts", self.hosts, 1, MAX_HOSTS)
        _within("rails", self.rails, 1, MAX_RAILS)
        _within("leaves", self.leaves, 1, self.hosts)
        # With one leaf a spine would carry nothing; with several, a spine is needed.
        _within("spines", self.spines, min(1, self.leaves - 1), (self.leaves - 1) * MAX_PAIRS)
        _within("leaves * spines", self.leaves * self.spines, 0, MAX_PAIRS)
        _within("buffer_bytes", self.buffer_bytes, MIN_BUFFER, 1 << 30)
        _within("ecn_bytes", self.ecn_bytes, 0, self.buffer_bytes)
        _within("seed", self.seed, 1, 1 << 30)
        self._check_place()
        if self.bare and self.limits:
            raise FabricError(
                "limits: a bare fabric has no rates; configure its switches with switchcfg"
            )
        if self.bare and (self.classes or self.ecn_bytes):
            raise FabricError(
                "bare: a bare fabric has no classes and no marks; configure its switches with "
                "switchcfg"
            )
        if self.early_drop not in {"", "bpf", "nft"}:
            raise FabricError(
                f"early_drop {self.early_drop!r} is not known: use bpf, nft or nothing"
            )
        for rate in (self.host_rate, self.spine_rate):
            bits_per_second(rate)
        check_loss(self.loss)
        check_loss(self.burst_loss, self.burst_length)

    def _check_place(self) -> None:
        if not self.place:
            return
        if len(self.place) != self.hosts:
            raise FabricError(f"place has {len(self.place)} hosts, the fabric {self.hosts}")
        for host, leaf in enumerate(self.place):
            _within(f"place of host {host}:", leaf, 0, self.leaves - 1)
        if empty := set(range(self.leaves)) - set(self.place):
            raise FabricError(f"place: leaf {min(empty)} has no host")

    def leaf_of(self, host: int) -> int:
        """The leaf of a host, counted on each rail."""
        return self.place[host] if self.place else host % self.leaves


def bits_per_second(rate: str) -> int:
    """Bits per second of a rate such as "100mbit".

    Raises: FabricError.
    """
    try:
        if any(map(str.isspace, rate)):
            raise ValueError(f"rate {rate!r} has a space, which tc refuses")
        return rates.bits_per_second(rate)
    except ValueError as exc:
        raise FabricError(str(exc)) from exc


def check_loss(fraction: float, burst_length: float = 1.0) -> None:
    """Raises: FabricError if a value is out of range."""
    if not 0.0 <= fraction < 1.0:
        raise FabricError(f"loss {fraction} is out of range: use 0 <= loss < 1")
    if not 1.0 <= burst_length <= 10_000.0:
        raise FabricError(f"burst_length {burst_length} is out of range: use 1..10000 packets")


def check_delay(seconds: float) -> None:
    """Raises: FabricError if a value is out of range."""
    if not 0.0 <= seconds <= MAX_DELAY:
        raise FabricError(f"delay of {seconds:g} s is out of range: use 0 to {MAX_DELAY:g} s")


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise FabricError(f"{name} {value} is out of range: use {low}..{high}")
