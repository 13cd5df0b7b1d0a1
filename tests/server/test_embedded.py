"""An embedded server: shards beside the daemons of the ranks, here threads of one process, start
with `register`, train as a named server does, and end with the job."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore

from dlcp_client import bounded, lifetimes, ps
from dlcp_client.job.rendezvous import Member
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.relay import StoreRelay
from dlcpd.contract.errors import (
    BadConfig,
    BadTensor,
    DlcpError,
    PeerLost,
    RanksDisagree,
    SessionClosed,
)
from tests.server.kit import TIMEOUT, each, served
from tests.server.test_training import MAKERS, STEPS, loss_of, model_of, state

Processes = list[psutil.Process]
Register = Callable[..., ps.PSRegistration]
SHARD = "dlcp_client.server.embedded"


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Register:
    """`ps.register` of the rank `group` of a world of threads, with a store of their own."""
    store = HashStore()

    def member(group: Any, secret: Any, _timeout: float) -> Member:
        rank, world = group
        return Member(store, rank, world, secret)

    monkeypatch.setattr("dlcp_client.ps.joining.member_of_launch", member)
    monkeypatch.delenv("DLCPD_STORE", raising=False)
    return lambda *args, **more: ps.register(*args, **{"timeout": TIMEOUT, **more})


def processes() -> Processes:
    """Daemons, engines and shards of this process."""
    return [one for one in psutil.Process().children(recursive=True) if "dlcp" in line_of(one)]


def shards() -> Processes:
    return [one for one in processes() if SHARD in line_of(one)]


def line_of(process: psutil.Process) -> str:
    """Its command line; "": it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture
def before(host_daemon: HostDaemon) -> Processes:
    """Processes that other tests of the module use. The command line of a daemon that has just
    started may not be its own yet."""
    daemon = host_daemon._daemon  # noqa: SLF001  # nothing else tells
    return [*processes(), *([psutil.Process(daemon.pid)] if daemon else [])]


def more_than(before: Processes) -> Processes:
    known = {one.pid for one in before}
    return [one for one in processes() if not known & {one.pid, parent_of(one)}]


def parent_of(process: psutil.Process) -> int:
    """0: it has ended."""
    try:
        return int(process.ppid())
    except psutil.Error:
        return 0


def nothing_is_left(before: Processes) -> None:
    _, alive = psutil.wait_procs(more_than(before), timeout=TIMEOUT)
    assert not alive
    until = time.monotonic() + TIMEOUT
    while any(thread.name == "dlcp-store-relay" for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)


def train(handle: ps.PSRegistration, model: nn.Module, optimizer: Any, rank: int) -> torch.Tensor:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    assert handle.version == handle.steps == STEPS and not handle.skipped
    assert f"{STEPS} steps" in handle.summary()
    handle.close()
    handle.close()
    return state(model)


def states_of(world: int, name: str, register: Register, **more: Any) -> list[torch.Tensor]:
    def work(rank: int) -> torch.Tensor:
        model = model_of(rank)  # those of worker 0 become those of all
        optimizer = MAKERS[name](model.parameters())
        handle = register(model, optimizer, **more, **who(rank, world, more))
        return train(handle, model, optimizer, rank)

    return each(world, work)


def who(rank: int, world: int, more: dict[str, Any]) -> dict[str, Any]:
    named = "store" in more
    return {"rank": rank, "world_size": world} if named else {"group": (rank, world)}


def average_of(world: int, name: str) -> torch.Tensor:
    """As DDP does: the mean of the ranks' gradients, and one optimizer."""
    model = model_of(0)
    optimizer = MAKERS[name](model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 4, 0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world):
            (loss_of(model, step, rank) / world).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return state(model)


