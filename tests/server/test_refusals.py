"""Bad input has one clear error, at whoever made it, and nobody else is the worse for it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dlcp_client import ps
from dlcp_client.job.secret import JobSecret
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.participation import fingerprint
from dlcp_client.ps.tensors import ModelTensors
from dlcp_client.server.config import parse
from dlcp_client.server.main import main
from dlcpd.contract.errors import (
    BadConfig,
    BadSnapshot,
    BadTensor,
    DlcpError,
    NotAuthorised,
    NotInitialised,
    RanksDisagree,
    ServerLost,
)
from tests.server.kit import each, served, text_of

RATE = ps.sgd(1.0)
ONE = [ps.NamedTensor("w", (4,))]


def array(value: float) -> Any:
    return np.full(4, value, np.float32)


def test_workers_that_do_not_fit_are_refused_and_the_others_go_on(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    def joins(**changes: Any) -> Callable[[], Any]:
        options = {"rank": 1, "world_size": 1, **found, **changes}
        spec, tensors = options.pop("optimizer", RATE), options.pop("tensors", ONE)
        return lambda: ps.connect(tensors, spec, **options)

    refused: list[tuple[Callable[[], Any], type[DlcpError], str]] = []
    with served(tmp_path, host_daemon) as found:
        worker = ps.connect(ONE, RATE, rank=0, world_size=1, **found)
        with pytest.raises(NotInitialised, match="no parameters yet"):
            worker.pull([array(0)])
        with pytest.raises(NotInitialised):
            worker.push([array(0)], RATE.groups)
        worker.initialise([array(0)])
        refused = [
            (joins(tensors=[ps.NamedTensor("w", (2, 2))]), BadSnapshot, "the models differ"),
            (joins(tensors=[ps.NamedTensor("w", (5,))]), BadSnapshot, "the models differ"),
            (
                joins(tensors=[ps.NamedTensor("w", (4,), dtype="float16")]),
                BadSnapshot,
                "the models differ",
            ),
            (
                joins(optimizer=ps.adam()),
                RanksDisagree,
                "optimizer 'adam', and this server has 'sgd'",
            ),
            (joins(staleness=4), RanksDisagree, "staleness 4"),
            (joins(job="another"), BadConfig, "serves job 'test'"),
            (joins(rank=0), BadConfig, "two jobs may use the same server name"),
            (joins(rank=300), BadConfig, "ranks are"),
            (joins(staleness=-1), BadConfig, "staleness -1"),
            (joins(server="nobody", timeout=0.2), ServerLost, "no server 'nobody'"),
        ]
        for call, error, text in refused:
            with pytest.raises(error, match=text):
                call()
        into = [array(0)]
        worker.push_pull([array(1)], into, RATE.groups)
        assert into[0].tolist() == [-1.0] * 4
        worker.close()


def test_a_gradient_that_is_not_finite_skips_the_version_for_all(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    def work(rank: int) -> tuple[bool, list[float], bool, list[float]]:
        client = ps.connect(TWO, RATE, rank=rank, world_size=2, **found)
        client.initialise([array(0), array(0)])
        into = [array(0), array(0)]
        bad = [array(1), array(np.nan if rank else 1)]  # on one shard of two
        first = client.push_pull(bad, into, RATE.groups), into[0].tolist()
        second = client.push_pull([array(1), None], into, RATE.groups), into[0].tolist()
        client.close()
        return *first, *second

    TWO = [ps.NamedTensor("v", (4,)), ps.NamedTensor("w", (4,))]
    with served(tmp_path, host_daemon, shards=2) as found:
        for found_by in each(2, work):
            assert found_by == (False, [0.0] * 4, True, [-1.0] * 4)


def test_a_model_of_another_dtype_is_another_model() -> None:
    models = nn.Linear(2, 2), nn.Linear(2, 2).half(), nn.Linear(2, 2).bfloat16()
    assert len({fingerprint(ModelTensors(model, RATE).named) for model in models}) == 3


def test_what_no_server_can_train_is_refused_before_anything_is_opened() -> None:
    def sgd(model: nn.Module, **more: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1, **more)

    linear = nn.Linear(2, 2)
    double = nn.Linear(2, 2).double()
    cases: list[tuple[Any, Any, type[DlcpError], str]] = [
        ("model", RATE, BadConfig, "nn.Module"),
        (linear, torch.optim.Adagrad(linear.parameters()), BadConfig, "optimizer Adagrad"),
        (linear, sgd(linear, maximize=True), BadConfig, "maximize"),
        (linear, torch.optim.Adam(linear.parameters(), amsgrad=True), BadConfig, "amsgrad"),
        (double, sgd(double), BadTensor, "float64"),
        (linear, sgd(nn.Linear(2, 2)), BadConfig, "no trainable parameter"),
    ]
    for model, optimizer, error, text in cases:
        with pytest.raises(error, match=text):
            ps.register(model, optimizer, rank=0, world_size=1, store="nowhere")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "one table"),
        ("[server]\nname = 'x'\nstore = 's'\nsnapshots = 'p'", "shards is missing"),
        ("[server]\nname = 'x'\nshards = 0\nstore = 's'\nsnapshots = 'p'", "shards = 0"),
        ("[server]\nname = 'x'\nshards = 1\nstore = 's'\nsnapshots = 'p'\nserve = []", "serve"),
        ("[server]\nname = 'x'\nshards = 1\nstore = 's'\nsnapshots = 'p'\nserve = [1]", "serve"),
        ("[server]\nname = 'x'\nshards = 1\nstore = 's'\nsnapshots = 'p'\nport = 7", "no key port"),
        ("[server]\nname = 3", "shards is missing"),
        ("[server", "Expected"),
    ],
)
def test_a_configuration_that_is_wrong_is_named(text: str, said: str) -> None:
    with pytest.raises(BadConfig, match=said):
        parse(text, "file.toml")


def test_the_command_says_what_is_wrong(
    tmp_path: Path, host_daemon: HostDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.toml"
    assert main(["--config", str(file)]) == 2
    file.write_text(text_of(tmp_path, shards=3, socket=host_daemon.socket))
    with served(tmp_path, host_daemon, shards=2):
        assert main(["--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert "cannot be read: No such file" in said and "another server process" in said


def test_a_snapshots_folder_that_is_damaged_is_refused(
    tmp_path: Path, host_daemon: HostDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(tmp_path, host_daemon) as found:
        worker = ps.connect(ONE, RATE, rank=0, world_size=1, **found)
        worker.initialise([array(0)])
        worker.close()
    [snapshot] = (tmp_path / "snapshots" / "0").glob("snapshot-*")
    snapshot.write_bytes(b"x" * 100)
    file = tmp_path / "server.toml"
    file.write_text(text_of(tmp_path, socket=host_daemon.socket))
    assert main(["--config", str(file)]) == 1
    assert "every snapshot is invalid" in capsys.readouterr().err


def test_processes_that_disagree_on_the_shards_are_told(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon, shards=2) as found:
        directory = Directory(FileStore(found["store"]), "demo")
    with pytest.raises(BadConfig, match="has 2 shards in this store"):
        directory.announce(2, 3)


def test_who_has_not_the_secret_of_the_job_is_not_let_in(
    tmp_path: Path, host_daemon: HostDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "0123456789abcdef" * 2
    with served(tmp_path, host_daemon, JobSecret(text.encode(), "test")) as found:
        with pytest.raises(NotAuthorised):
            ps.connect(ONE, RATE, rank=0, world_size=1, **found)
        monkeypatch.setenv("DLCPD_JOB_SECRET", text)
        worker = ps.connect(ONE, RATE, rank=0, world_size=1, **found)
        worker.initialise([array(1)])
        into = [array(0)]
        worker.pull(into)
        assert into[0].tolist() == [1.0] * 4
        worker.close()


def test_neither_server_nor_numpy_workers_need_torch() -> None:
    code = "import sys, dlcp_client.ps, dlcp_client.server.main; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
