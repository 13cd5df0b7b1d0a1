"""Changes of averaged gradients before the update, alike on all ranks: clipping, and loss scales.

Each rank changes the averages that it holds. Where the change depends on all of them, an all-reduce
of one number follows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.amp import GradScaler
from torch.optim import Optimizer

from dlcp_client.fused.gradient_step import GradientStep
from dlcp_client.fused.suitability import DTYPES
from dlcp_client.group import Group
from dlcpd.contract.errors import BadConfig

_SMALL: Final = 1e-6  # added to the norm, as torch.nn.utils.clip_grad_norm_ does


def clip_norm(
    group: Group[torch.Tensor],
    averages: Sequence[torch.Tensor],
    once: Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float,
    *,
    error_if_nonfinite: bool,
) -> torch.Tensor:
    """As torch.nn.utils.clip_grad_norm_, of the averages of all ranks. Returns their norm. `once`:
    the averages that no other rank counts.

    Raises: RuntimeError, as torch does, on all ranks, and changes nothing; BadConfig; the error
    that ended the operation.
    """
    try:
        max_norm, norm_type = float(max_norm), float(norm_type)  # as torch does: "inf" is a number
    except (TypeError, ValueError) as error:
        raise BadConfig(
            f"max_norm {max_norm!r:.40}, norm_type {norm_type!r:.40}: {error}"
        ) from error
    if not max_norm >= 0:
        raise BadConfig(f"max_norm {max_norm:g}: give a number, 0 or more")
    if not norm_type > 0:
        raise BadConfig(f"norm_type {norm_type:g}: give a number above 0, or math.inf")
    norm = _norm(group, once, norm_type)
    if error_if_nonfinite and not norm.isfinite():
        raise RuntimeError(
            f"the norm of order {norm_type} of the gradients is {norm}, so they cannot be clipped: "
            f"discard() the step, or leave error_if_nonfinite out"
        )
    factor = torch.clamp(max_norm / (norm + _SMALL), max=1.0)
    if factor != 1:  # NaN is not 1
        for one in averages:
            one.mul_(factor)
    return norm


def _norm(
    group: Group[torch.Tensor], averages: Sequence[torch.Tensor], norm_type: float
) -> torch.Tensor:
    norms = [torch.linalg.vector_norm(one, norm_type).double() for one in averages]
    mine = torch.stack(norms) if norms else torch.zeros(1, dtype=torch.float64)
    if math.isinf(norm_type):
        total = mine.max().reshape(1)
        group.all_reduce(total, "max").wait()
    else:
        total = mine.pow(norm_type).sum().reshape(1)
        group.all_reduce(total, "sum").wait()
        total = total.pow(1 / norm_type)
    return total.float().reshape(())


class ScaledStep:
    """Makes a GradScaler unscale, and check, the averages of one optimizer instead of `.grad`. All
    ranks skip the same steps."""

    def __init__(
        self,
        scaler: GradScaler,
        optimizer: Optimizer,
        step: GradientStep,
        group: Group[torch.Tensor],
        discard: Callable[[], None],
    ) -> None:
        """Raises: BadConfig if the scaler has another optimizer of `fused`."""
        if "_unscale_grads_" in vars(scaler):
            raise BadConfig(
                "the scaler belongs to another registration of fused: give each its own GradScaler"
            )
        self._scaler, self._optimizer = scaler, optimizer
        self._step, self._group, self._discard = step, group, discard
        self._scaler_step = scaler.step
        self._unscale = scaler._unscale_grads_  # FSDP replaces it, too
        # Else the scaler gives its factor to the optimizer's kernel, which does not run here.
        self._supports = getattr(optimizer, "_step_supports_amp_scaling", None)
        optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]  # noqa: SLF001  # torch has no public name
        scaler._unscale_grads_ = self.unscale  # type: ignore[method-assign]  # see above
        scaler.step = self.step  # type: ignore[method-assign]  # likewise

    def close(self) -> None:
        """Return the methods of scaler and optimizer."""
        del self._scaler._unscale_grads_, self._scaler.step  # see __init__
        if self._supports is None:
            del self._optimizer._step_supports_amp_scaling  # type: ignore[attr-defined]  # noqa: SLF001  # likewise
        else:
            self._optimizer._step_supports_amp_scaling = self._supports  # type: ignore[attr-defined]  # noqa: SLF001  # likewise

    def unscale(
        self,
        optimizer: Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,
    ) -> dict[torch.device, torch.Tensor]:
        """GradScaler's method: multiply the averages; whether any rank has one that is not finite.

        Raises: BadConfig; the error that ended an operation.
        """
        if optimizer is not self._optimizer:
            return self._unscale(optimizer, inv_scale, found_inf, allow_fp16)
        self._step.check_complete("the scaler's step")
        averages = self._step.averages()
        found, factor = found_inf.cpu().reshape(1).clone(), inv_scale.cpu()  # averages are there
        for dtype in DTYPES:
            if of_dtype := [one for one in averages if one.dtype is dtype]:
                torch._amp_foreach_non_finite_check_and_unscale_(of_dtype, found, factor)
        self._group.all_reduce(found, "max").wait()
        return {found_inf.device: found.reshape(()).to(found_inf.device)}

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """GradScaler's method: a step that it skips is discarded."""
        result = self._scaler_step(optimizer, *args, **kwargs)
        if optimizer is self._optimizer and self._step.begun:
            self._discard()
        return result
