"""The common part of registrations of a model, for any transport of its gradients."""

import torch

from dlcp_client.hooks.rules import Rules
from dlcp_client.report.registered import Registered
from dlcp_client.session import Session
from dlcpd.contract.policy import LossPolicy


class ModelRegistration(Registered):
    """The gradients of one model, by its rules."""

    def __init__(self, session: Session | None, rules: Rules) -> None:
        self.session, self.rules, self.account = session, rules, rules.account

    @property
    def step(self) -> int:
        """Number of backward passes begun."""
        return self.rules.step

    @property
    def policy(self) -> LossPolicy:
        """The present policy."""
        return self.rules.policy

    def name_of(self, parameter: torch.Tensor) -> str:
        """The parameter's name in the model."""
        return self.rules.name_of(parameter)

    def set_policy(self, policy: LossPolicy) -> None:
        """Use another policy from the next backward pass on. Every rank calls it between the same
        two passes, with the same policy. If one does not, that pass fails with RanksDisagree on the
        rank that detects it first.

        Residuals are reapplied under the new policy. The warm-up is not repeated.

        Raises: BadPolicy, also for another traffic class; BadConfig if the registration's other
            options do not allow it. Nothing has then changed.
        """
        self.rules.change(policy)
