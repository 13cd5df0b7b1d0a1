"""The interface of a group's backend for one device, as PyTorch calls it.

torch.distributed keeps a backend per device in a C++ ProcessGroup. A Python backend cannot be one
of these, so the group itself stands for each.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as torch_c10d

from dlcp_client.backend import NAME
from dlcpd.contract.errors import BadTensor

from .device_backends import ALL_DEVICES, DeviceBackends
from .errors import torch_errors
from .unread import UnreadWorks

_KIND: Final = dist.ProcessGroup.BackendType.CUSTOM


class PerDevice(dist.ProcessGroup):
    """A ProcessGroup that is also the backend of each device without another backend."""

    devices: DeviceBackends = ALL_DEVICES
    unread: UnreadWorks

    supports_splitting = False  # flag of NCCL's splitting; `split_group` works without it
    supports_coalescing = True
    supports_shrinking = False
    supports_time_estimate = False

    def _serve(self, devices: DeviceBackends) -> None:
        """Register the devices with PyTorch."""
        self.devices = devices
        for device in devices.served:
            self._register_backend(torch.device(device), _KIND, None)
        devices.register_others(self)
        self._set_default_backend(_KIND)
        if devices.bound is not None and devices.bound.index is not None:
            self.bound_device_id = devices.bound

    def _get_backend(self, device: torch.device) -> Any:
        """The backend of the device: this object or another backend. Raises: BadTensor."""
        kind = torch.device(device).type
        with torch_errors():
            other = self.other(kind)
        return self if other is None else super()._get_backend(torch.device(device))

    def other(self, kind: str) -> dist.ProcessGroup | None:
        """The group that serves a device type; None: this one, also if `kind` is empty.

        Raises: BadTensor.
        """
        if not kind or kind in self.devices.served:
            return None
        if kind in self.devices.other_backends:
            return self.devices.others
        known = [one.type for one in self._device_types]
        raise BadTensor(
            f"process group {self.group_name!r} has no backend for device {kind}: it serves "
            f"{', '.join(known)}; copy the tensor there, and the result back"
        )

    @property
    def options(self) -> torch_c10d.Backend.Options:
        """A copy of the options: changes to it have no effect."""
        made = torch_c10d.Backend.Options(NAME, self._default_timeout())
        made.group_name = self.group_name
        with suppress(KeyError):  # a group that torch.distributed did not make
            made.global_ranks_in_group = dist.get_process_group_ranks(self)
        return made

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """False: `allocate_tensor` is not provided, because PyTorch's own memory is as good."""
        return False

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Nothing to do: a group is connected when it is created."""

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: the number counts from the group's creation."""

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _default_timeout(self) -> timedelta:
        raise NotImplementedError

    def get_error(self) -> Any:
        """Always SUCCESS: operations raise their own errors."""
        return torch_c10d.ErrorType.SUCCESS

    def _get_sequence_number_for_group(self) -> int:
        """The number of collectives that this rank has begun."""
        return self.unread.begun
