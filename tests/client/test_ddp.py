"""DistributedDataParallel over real daemons, a process for each rank."""

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from torch import nn

from dlcp_client import ddp
from dlcpd.contract.errors import BadConfig
from tests.client import ddp_ranks
from tests.client.ddp_ranks import WORLD
from tests.forking import CONTEXT
from tests.standing import STANDING


def _take_over(environment: dict[str, str]) -> None:
    os.environ.update(environment)


def on_hosts(call: Callable[..., Any], tmp_path: Path, *args: Any, world: int = WORLD) -> Any:
    """As `on_each_rank`; sessions are those of the daemon of a standing host for each rank."""
    sockets = STANDING.sockets(world)
    return on_each_rank(_with_its_host, tmp_path, sockets, call, *args, world=world)


def _with_its_host(
    rank: int, store: str, sockets: list[str], call: Callable[..., Any], *args: Any
) -> Any:
    os.environ["DLCPD_SOCKET"] = sockets[rank]
    return call(rank, store, *args)


def on_each_rank(call: Callable[..., Any], tmp_path: Path, *args: Any, world: int = WORLD) -> Any:
    """call(rank, store, *args) in a process for each rank; what they return."""
    store = f"{mkdtemp(dir=tmp_path)}/store"  # that of the world before is left as it was
    with ProcessPoolExecutor(world, CONTEXT, _take_over, (dict(os.environ),)) as pool:
        futures = [pool.submit(call, rank, store, *args) for rank in range(world)]
        try:
            return [future.result() for future in futures]
        except BaseException:  # a test's time is up as well: the pool would wait for its processes
            for process in list(pool._processes.values()):  # noqa: SLF001  # no public way
                process.kill()
            raise


@pytest.mark.parametrize("view", [False, True], ids=["copies", "views"])
def test_exact_training_equals_the_frameworks(tmp_path: Path, view: bool) -> None:
    ranks = on_each_rank(ddp_ranks.exact_training, tmp_path, view)
    for rank in ranks:
        assert rank["apart"] < 1e-5
        assert rank["steps"] == 5
        assert rank["operations"] > 5  # several buckets at each step but the first
        made = rank["made"]  # tensors of the arena, by step: DDP forms other buckets in the second
        assert min(made[2:]) < made[1]
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])


def test_bounded_training_loses_only_where_it_may(tmp_path: Path) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 1\n'
    )
    ranks = on_each_rank(ddp_ranks.bounded_training, tmp_path, str(file))
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    assert ranks[0]["waived"] + ranks[1]["waived"] > 0
    asked = ranks[0]["asked"]
    assert asked == ranks[1]["asked"]
    assert {mode for number, mode, _, _ in asked if number <= 3} == {"exact"}
    late = [(mode, name, exempt) for number, mode, name, exempt in asked if number > 3]
    assert {mode for mode, _, _ in late} == {"exact", "bounded"}  # small buckets stay exact
    names = {name for mode, name, _ in late if mode == "bounded"}
    assert len(late) > 5 * len(names)  # the same ones at each step
    assert all(exempt >= 600 * 4 for mode, _, exempt in late if mode == "bounded")


def test_what_comes_back_does_not_overflow_float16(tmp_path: Path) -> None:
    """Gradients at the limit of float16, as a GradScaler keeps them: what was waived comes back
    as far as it fits, and all of it when they get smaller."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 1\n'
    )
    first, second = on_each_rank(ddp_ranks.float16_at_its_limit, tmp_path, str(file))
    assert first["waived"] + second["waived"] > 0
    assert first["highest"] == second["highest"]
    assert set(first["highest"][:2]) == {40_000}
    assert 40_000 < max(first["highest"]) <= 65_504
    # at most what the last step waived is still to come: half of it, for it is one rank's
    assert float(first["total"].max()) <= 8 * 40_000 + 10_000 + 9 * 16
    assert float(first["total"].min()) >= 7 * 40_000


def test_losing_a_daemon_raises_in_training_on_every_rank(tmp_path: Path) -> None:
    first, second = on_each_rank(ddp_ranks.losing_a_daemon, tmp_path)
    assert len(first) == len(second) == 2
    assert all("PeerLost: rank 1" in text for text in first)
    assert "DaemonLost" in second[0]
    assert "killed by SIGKILL" in second[0]


def test_without_a_daemon_all_fall_back_and_say_so(tmp_path: Path) -> None:
    ranks = on_each_rank(ddp_ranks.without_a_daemon, tmp_path, True)
    for rank in ranks:
        [text] = rank["warnings"]
        assert "dlcpd is NOT in use, and gloo averages the gradients" in text
        assert "/nonexistent/dlcpd.sock" in text
        assert rank["session"] is None
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])


def test_without_a_daemon_and_without_consent_all_raise(tmp_path: Path) -> None:
    first, second = on_each_rank(ddp_ranks.without_a_daemon, tmp_path, False)
    assert first["error"].startswith("DaemonUnavailable: rank 1 failed to join")
    assert second["error"].startswith("DaemonUnavailable: no daemon answers at")


def test_a_world_of_one_needs_no_daemon(tmp_path: Path) -> None:
    assert on_each_rank(ddp_ranks.alone, tmp_path, world=1) == [True]


def test_only_a_ddp_model_can_be_registered() -> None:
    with pytest.raises(BadConfig, match="this is a Linear: wrap the model first"):
        ddp.register(nn.Linear(1, 1))  # type: ignore[arg-type]
