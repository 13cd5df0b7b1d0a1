"""What a bounded training has to bring back, in its checkpoints."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from dlcp_client.session import Session
from dlcp_client.torch.model_registration import ModelRegistration
from dlcp_client.torch.rules import Left
from dlcpd.contract.errors import BadConfig

FORMAT: Final = 1  # of a state
NARROW: Final = (torch.float16, torch.bfloat16)


class Resumable(ModelRegistration):
    """A registration of a model whose parameters are the same on all ranks."""

    def state_dict(self) -> dict[str, Any]:
        """What was waived and has not come back, as tensors by parameter, and the steps so far:
        the same on all ranks, and for any number of ranks that go on with it.

        Every rank calls it, between two backward passes. Each operation that may have left
        something is done once more, exactly, and without gradients: what comes of it is the average
        over the ranks of what they had left over. It is in the state, and in the next
        step of this training too. It costs an all-reduce of the bounded gradients, and at most
        their memory until the next step.

        Raises: BadConfig where leftovers are not the daemon's; DeadlineExceeded where not every
            rank calls it, and the training can go on; what ends an operation.
        """
        self._check_resumable()
        if self.session is not None and self.rules.left:
            self.meet(self.session, "state_dict()")
            for name, left in self.rules.left.items():
                # All of them first: what is carried already goes into each.
                for values in [*self._drained(self.session, name, left)]:
                    self.rules.carried.take(left.parts(values))
        return {
            "format": FORMAT,
            "step": self.rules.before + self.rules.step,
            "scale": self.rules.carried.scale,
            "residuals": self.rules.carried.named(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave: what was left over comes back in the first step, and
        the warm-up is as long as it still was, two steps at least. Every rank calls it, after
        `register` and before the first backward pass.

        Raises: BadConfig; nothing has changed then.
        """
        self._check_resumable()
        if self.rules.step:
            raise BadConfig("load_state_dict: call it before the first backward pass")
        if state.get("format") != FORMAT:
            raise BadConfig(f"load_state_dict: format {state.get('format')!r}, and not {FORMAT}")
        self.rules.carried.load(state["residuals"], state["scale"])
        self.rules.resume(state["step"])

    def _drained(self, session: Session, name: str, left: Left) -> Iterator[torch.Tensor]:
        """Averages of what is left, with what this rank carries of it already. Of 16-bit floats
        several, the same number on all ranks: each has as many digits as fit."""
        policy, carried = self.rules.exact, self.rules.carried
        while True:
            given = session.zeros(left.count, left.dtype, wait=policy.deadline)
            carried.add_to(left.parts(given))
            scale = carried.scale
            session.all_reduce(given, "avg", policy=policy, name=name, scale=scale).wait()
            yield given
            if left.dtype not in NARROW or not bool(given.any()):
                return

    def _check_resumable(self) -> None:
        """Raises: BadConfig."""
