"""A shard on its own: what it averages, what it skips, what it refuses, what a successor knows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dlcp_client.ps.join_request import JoinRequest, PushAgreement, policy_values
from dlcp_client.ps.layout import ShardLayout, ShardTensor
from dlcp_client.ps.specs import OptimizerSpec, adamw, lamb, sgd
from dlcp_client.server.core import Array, Contribution, ShardCore, average
from dlcp_client.server.journal import Journal
from dlcp_client.server.journal_entry import JournalEntry
from dlcpd.contract.errors import (
    BadConfig,
    BadMessage,
    BadSnapshot,
    DlcpError,
    NotInitialised,
    RanksDisagree,
)
from dlcpd.contract.policy import EXACT

LAYOUT = ShardLayout((ShardTensor(6, 0), ShardTensor(2, 1)))
TERMS = PushAgreement("job", "model", "sgd", 8, 2, 2)
RATE = sgd(1.0).groups * 2


def join_request(
    worker: int, agreement: PushAgreement = TERMS, *, launch: int = 2, resume: bool = False
) -> JoinRequest:
    return JoinRequest(
        agreement, worker, launch, policy_values(EXACT), policy_values(EXACT), resume
    )


def ones(value: float) -> Array:
    return np.full(8, value, np.float32)


class Memory:
    """A Durable whose disk may be full."""

    def __init__(self) -> None:
        self.log: list[JournalEntry] = []
        self.full = False

    def append(self, entry: JournalEntry) -> None:
        if self.full:
            raise DlcpError("the disk is full")
        self.log.append(entry)

    def snapshot(self, entry: JournalEntry) -> None:
        self.log = [entry]


def core_of(
    workers: int, durable: Memory | Journal | None = None, agreement: PushAgreement = TERMS
) -> ShardCore:
    core = ShardCore(durable or Memory())
    for worker in range(workers):
        core.attach(join_request(worker, agreement, launch=workers))
    core.initialise(LAYOUT.rows(), ones(0))
    return core


def push(
    core: ShardCore, rank: int, number: int, value: float | None, spec: OptimizerSpec | None = None
) -> None:
    groups = spec.groups * 2 if spec else RATE
    core.push(rank, number, Contribution(groups, None if value is None else ones(value)))
    core.advance(0.0)


def test_the_average_is_over_those_who_contributed() -> None:
    core = core_of(3)
    for rank, value in enumerate((1.0, 2.0, 6.0)):
        push(core, rank, 1, value)
    assert core.read().tolist() == [-3.0] * 8
    core.leave(2)
    push(core, 0, 2, 1.0)
    push(core, 1, 2, 2.0)
    assert core.read().tolist() == [-4.5] * 8


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_a_version_that_is_not_finite_changes_nothing_for_anybody(value: float | None) -> None:
    core = core_of(2)
    push(core, 0, 1, 3e38)
    push(core, 1, 1, value)
    assert not core.read().any() and core.progress.version == 1
    assert not core.changed(0) and not core.changed(1)
    push(core, 0, 2, 1.0)
    push(core, 1, 2, 1.0)
    assert core.read().tolist() == [-1.0] * 8 and core.changed(0) and core.changed(1)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_mean_of_finite_gradients_is_finite(workers: int) -> None:
    """Though their sum is not; what fits is added as ever, to the bit."""
    top = np.finfo(np.float32).max
    large = [np.array([top, -top, 0.1 * (k + 1)], np.float32) for k in range(workers)]
    found = average(large)
    assert found is not None
    np.testing.assert_allclose(found[:2], [top, -top], rtol=1e-6)
    plain = average([one[2:] for one in large])
    assert plain is not None and found[2] == plain[0]
    assert average([*large, np.full(3, np.inf, np.float32)]) is None


def test_nothing_is_pulled_or_pushed_before_there_is_a_model() -> None:
    core = ShardCore(Memory())
    with pytest.raises(NotInitialised):
        core.read()
    core.attach(join_request(0))
    with pytest.raises(NotInitialised, match="no parameters yet"):
        push(core, 0, 1, 1.0)


def test_the_first_who_brings_parameters_is_the_one_who_counts() -> None:
    core = core_of(1)
    core.initialise(LAYOUT.rows(), ones(5))
    assert not core.read().any()


def test_a_layout_that_is_not_what_was_announced_is_refused() -> None:
    core = ShardCore(Memory())
    core.attach(join_request(0))
    for layout in (
        ShardLayout((ShardTensor(7, 0), ShardTensor(2, 1))),
        ShardLayout((ShardTensor(6, 0), ShardTensor(2, 2))),
    ):
        with pytest.raises(BadMessage):
            core.initialise(layout.rows(), ones(0))
    assert core.parameters is None


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"model": "other"}, BadSnapshot, "the models differ"),
        ({"elements": 9}, BadSnapshot, "the models differ"),
        ({"optimizer": "adam"}, RanksDisagree, "optimizer 'adam'"),
        ({"staleness": 4}, RanksDisagree, "staleness"),
        ({"job": "other"}, BadConfig, "serves job 'job'"),
    ],
)
def test_a_worker_that_does_not_fit_is_told_what(
    changes: dict[str, object], error: type[DlcpError], text: str
) -> None:
    core = core_of(1)
    with pytest.raises(error, match=text):
        core.attach(join_request(1, replace(TERMS, **changes)))  # type: ignore[arg-type]
    assert set(core.progress.here) == {0}


def test_workers_with_other_settings_are_told_and_the_version_waits() -> None:
    core = core_of(2)
    push(core, 0, 1, 1.0)
    with pytest.raises(RanksDisagree, match="worker 1 pushes with the settings"):
        push(core, 1, 1, 1.0, sgd(0.5))
    assert core.progress.version == 0
    push(core, 1, 1, 1.0)
    assert core.progress.version == 1


def test_settings_out_of_range_are_refused() -> None:
    core = core_of(1)
    with pytest.raises(BadConfig, match="lr"):
        core.push(0, 1, Contribution(((-1.0, 0, 0, 0, 0),) * 2, ones(1)))


def test_a_full_disk_acknowledges_nothing() -> None:
    durable = Memory()
    core = core_of(1, durable)
    durable.full = True
    with pytest.raises(DlcpError, match="full"):
        push(core, 0, 1, 1.0)
    assert not core.read().any() and core.progress.acknowledged == {}


def test_a_job_that_ended_can_be_resumed_by_another_and_its_numbers_begin_anew(
    tmp_path: Path,
) -> None:
    journal = Journal(tmp_path)
    core = core_of(1, journal)
    push(core, 0, 1, 1.0)
    core.leave(0)
    other = replace(TERMS, job="second")
    with pytest.raises(BadConfig, match="resume=True"):
        core.attach(join_request(0, other, launch=1))
    assert core.attach(join_request(0, other, launch=1, resume=True)) == 0
    push(core, 0, 1, 1.0)
    assert core.read().tolist() == [-2.0] * 8
    journal.close()
    after = taken_over(tmp_path)
    assert after.agreement == other and after.progress.acknowledged == {0: 1}


def taken_over(folder: Path) -> ShardCore:
    journal = Journal(folder)
    core = ShardCore(journal)
    core.recover(journal.recover(), until=10.0)
    journal.close()
    return core


@pytest.mark.parametrize(
    ("kind", "spec"), [("sgd", sgd(0.1, 0.9)), ("adamw", adamw()), ("lamb", lamb())]
)
def test_a_successor_has_the_same_bits(tmp_path: Path, kind: str, spec: OptimizerSpec) -> None:
    journal = Journal(tmp_path)
    agreement = replace(TERMS, optimizer=kind)
    core = core_of(2, journal, agreement)
    for number in range(1, 8):
        for rank in range(2):
            push(core, rank, number, None if number == 4 else 0.1 * number + rank, spec)
        if number == 3:
            journal.snapshot(_state(core))
    journal.close()
    after = taken_over(tmp_path)
    assert after.read().tobytes() == core.read().tobytes()
    assert after.progress.version == 7 and after.progress.acknowledged == {0: 7, 1: 7}
    assert set(after.progress.expected) == {0, 1} and after.progress.started


def _state(core: ShardCore) -> JournalEntry:
    memory = Memory()
    core._durable, kept = memory, core._durable  # noqa: SLF001
    core._snapshot()  # noqa: SLF001
    core._durable = kept  # noqa: SLF001
    return memory.log[0]


@pytest.mark.parametrize("head", [{}, {"terms": 3}, {"terms": TERMS.values(), "layout": [1]}])
def test_a_snapshot_of_something_else_is_refused(head: dict[str, object]) -> None:
    core = ShardCore(Memory())
    with pytest.raises(BadSnapshot, match="version 3"):
        core.recover([JournalEntry({"version": 3, **head}, ones(0))], 0.0)
