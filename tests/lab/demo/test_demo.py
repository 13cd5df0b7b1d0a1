"""The demo's training on real hosts, by arithmetic of several instruction sets."""

from functools import cache
from typing import Final

import pytest
import torch

from dlcp_lab.demo.full import free_port
from dlcp_lab.demo.judge import SEGMENT, Trained, by_task, judge
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import on_loopback, running
from dlcp_lab.report.checks import broken
from dlcp_lab.training.learning import losses_at_marks, total
from dlcpd.daemon.config.tables import NetworkTable

pytestmark = pytest.mark.timeout(400)  # seconds; 45 on two idle cores, both together
# What each library of torch is told to use. Each of the three changes results here: another width
# of vectors is another order of addition. The oldest sets do too, at three times the cost.
SETS: Final = {
    "native": {},
    "narrow": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}


@cache
def trained(instruction_set: str) -> list[Trained]:
    """A sixth of the demo's steps on two hosts: enough to leave the exact warm-up."""
    environ = SETS[instruction_set] | {"MASTER_PORT": str(free_port())}
    network = NetworkTable(segment_size=SEGMENT)
    with running(on_loopback(2, 2, network=network, loss=0.02, digest_every=1)) as hosts:
        work = launch.Work("dlcp_lab.demo.full_rank", {"share": 0.16}, 300.0, environ)
        ranks = launch.run(hosts, work, progress=lambda _: None)
    return by_task([list(run) for run in zip(*ranks, strict=True)])


@pytest.mark.parametrize("instruction_set", SETS)
def test_a_short_demo_learns_and_holds_its_promises(instruction_set: str) -> None:
    tasks = trained(instruction_set)
    assert len(tasks) == 2
    for task in tasks:
        assert list(task.runs) == ["gloo", "reference", "exact", "bounded"]
        assert broken(list(judge(task))) == []
        assert total(task.runs["bounded"], "waived") > 0
        curve = losses_at_marks(task.runs["bounded"])
        assert curve[-1] < curve[0]


def test_the_instruction_sets_really_compute_differently() -> None:
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("this CPU has one instruction set that torch knows")
    for native, narrow in zip(trained("native"), trained("narrow"), strict=True):
        digests = {task.runs["exact"][0]["digest"] for task in (native, narrow)}
        assert len(digests) == 2
