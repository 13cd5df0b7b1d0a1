"""Saves the residuals of a bounded training in its checkpoints."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from dlcp_client.hooks.model_registration import ModelRegistration
from dlcp_client.hooks.rules import ResidualOrigin
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig

FORMAT: Final = 1  # of a state
NARROW: Final = (torch.float16, torch.bfloat16)


class Resumable(ModelRegistration):
    """A registration of a model whose parameters are the same on all ranks."""

    def state_dict(self) -> dict[str, Any]:
        """The residuals, as tensors by parameter, and the number of steps: equal on all ranks, and
        valid for any number of ranks that resume.

        Every rank calls it, between two backward passes. Each operation that may have a residual is
        repeated once, exactly, and without gradients: its result is the average over the ranks of
        their residuals. It is in the state, and is also added to the next step of this training. It
        costs an all-reduce of the bounded gradients, and at most their memory until the next step.

        Raises: BadConfig if the daemon does not keep the residuals; DeadlineExceeded if not
            every rank calls it, and the training can continue; the error that ended an operation.
        """
        self._check_resumable()
        if self.session is not None and self.rules.residuals:
            self.meet(self.session, "state_dict()")
            for name, residual in self.rules.residuals.items():
                # All of them first: each includes the values resumed so far.
                for values in [*self._drained(self.session, name, residual)]:
                    self.rules.resumed.take(residual.parts(values))
        return {
            "format": FORMAT,
            "step": self.rules.before + self.rules.step,
            "scale": self.rules.resumed.scale,
            "residuals": self.rules.resumed.named(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`: residuals are added in the first step, and the
        warm-up has its remaining length, at least two steps. Every rank calls it, after `register`
        and before the first backward pass.

        Raises: BadConfig; nothing has then changed.
        """
        self._check_resumable()
        if self.rules.step:
            raise BadConfig("load_state_dict: call it before the first backward pass")
        if state.get("format") != FORMAT:
            raise BadConfig(
                f"load_state_dict: the state has format {state.get('format')!r}, and this "
                f"version reads format {FORMAT}"
            )
        self.rules.resumed.load(state["residuals"], state["scale"])
        self.rules.resume(state["step"])

    def _drained(
        self, session: Session, name: str, residual: ResidualOrigin
    ) -> Iterator[torch.Tensor]:
        """Averages of the residuals, including this rank's resumed values. For 16-bit floats
        several tensors, the same number on all ranks: each adds the digits that the previous ones
        could not hold."""
        policy, resumed = self.rules.exact, self.rules.resumed
        while True:
            given = session.zeros(residual.count, residual.dtype, wait=policy.deadline)
            resumed.add_to(residual.parts(given))
            scale = resumed.scale
            session.all_reduce(given, "avg", policy=policy, name=name, scale=scale).wait()
            yield given
            if residual.dtype not in NARROW or not bool(given.any()):
                return

    def _check_resumable(self) -> None:
        """Raises: BadConfig if the state cannot be saved or restored."""
