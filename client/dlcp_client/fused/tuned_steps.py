"""Chooses the way of a training's steps in these steps, by the slowest rank."""

import time
from collections.abc import Sequence
from typing import Final

from torch.optim import Optimizer

from dlcp_client.fused.flat_bucket import FlatBucket
from dlcp_client.fused.gradient_step import GradientStep
from dlcp_client.fused.lamb import LAMB
from dlcp_client.fused.language.tuning.choosing import Finalists, StepChoice
from dlcp_client.fused.language.tuning.results import Results, Row, key_of
from dlcp_client.fused.optimizer_state import join_parts
from dlcp_client.fused.program_optimizer import ProgramOptimizer
from dlcp_client.fused.shard_update import ShardUpdate
from dlcp_client.fused.ways import equal_ways
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import LossPolicy

WHAT: Final = "fused.register"  # in the log
# Settings that change what an update reads and writes, and so its time
_COSTLY: Final = ("momentum", "nesterov", "weight_decay", "amsgrad", "maximize")


class TunedSteps:
    """The ways of one registration. All ranks use the same one in the same step, and change
    together; the optimizer's state moves along."""

    def __init__(
        self,
        session: Session,
        optimizer: Optimizer,
        gradients: GradientStep,
        shards: Sequence[ShardUpdate],
    ) -> None:
        """Every rank calls it alike, between two steps. Raises: RanksDisagree; the error that ended
        an operation."""
        self._session, self._gradients, self._shards = session, gradients, shards
        self._ways = {way.title: way for way in equal_ways(session)}
        self._since = 0.0  # end of the last step; 0: not known
        text = "\n".join([_text_of(optimizer), *(_bucket_text(one.bucket) for one in shards)])
        options = "another model, optimizer or schedule of sums"
        self._choice = StepChoice(
            WHAT,
            session.world,
            results=Results.of_user(),
            key=key_of(session.world, WHAT, "\n".join([text, *self._ways]), options),
            usable=self._ways.__contains__,
            finalists=self._finalists,
            seconds="max",
        )
        self._use(self._choice.next())

    def stepped(self) -> None:
        """optimizer.step() is over. Raises: the error that ended an operation."""
        now = time.perf_counter()
        if self._since:
            self._choice.ran(now - self._since)
        self._use(self._choice.next())
        self._since = time.perf_counter()

    def skipped(self) -> None:
        """This step has no update, so its time does not count."""
        self._since = 0.0

    @property
    def chosen(self) -> str:
        """Title of the way in use after the comparison; empty: the first one is not over."""
        return self._choice.chosen

    @property
    def measured(self) -> int:
        """Number of steps whose times were taken; 0 after a start with a result."""
        return self._choice.measured

    def explain(self) -> str:
        """The ways with measured times."""
        return self._choice.table()

    def _finalists(self, _: str) -> Finalists:
        """All: a model of costs has nothing to leave out."""
        return Finalists(list(self._ways), [Row(title, 0.0) for title in self._ways])

    def _use(self, title: str) -> None:
        before, after = self._gradients.way, self._ways[title]
        if after is before:
            return
        self._gradients.way = after
        for shard in self._shards:
            whole = shard.state()
            if shard.divided:
                join_parts(self._session, whole)
            shard.rearrange(whole, everywhere=after.everywhere)


def check_tunable(policy: LossPolicy, optimizer: Optimizer, *, eager: bool = False) -> None:
    """Raises: BadConfig naming what only one way can do."""
    instead = "leave tune out"
    if eager:
        raise BadConfig(f"tune=True with eager=True, which is one way of a step: {instead}")
    if type(optimizer) is LAMB:
        raise BadConfig(
            f"tune=True with LAMB, whose norms are added up otherwise by each way: {instead}"
        )
    if type(optimizer) is ProgramOptimizer:
        raise BadConfig(
            f"tune=True with a program, whose kernels may differ from rank to rank: {instead}"
        )
    if not policy.is_plain or policy.gather:
        raise BadConfig(
            f"tune=True with a policy that changes numbers: give an exact one without gather, or "
            f"{instead}"
        )


def _text_of(optimizer: Optimizer) -> str:
    groups = [{name: bool(group.get(name)) for name in _COSTLY} for group in optimizer.param_groups]
    return f"{type(optimizer).__name__} {groups}"


def _bucket_text(bucket: FlatBucket) -> str:
    """The parameters of a bucket, without names."""
    sizes = " ".join(str(slot.stop - slot.start) for slot in bucket.slots)
    return f"{type(bucket).__name__} {bucket.group} {bucket.weights.dtype} {sizes}"