@pytest.mark.parametrize(
    ("world", "share", "name"), [(2, "1", "adamw"), (3, "0", "momentum")],
    ids=["2-ranks-one-shard", "3-ranks-of-uneven-shards"]
)  # fmt: skip
@pytest.mark.timeout(240)  # seconds; up to nine processes start, on cores that others use as well
def test_training_is_bit_for_bit_that_of_a_named_server(  # noqa: PLR0917  # fixtures
    world: int,
    share: str,
    name: str,
    tmp_path: Path,
    host_daemon: HostDaemon,
    register: Register,
    before: Processes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(tmp_path, host_daemon, shards=2) as found:
        named = states_of(world, name, register, **found)
    monkeypatch.setenv("DLCPD_SHARE", share)
    embedded = states_of(world, name, register)
    nothing_is_left(before)
    for one in embedded:
        assert torch.equal(one, named[0])
    assert (embedded[0] - average_of(world, name)).abs().max() <= 1e-6


@pytest.mark.timeout(240)
def test_snapshots_keep_the_state_for_the_next_job(
    tmp_path: Path, register: Register, before: Processes
) -> None:
    """Adam's state is on the server: a job that goes on takes the steps that one job would."""

    def work(job: str, steps: range, **more: Any) -> torch.Tensor:
        model = model_of(0)
        optimizer = MAKERS["adam"](model.parameters())
        with register(
            model, optimizer, group=(0, 1), snapshots=tmp_path / "kept", job=job, **more
        ) as handle:
            assert handle.version == steps.start
            for step in steps:
                optimizer.zero_grad()
                loss_of(model, step, 0).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            assert len(shards()) == 1
        assert not more_than(before), "close() of the only worker waits for them"
        return state(model)

    work("first", range(3))
    with pytest.raises(BadConfig, match=r"serves job 'first' \(0 workers, version 3\)"):
        work("second", range(3, 6))
    assert not more_than(before)
    found = work("second", range(3, 6), resume=True)
    model = model_of(0)
    optimizer = MAKERS["adam"](model.parameters())
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, step, 0).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (found - state(model)).abs().max() <= 1e-6


@pytest.mark.timeout(240)
def test_the_hosts_daemon_has_one_shard_beside_it(
    host_daemon: HostDaemon, register: Register, before: Processes
) -> None:

    def work(rank: int) -> int:
        model = model_of(rank)
        optimizer = MAKERS["sgd"](model.parameters())
        handle = register(
            model, optimizer, bounded(0.01), group=(rank, 2), socket=host_daemon.socket
        )
        started = len(more_than(before))
        train(handle, model, optimizer, rank)
        return started

    assert each(2, work) == [1, 1]
    nothing_is_left(before)


