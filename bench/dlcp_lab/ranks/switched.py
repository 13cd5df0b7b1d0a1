"""Hosts that are not on loopback: on an emulated switch, or in given namespaces."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from dlcp_lab.emulation import FabricError, Plan, fabric
from dlcp_lab.ranks.hosts import HostPlan
from dlcp_lab.ranks.processes import Place
from dlcpd.contract.errors import BadConfig

_PLACE: Final = re.compile(r"([\w.-]+)=([0-9a-fA-F.:]+)(?:%([\w.-]+))?")


@contextmanager
def switched(
    hosts: int, *, rate: str, loss: float, buffer_bytes: int, **settings: Any
) -> Iterator[list[HostPlan]]:
    """Hosts on one emulated switch, removed afterwards; `settings` are fields of HostPlan.

    Raises: BadConfig when this machine cannot make one.
    """
    try:
        plan = Plan(hosts=hosts, host_rate=rate, loss=loss, buffer_bytes=buffer_bytes)
        with fabric(plan) as net:
            yield [
                HostPlan(
                    f"host{host}",
                    (net.address(host),),
                    place=Place(net.host_namespace(host)),
                    interface="eth0",
                    **settings,
                )
                for host in range(hosts)
            ]
    except FabricError as exc:
        raise BadConfig(f"--switch {rate}: {exc}") from exc


def in_namespaces(places: Sequence[str], **settings: Any) -> list[HostPlan]:
    """Hosts in existing network namespaces, written NAMESPACE=ADDRESS or ...%INTERFACE.

    Raises: BadConfig.
    """
    plans = []
    for number, place in enumerate(places):
        found = _PLACE.fullmatch(place)
        if not found:
            raise BadConfig(f"--netns {place}: write NAMESPACE=ADDRESS or NAMESPACE=ADDRESS%eth0")
        plans.append(
            HostPlan(
                f"host{number}",
                (found[2],),
                place=Place(found[1]),
                interface=found[3] or "eth0",
                **settings,
            )
        )
    return plans
