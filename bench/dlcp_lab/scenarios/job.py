"""The job of a scenario: its operations, its fabric and its results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from dlcp_lab.emulation import Fabric, FabricError, Plan, fabric
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import HostPlan, Hosts, network_table, running
from dlcp_lab.ranks.processes import Place
from dlcp_lab.report.statistic import slowest
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.inspection.report import query

TIMEOUT: Final = 600.0  # seconds for one job; scenarios take a minute each
NO_LIMITS: Final[Mapping[str, str]] = {}
DLCPD: Final = "dlcpd"
GLOO: Final = "gloo"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a round; over Gloo an all-reduce only."""

    size: int  # bytes of float32: of a tensor, or of all parts together
    traffic_class: str = "bulk"
    bound: float = 0.0  # of an all-reduce; 0 = exact
    after: float = 0.0  # seconds from the round's begin to the submission
    collective: str = "all_reduce"  # or "all_gather", "reduce_scatter", "broadcast" from rank 0
    schedule: str = ""  # of an all-reduce over dlcpd; "" = what the engine chooses

    def plain(self, number: int) -> dict[str, Any]:
        """As JSON, for the rank."""
        return {
            "size": self.size,
            "class": self.traffic_class,
            "bound": self.bound,
            "after": self.after,
            "collective": self.collective,
            "schedule": self.schedule,
            "name": f"op{number}",
        }


@dataclass(frozen=True, slots=True)
class JobPhase:
    """Rounds of the same operations; the fabric may change when a phase begins."""

    name: str
    operations: tuple[Operation, ...]
    rounds: int = 20
    warmup: int = 3
    gradient: str = "noise"

    def plain(self) -> dict[str, Any]:
        """As JSON, for the rank."""
        operations = [op.plain(number) for number, op in enumerate(self.operations)]
        return {**asdict(self), "operations": operations}


@dataclass(frozen=True, slots=True)
class Job:
    """Work on the hosts of a fabric. `jobs` lists the ranks of each job; default: one of all."""

    phases: tuple[JobPhase, ...]
    network: dict[str, Any] = field(default_factory=dict)  # settings of [network]
    transports: tuple[str, ...] = (DLCPD,)
    jobs: tuple[tuple[int, ...], ...] = ()
    environ: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Measurements of all ranks in one phase, over one transport."""

    times: list[list[float]]  # per round and operation: of the slowest rank, seconds
    by_rank: list[list[list[float]]]  # per rank, round and operation
    counts: dict[str, int]  # segments of all ranks together
    energy: list[float]  # share of each operation's energy that was waived, all ranks

    @property
    def totals(self) -> list[float]:
        """Seconds of the longest operation of each round: the time of the round if its operations
        begin together."""
        return [max(round_) for round_ in self.times]


At = Callable[[str, Fabric], None]  # called with a phase's name, or "round", and the fabric


@contextmanager
def on_fabric(
    plan: dict[str, Any],
    network: dict[str, Any],
    *,
    settings: Sequence[str] = (),
    limits: Mapping[str, str] = NO_LIMITS,
    topology: str = "",
) -> Iterator[tuple[Fabric, Hosts]]:
    """A fabric with a daemon on each host; `plan` has fields of Plan, `network` of [network].

    `settings`: lines of [network], KEY=VALUE. `limits`: other rates of links, both ways.
    `topology`: path of the daemons' topology file. `peer_timeout` follows the load of this machine
    if neither `network` nor `settings` name it.

    Raises: BadConfig when this machine cannot make one.
    """
    try:
        with fabric(Plan(**plan)) as net:
            for link, rate in limits.items():
                net.limit(link, rate)
            rails = range(net.plan.rails)
            plans = [
                HostPlan(
                    f"host{host}",
                    tuple(net.address(host, rail) for rail in rails),
                    place=Place(net.host_namespace(host)),
                    interface="eth0",
                    network=replace(network_table(settings), **network),
                    topology=topology,
                )
                for host in range(net.plan.hosts)
            ]
            with running(plans) as hosts:
                yield net, hosts
    except FabricError as exc:
        raise BadConfig(f"bench: {exc}") from exc


def run(
    net: Fabric, hosts: Hosts, job: Job, *, seed: int, output: Output, at: At = lambda *_: None
) -> dict[str, dict[str, Result]]:
    """Run a job: phase -> transport -> result. `at` may change the fabric between rounds."""
    everyone = tuple(range(len(hosts.members)))
    arguments = {
        "transports": list(job.transports),
        "jobs": [list(members) for members in job.jobs or (everyone,)],
        "phases": [phase.plain() for phase in job.phases],
        "seed": seed,
    }
    work = launch.Work("dlcp_lab.scenarios.rank", arguments, TIMEOUT, job.environ)
    ranks = launch.run(
        hosts, work, progress=output.progress, at_barrier=lambda where, _: at(where, net)
    )
    return {
        phase.name: {
            transport: _result([rank[number][transport] for rank in ranks])
            for transport in job.transports
        }
        for number, phase in enumerate(job.phases)
    }


def _result(ranks: Sequence[dict[str, Any]]) -> Result:
    rounds = len(ranks[0]["times"])
    times = [slowest([rank["times"][n] for rank in ranks]) for n in range(rounds)]
    return Result(
        times,
        [rank["times"] for rank in ranks],
        {name: sum(rank["counts"][name] for rank in ranks) for name in ranks[0]["counts"]},
        [energy for rank in ranks for energy in rank["energy"]],
    )


def reports(hosts: Hosts) -> list[dict[str, Any]]:
    """Engine report of each host's status."""
    return [query(host.socket, 0)["engine"] for host in hosts.members]
