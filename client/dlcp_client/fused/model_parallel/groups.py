"""The group of a model-parallel operation, from what a training has."""

from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from dlcp_client.c10d import ProcessGroup
from dlcp_client.group import Group
from dlcpd.contract.errors import BadConfig

AnyGroup = Group[Tensor] | dist.ProcessGroup | DeviceMesh


def group_of(given: AnyGroup) -> Group[Tensor] | None:
    """The session's group; None: it has one rank, so that nothing travels. Raises: BadConfig."""
    group: Any = given
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise BadConfig(f"group={group} has {group.ndim} dimensions: choose one, as mesh['tp']")
        group = group.get_group()
    if isinstance(group, ProcessGroup):
        group = group.group
        if group.size == 1:
            return None
    if not isinstance(group, Group):
        raise BadConfig(
            f"group={given!r:.80} is not of dlcpd: give a session's group, or one of "
            'init_process_group("dlcp")'
        )
    return group if group.size > 1 else None
