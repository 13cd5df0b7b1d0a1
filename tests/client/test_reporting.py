"""What registrations say of trainings over real daemons, a process for each rank."""

from pathlib import Path

import numpy as np
import pytest
from torch import nn

from dlcp_client import DlcpError, PowerSGD, bounded, ddp, exact
from dlcpd.contract.errors import BadPolicy
from dlcpd.inspection.run_identity import run_identity
from tests.client import report_ranks
from tests.client.report_ranks import BOUND, STEPS, WARMUP
from tests.client.test_ddp import on_each_rank


@pytest.mark.parametrize("how", ["ddp", "cross_step"])
def test_metrics_and_summary_of_a_lossy_training(
    tmp_path: Path, lossy: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "0")  # what ranks of one daemon exchange is never lost
    ranks = on_each_rank(report_ranks.reported, tmp_path, how, lossy)
    for one in ranks:
        whole, later, ledger = one["whole"], one["later"], one["ledger"]
        assert (whole["steps"], later["steps"]) == (STEPS, STEPS // 2)
        assert whole["bytes"] == STEPS * one["size"]
        bounded_step = whole["bounded_bytes"] / (STEPS - WARMUP)
        assert 1 << 20 <= bounded_step < one["size"]  # small buckets are exact
        assert 0 < whole["loss"] <= BOUND == whole["bound"]
        assert 0 < whole["energy_lost"] < BOUND
        assert whole["waived"] == ledger.waived  # nothing else may lose anything
        assert (
            0 < later["waived"] <= whole["waived"]
            and later["retransmitted"] <= ledger.retransmitted
        )
        assert whole["exposed_s"] > 0 and whole["step_s"] > 0  # of all steps; after the first
        assert (whole["paths"], whole["paths_in_alarm"]) == (1, whole["paths_in_alarm"])
        assert {name for label in one["labels"] for name in label.split(" to ")} <= set(
            one["parameters"]
        )
        lines = one["summary"].splitlines()
        assert "bounded" in lines[1] and lines[2].startswith("  ") and "all 2 ranks" in lines[-1]
        assert [step for step, _ in one["told"]] == [3, 6]
        for _, scalars in one["told"]:
            assert scalars["dlcp/steps"] == 3 and scalars["dlcp/bytes"] == 3 * one["size"]
        parts = [scalars["dlcp/waived"] for _, scalars in one["told"]]
        assert sum(parts) <= whole["waived"]
    for number, one in enumerate(ranks):
        run = run_identity(one["run"])
        assert (run["ranks"], run["hosts"]) == (2, [run["recorded on"]])
        assert one["run"]["sessions"][0]["rank"] == number and len(run["jobs"]) == 1
    assert ranks[0]["summary"].splitlines()[-1] == ranks[1]["summary"].splitlines()[-1]
    assert not ranks[1]["said"]
    start, first, second, end = ranks[0]["said"]
    assert first.startswith("steps 1 to 3: 1.6") and second.startswith("steps 4 to 6: 1.6")
    assert " of bounded segments waived, " in second and " of 1 paths in alarm" in second
    name = 'ddp, transport="dlcp"' if how == "ddp" else how
    assert start.startswith(f"{name}: bounded(0.2); rank 0 of 2 through a private dlcpd (dlcpctl ")
    assert "for 1 rank(s) of this host, 1 engine(s), data path " in start and "?" not in start
    assert end.startswith(f"{name}, rank 0 of 2: {STEPS} steps, ") and "ended by" not in end
    assert "waived (bound 20.000%)" in end and "a step waited" in end


@pytest.mark.parametrize("how", ["ddp", "cross_step"])
def test_policies_change_between_steps_and_what_was_waived_comes_back(
    tmp_path: Path, lossy: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "0")
    none = (None, None)
    policies = [none, none, none, (bounded(0.5),) * 2, (exact(),) * 2, none, (bounded(0.02),) * 2]
    ranks = on_each_rank(report_ranks.changing, tmp_path, how, [*policies, (exact(),) * 2], lossy)
    assert not any(rank["raised"] for rank in ranks)
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    for rank in ranks:
        assert rank["losses"][:2] == [0, 0] == rank["losses"][4:6]
        assert rank["losses"][2] <= BOUND and rank["losses"][3] <= 0.5
        assert rank["losses"][6] <= 0.02 and rank["losses"][7] == 0
        assert rank["left"] == 0 and rank["policy"] == exact()
    assert sum(sum(rank["losses"]) for rank in ranks) > 0


def test_a_rank_that_does_not_change_its_policy_is_named(tmp_path: Path, lossy: Path) -> None:
    policies = [(None, None)] * 3 + [(exact(), None)]
    ranks = on_each_rank(report_ranks.changing, tmp_path, "ddp", policies, lossy)
    for rank in ranks:
        assert rank["raised"].startswith("3 RuntimeError: ")  # it comes out of backward()
    # One of them sees it first; the other one may hear of that before it sees it itself.
    told = [rank["raised"] for rank in ranks if "RanksDisagree" in rank["raised"]]
    assert told
    for said in ("rank 0", "rank 1", ", exact, ", "max_loss 0.2"):
        assert all(said in text for text in told)


def test_policies_that_do_not_go_with_the_rest_are_refused_and_change_nothing(
    group_of_one: None,
) -> None:
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    handle = ddp.register(net, low_rank=PowerSGD())
    for wrong, said in ((bounded(), "low_rank"), (exact(traffic_class="front"), "register again")):
        with pytest.raises(DlcpError, match=said):
            handle.set_policy(wrong)
    with pytest.raises(BadPolicy, match="write exact"):
        handle.set_policy(0.01)  # type: ignore[arg-type]
    handle.set_policy(exact(deadline=60.0))
    assert handle.policy == exact()  # until the next backward pass