@pytest.mark.timeout(240)
def test_who_closes_first_leaves_its_shard_and_daemon_to_the_others(
    register: Register, before: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a job's secret, which the shards need to know their workers."""
    monkeypatch.setenv("DLCPD_SHARE", "0")
    monkeypatch.setenv("DLCPD_JOB_SECRET", "0123456789abcdef" * 2)
    closed = threading.Event()

    def work(rank: int) -> int:
        model = model_of(rank)
        optimizer = MAKERS["sgd"](model.parameters())
        handle = register(model, optimizer, group=(rank, 2))
        loss_of(model, 0, rank).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if rank == 0:
            handle.close()
            closed.set()
            return handle.version
        assert closed.wait(TIMEOUT)
        for _ in range(3):
            optimizer.step()
        assert len(more_than(before)) == 6, "two daemons with engines, and two shards"
        handle.close()
        return handle.version

    assert each(2, work) == [1, 4]
    nothing_is_left(before)


@pytest.mark.timeout(240)
def test_a_fork_holds_nothing_and_cannot_step(register: Register, before: Processes) -> None:
    model = model_of(0)
    optimizer = MAKERS["sgd"](model.parameters())
    handle = register(model, optimizer, group=(0, 1))
    sockets = {os.readlink(f"/proc/self/fd/{fd}") for fd in relayed()}
    child = os.fork()
    if child == 0:
        code = 1
        try:
            held = {_link(fd) for fd in os.listdir("/proc/self/fd")}
            handle.step()
        except SessionClosed:
            code = 2 if sockets & held else 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    loss_of(model, 0, 0).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    handle.close()
    assert not more_than(before)


def relayed() -> list[int]:
    """Descriptors by which shards see that this process lives."""
    relays = [one for one in lifetimes._open if isinstance(one, StoreRelay)]  # noqa: SLF001
    assert relays
    return [one._lines.socket.fileno() for one in relays]  # noqa: SLF001


def _link(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""


def refusals() -> list[tuple[dict[str, Any], Callable[[], Any], type[DlcpError], str]]:
    """Options of `register`, model, the error of the rank that made it, and of the other."""
    linear, double = nn.Linear(2, 2), nn.Linear(2, 2).double()
    return [
        ({}, lambda: (linear, torch.optim.Adagrad(linear.parameters())), BadConfig, "Adagrad"),
        ({}, lambda: (double, torch.optim.SGD(double.parameters(), 0.1)), BadTensor, "float64"),
        ({"staleness": -1}, lambda: (linear, ps.sgd(0.1)), BadConfig, "staleness -1"),
        ({"warmup_steps": -1}, lambda: (linear, ps.sgd(0.1)), BadConfig, "warmup_steps=-1"),
        ({"resume": True}, lambda: (linear, ps.sgd(0.1)), BadConfig, "same snapshots="),
        (
            {"socket": "/no/daemon", "config": "x.toml"},
            lambda: (linear, ps.sgd(0.1)),
            BadConfig,
            "applies to a private daemon",
        ),
    ]


@pytest.mark.parametrize("number", range(len(refusals())))
def test_what_one_rank_is_refused_for_all_are_told_at_once(
    number: int, register: Register, before: Processes
) -> None:
    options, make, error, text = refusals()[number]

    def work(rank: int) -> str:
        model, optimizer = make() if rank else (nn.Linear(2, 2), ps.sgd(0.1))
        with pytest.raises(error, match=text) as told:
            register(model, optimizer, group=(rank, 2), **(options if rank else {}))
        return str(told.value)

    began = time.monotonic()
    first, _ = each(2, work)
    assert first.startswith("rank 1 failed to join: ")
    assert time.monotonic() - began < TIMEOUT / 2, "nobody waited for the other"
    assert not more_than(before)


@pytest.mark.timeout(240)
def test_a_rank_that_agrees_too_little_ends_the_start_for_all(
    tmp_path: Path, register: Register, before: Processes
) -> None:
    """Terms that shards compare, a daemon and a shard that cannot start, a rank that stays away."""
    (tmp_path / "bad.toml").write_text("[daemon]\nhots = 1\n")
    cases: list[tuple[dict[str, Any], type[DlcpError], str]] = [
        (
            {"staleness": 3},
            RanksDisagree,
            "staleness (3, and this server has -1|-1, and this server has 3)",
        ),
        ({"config": tmp_path / "bad.toml"}, DlcpError, "hots"),
    ]
    for options, error, text in cases:

        def work(rank: int, options: Any = options, error: Any = error, text: str = text) -> None:
            with pytest.raises(error, match=text):
                register(nn.Linear(3, 3), ps.sgd(0.1), group=(rank, 2), **(options if rank else {}))

        each(2, work)
        nothing_is_left(before)
    with pytest.raises(PeerLost, match=r"and rank 1 of 2 ranks did not write"):
        register(nn.Linear(3, 3), ps.sgd(0.1), group=(0, 2), timeout=0.3)
    assert not more_than(before)


def test_options_of_one_kind_of_server_are_not_taken_by_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(2, 2)
    of_named: list[dict[str, Any]] = [{"rank": 0}, {"world_size": 1}, {"takeover": 5.0}]
    of_embedded: list[dict[str, Any]] = [{"group": object()}, {"snapshots": tmp_path}]
    monkeypatch.delenv("DLCPD_STORE", raising=False)
    for options in of_named:
        with pytest.raises(BadConfig, match=f"{next(iter(options))}= needs a named server"):
            ps.register(model, ps.sgd(0.1), **options)
    for options in of_embedded:
        for named in ({"server": "x"}, {"store": tmp_path}):
            with pytest.raises(BadConfig, match="needs an embedded server"):
                ps.register(model, ps.sgd(0.1), **options, **named)
    monkeypatch.setenv("DLCPD_STORE", str(tmp_path))
    with pytest.raises(BadConfig, match="group= needs an embedded server"):
        ps.register(model, ps.sgd(0.1), group=object())


def test_ranks_need_a_way_to_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(2, 2)
    for name in ("DLCPD_STORE", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadConfig, match=r"find each other.* RANK expected.*torchrun"):
        ps.register(model, ps.sgd(0.1))
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(BadConfig, match="WORLD_SIZE expected"):
        ps.register(model, ps.sgd(0.1))
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(BadConfig, match="find each other"):
        ps.register(model, ps.sgd(0.1))
    with pytest.raises(
        BadConfig, match="configuration of the server names"
    ):  # a named one without a store
        ps.register(model, ps.sgd(0.1), server="x", rank=0, world_size=1)
    for group in (7, dist.GroupMember.NON_GROUP_MEMBER):
        with pytest.raises(BadConfig, match=r"a torch.distributed group that contains this rank"):
            ps.register(model, ps.sgd(0.1), group=group)


def test_a_group_of_the_training_is_whose_ranks_are_the_workers(
    before: Processes,
) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        for group in (None, dist.new_group([0])):
            model = nn.Linear(1, 1, bias=False)
            optimizer = torch.optim.SGD(model.parameters(), 0.5)
            with ps.register(model, optimizer, group=group):
                weight = model.weight.item()
                model.weight.grad = torch.ones_like(model.weight)
                optimizer.step()
            assert model.weight.item() == pytest.approx(weight - 0.5)
    finally:
        dist.destroy_process_group()
    assert not more_than(before)
