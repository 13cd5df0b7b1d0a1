"""Ranges in torch.profiler of a worker of a parameter server."""

from pathlib import Path

import torch
from torch import nn

from dlcp_client import bounded, ps
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ranges import WAIT
from tests.c10d.ranges_programs import Row, profiled
from tests.server.kit import each, served

COUNT = 6  # elements of the model


def test_a_step_and_a_pull_show_what_they_move_and_where_they_wait(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    def worker(rank: int) -> list[Row]:
        model, rows = nn.Linear(2, 2), list[Row]()
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        handle = ps.register(
            model, sgd, bounded(0.01), warmup_steps=1, rank=rank, world_size=2, **found
        )
        for number in range(2):
            model(torch.ones(1, 2)).sum().backward()
            if number and rank == 0:
                with profiled(rows):
                    sgd.step()
                    handle.pull()
            else:
                sgd.step()
        handle.close()
        return rows

    with served(tmp_path, host_daemon) as found:
        rows, _ = each(2, worker)
    assert [name for name, _ in rows] == ["dlcp:push_pull", WAIT, "dlcp:pull", WAIT]
    step, pull = rows[0][1], rows[2][1]
    assert step["In msg nelems"] == pull["In msg nelems"] == COUNT and step["dtype"] == "Float"
    assert (step["bound"], pull["bound"]) == ("0.01", "0")
