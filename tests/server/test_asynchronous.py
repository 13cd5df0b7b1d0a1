"""Bounded staleness: it converges, the fast wait for the slow, the stale are refused if asked."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlcp_client import ps
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_lab.training.tasks import Digits
from dlcpd.contract.errors import StaleWorker
from tests.server.kit import TIMEOUT, each, served

ONE = [ps.NamedTensor("w", (4,))]
RATE = ps.sgd(1.0).groups


def place() -> list[Any]:
    return [np.zeros(4, np.float32)]


def push(client: ps.Client, into: list[Any]) -> None:
    client.push_pull([np.ones(4, np.float32)], into, RATE)


def test_it_learns_the_digits_with_a_staleness_of_four(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    """The workers take turns of as many steps as the staleness allows: what each learns from is as
    old as may be, and the order of the steps does not hang on the machine's load.
    """
    task, workers, steps, staleness = Digits(), 2, 100, 4
    turns = [threading.Semaphore(1), threading.Semaphore(0)]
    torch.manual_seed(0)
    models = [task.model() for _ in range(workers)]

    def work(rank: int) -> float:
        model = models[rank]
        optimizer = task.optimizer(model)
        options = {"staleness": staleness, "rank": rank, "world_size": workers, **found}
        handle = ps.register(model, optimizer, **options)
        for step in range(steps):
            if step % staleness == 0:
                assert turns[rank].acquire(timeout=TIMEOUT)
            optimizer.zero_grad()
            task.loss(model, step, rank).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if step % staleness == staleness - 1:
                turns[1 - rank].release()
        handle.close()
        return handle.version

    with served(tmp_path, host_daemon) as found:
        versions = each(workers, work)
    assert max(versions) == workers * steps
    last = models[int(np.argmax(versions))].eval()
    with torch.no_grad():
        assert task.score(last) > 0.8


def test_who_is_ahead_by_more_than_the_staleness_waits(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon) as found:
        options = {"staleness": 2, "world_size": 2, **found}
        fast, slow = (ps.connect(ONE, ps.sgd(1.0), rank=rank, **options) for rank in (0, 1))
        fast.initialise(place())
        into, done = place(), threading.Event()
        push(fast, into)
        push(fast, into)
        assert into[0][0] == -2

        def third() -> None:
            push(fast, into)
            done.set()

        thread = threading.Thread(target=third)
        thread.start()
        assert not done.wait(0.5)
        push(slow, place())
        assert done.wait(60)
        thread.join()
        assert into[0][0] == -4
        fast.close()
        slow.close()


def test_the_stale_are_refused_where_that_is_asked_for_and_go_on_after_a_pull(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon) as found:
        options = {"staleness": 1, "refuse_stale": True, "world_size": 2, **found}
        fast, slow = (ps.connect(ONE, ps.sgd(1.0), rank=rank, **options) for rank in (0, 1))
        fast.initialise(place())
        into = place()
        slow.pull(into)
        for _ in range(3):
            push(fast, place())
        with pytest.raises(StaleWorker, match="3 versions old"):
            push(slow, into)
        slow.pull(into)
        assert into[0][0] == -3
        push(slow, into)
        assert into[0][0] == -4
        fast.close()
        slow.close()
