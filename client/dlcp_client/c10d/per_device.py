"""What PyTorch asks of a group's backend for one device.

torch.distributed keeps a backend per device in a ProcessGroup of C++. A backend of Python cannot be
one of these, so the group stands in the place of each.
"""

from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as torch_c10d

from dlcp_client.backend import NAME
from dlcpd.contract.errors import BadTensor

from .errors import torch_errors
from .others import ALL_OURS, Devices

_KIND: Final = dist.ProcessGroup.BackendType.CUSTOM


class PerDevice(dist.ProcessGroup):
    """A ProcessGroup that is the backend of each of its devices that no other backend serves."""

    devices: Devices = ALL_OURS

    supports_splitting = False  # by what NCCL calls for: `split_group` of the object works
    supports_coalescing = True
    supports_shrinking = False
    supports_time_estimate = False

    def _serve(self, devices: Devices) -> None:
        """Have PyTorch know the devices."""
        self.devices = devices
        for device in devices.ours:
            self._register_backend(torch.device(device), _KIND, None)
        devices.register_others(self)
        self._set_default_backend(_KIND)
        if devices.bound is not None and devices.bound.index is not None:
            self.bound_device_id = devices.bound

    def _get_backend(self, device: torch.device) -> Any:
        """This object, or the backend of another that serves the device. Raises: BadTensor."""
        kind = torch.device(device).type
        with torch_errors():
            other = self.other(kind)
        return self if other is None else super()._get_backend(torch.device(device))

    def other(self, kind: str) -> dist.ProcessGroup | None:
        """The group that serves devices of a kind; None: this one, also where `kind` is empty.

        Raises: BadTensor.
        """
        if not kind or kind in self.devices.ours:
            return None
        if kind in self.devices.theirs:
            return self.devices.others
        known = [one.type for one in self._device_types]
        raise BadTensor(
            f"process group {self.group_name!r} has no backend for device {kind}: it serves "
            f"{', '.join(known)}; copy the tensor there, and the result back"
        )

    @property
    def options(self) -> torch_c10d.Backend.Options:
        """As new as the question: what is changed in them changes nothing."""
        made = torch_c10d.Backend.Options(NAME, self._default_timeout())
        made.group_name = self.group_name
        with suppress(KeyError):  # a group that torch.distributed did not make
            made.global_ranks_in_group = dist.get_process_group_ranks(self)
        return made

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether `allocate_tensor` is there: PyTorch's own memory is as good."""
        return False

    def eager_connect_single_device(self, device: torch.device | None = None) -> None:
        """Nothing to do: a group that is there is connected."""

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: the engines count the operations of a group."""

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _default_timeout(self) -> timedelta:
        raise NotImplementedError

    def get_error(self) -> Any:
        """Errors are raised by the operations that they end."""
        return torch_c10d.ErrorType.SUCCESS
