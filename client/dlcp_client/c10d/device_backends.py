"""Groups whose devices have several backends, as in `init_process_group("cpu:dlcp,cuda:nccl")`.

torch.distributed replaces the whole group by the first backend that is a Python ProcessGroup, and
creates no other. So the dlcpd group has torch.distributed create a second group of the other
backends, and passes the calls for their devices to it.
"""

import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed import distributed_c10d

from dlcp_client.backend import DEVICES, NAME

_MAKER: Final = "_new_process_group_helper"  # function of distributed_c10d whose locals are read


@dataclass(frozen=True, slots=True)
class DeviceBackends:
    """The backends that serve the devices of a group."""

    served: tuple[str, ...] = DEVICES  # device types of dlcpd
    others: dist.ProcessGroup | None = None  # the group of the other backends
    other_backends: Mapping[str, str] = field(
        default_factory=dict
    )  # backends of `others`, by device type
    bound: torch.device | None = None  # `device_id` of init_process_group

    def end(self, *, politely: bool) -> None:
        """End the group of the other backends."""
        if self.others is None:
            return
        if not politely:
            self.others.abort()
        with suppress(ValueError):  # torch.distributed has already ended it
            dist.destroy_process_group(self.others)

    def register_others(self, group: dist.ProcessGroup) -> None:
        """Register the other backends with `group`, so that PyTorch finds them by device."""
        for each, name in self.other_backends.items():
            device, kind = torch.device(each), dist.Backend.backend_type_map[name]
            group._register_backend(device, kind, self.others._get_backend(device))  # type: ignore[union-attr]


ALL_DEVICES: Final = DeviceBackends()


def devices_of(asked: Any, options: Any) -> DeviceBackends:
    """The devices of the group that torch.distributed is creating. `asked` and `options`: the
    arguments it passes to a backend. dlcpd serves all devices if no group is being created, or if a
    later torch creates groups differently.

    Raises: the errors of creating the group of the other backends.
    """
    making = _making()
    config = making.get("backend_config")
    if config is None:
        return ALL_DEVICES
    by_device: dict[str, str] = config.get_device_backend_map()
    served = tuple(device for device, name in by_device.items() if name == NAME)
    other_backends = {device: name for device, name in by_device.items() if name != NAME}
    bound = making.get("device_id")
    if not other_backends:
        return DeviceBackends(served, bound=bound)
    return DeviceBackends(
        served, _group_of(other_backends, asked, options, bound), other_backends, bound
    )


def _making() -> Mapping[str, Any]:
    """The local variables of torch.distributed's group creation; empty if none is running. Only
    they hold the list of devices: PyTorch does not pass it to a backend."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if code.co_name == _MAKER and frame.f_globals is vars(distributed_c10d):
            return frame.f_locals
        frame = frame.f_back
    return {}


def _group_of(
    backends: Mapping[str, str], asked: Any, options: Any, bound: torch.device | None
) -> dist.ProcessGroup:
    """A group of the same ranks, registered with torch.distributed under its own tag."""
    name = distributed_c10d.GroupName(f"{asked.group_id}:others")
    ranks = list(asked.global_ranks_in_group)
    made: dist.ProcessGroup
    made, _ = distributed_c10d._new_process_group_helper(
        asked.group_size,
        asked.group_rank,
        ranks,
        ",".join(f"{device}:{backend}" for device, backend in backends.items()),
        PrefixStore("others/", asked.store),
        name,
        backend_options=options,
        timeout=asked.timeout,
        pg_tag=name,
        device_id=bound if bound is not None and bound.type in backends else None,
    )
    by_rank = enumerate(ranks or range(asked.group_size))
    distributed_c10d._world.pg_group_ranks[made] = {of_job: rank for rank, of_job in by_rank}
    return made
