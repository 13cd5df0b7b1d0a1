"""What registrations of a model have in common, whatever it is that averages its gradients."""

import torch

from dlcp_client.report.registered import Registered
from dlcp_client.session import Session
from dlcp_client.torch.rules import Rules
from dlcpd.contract.policy import LossPolicy


class ModelRegistration(Registered):
    """Gradients of one model, by its rules."""

    def __init__(self, session: Session | None, rules: Rules) -> None:
        self.session, self.rules, self.account = session, rules, rules.account

    @property
    def step(self) -> int:
        """Backward passes begun."""
        return self.rules.step

    @property
    def policy(self) -> LossPolicy:
        """What may be lost, at present."""
        return self.rules.policy

    def name_of(self, parameter: torch.Tensor) -> str:
        """In the model."""
        return self.rules.name_of(parameter)

    def set_policy(self, policy: LossPolicy) -> None:
        """From the next backward pass on, another policy. Every rank calls it between the same two
        passes, with the same: where one does not, that pass fails, by RanksDisagree on the rank
        that sees it first.

        What was waived before comes back under the new one. The warm-up is not repeated.

        Raises: BadPolicy, also for another traffic class; BadConfig where the registration's other
            options do not go with it. Nothing has changed then.
        """
        self.rules.change(policy)
