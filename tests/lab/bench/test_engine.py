"""Two engines in this process: all collectives are right, and failures are rows without figures."""

import argparse
import gc
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp_lab.bench import engine as bench
from dlcp_lab.bench import priority
from dlcp_lab.bench.engine_host import EngineHost
from dlcp_lab.bench.engine_pair import EnginePair, engine_pair
from dlcp_lab.bench.engine_task import ITEM, NAMES, RANKS, ROOT, EngineTask
from dlcp_lab.report.statistic import NotMeasured
from dlcpd.cli.extensions import installed
from dlcpd.contract.collectives import COLLECTIVES
from dlcpd.contract.errors import AddressUnavailable, BadConfig
from dlcpd.ctl.arguments import parser
from dlcpd.ctl.main import main
from dlcpd.io import commands
from dlcpd.io.datapath.choices import NUMPY
from dlcpd.io.datapath.library import installed as compiled_is_installed
from dlcpd.io.engine import Engine
from tests.descriptors import open_descriptors

PATIENCE = 20.0


def options(*words: str) -> argparse.Namespace:
    line = ["bench", "engine", "--repeat", "2", "--warmup", "1", *words]
    return parser({}, installed()).parse_args(line)


def measured(task: EngineTask, *words: str) -> bench.EngineRow:
    chosen = options(*words)
    return bench.measured(task, bench.setup_of(chosen), chosen)


def result(folder: Path, *words: str) -> tuple[int, Any]:
    file = folder / "result.json"
    code = main(["bench", "engine", "--repeat", "2", "--json", str(file), *words])
    return code, json.loads(file.read_text())


# --- requests and results ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 4, 100, 4096])
def test_requests_fit_the_table_of_collectives(name: str, size: int) -> None:
    task = EngineTask(name, size)
    for rank in range(RANKS):
        ask = task.request(rank, 1, 0.0)
        last = max(ask.input + ask.input_count * ITEM, ask.output + ask.output_count * ITEM)
        assert last <= task.arena_bytes
        assert COLLECTIVES[name].by_range or ask.input_count * ITEM <= ask.output
    assert [len(each) for each in task.inputs()] == [
        task.request(rank, 1, 0.0).input_count for rank in range(RANKS)
    ]


def test_wrong_elements_are_counted() -> None:
    task = EngineTask("all_gather", 64)
    inputs = task.inputs()
    good = np.concatenate(inputs)
    assert task.wrong(inputs, 1, good) == 0
    good[3] += 1
    good[9] = np.nan
    assert task.wrong(inputs, 1, good) == 2
    gather = EngineTask("gather", 64)
    assert gather.wrong(gather.inputs(), 1 - ROOT, np.zeros(0, np.float32)) == 0


# --- engines -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_every_collective(name: str) -> None:
    row = measured(EngineTask(name, 0 if name == "barrier" else 300_000))
    assert (row.operations, row.wrong) == (2, 0)
    assert row.cpu.p50 > 0
    assert row.effort["wakes"] > 0
    assert row.effort["READY"] > 0
    assert row.python_calls
    assert row.c_calls
    assert bool(row.data_bytes) == (name != "barrier")


@pytest.mark.parametrize(
    "words",
    [
        ("--checksums", "off"),
        ("--set", 'data_path="numpy"'),
        ("--set", "segment_size=1408", "--set", "entropy=2"),
        ("--set", "offload=false"),
    ],
)
def test_every_configuration(words: tuple[str, ...]) -> None:
    row = measured(EngineTask("all_reduce", 300_000), *words)
    assert row.wrong == 0
    assert row.segment_size == (1408 if "entropy=2" in words else 8896)
    assert row.features["gso"] == ("offload=false" not in words)
    if 'data_path="numpy"' in words or not compiled_is_installed():
        assert row.features["data_path"] == NUMPY


def test_datagrams_have_checksums_unless_these_are_off() -> None:
    assert bench.setup_of(options()).keyed
    off = bench.setup_of(options("--checksums", "off"))
    assert (off.keyed, off.protection) == (False, "checksums off")


def test_nothing_is_left_behind() -> None:
    task = EngineTask("all_reduce", 4096)
    measured(task)
    before, collector = open_descriptors(), (gc.get_threshold(), gc.get_freeze_count())
    measured(task)
    assert open_descriptors() == before
    assert (gc.get_threshold(), gc.get_freeze_count()) == collector
    assert "unmapping" not in {thread.name for thread in threading.enumerate()}


def test_a_step_is_one_wake_up_and_run_ends_with_stop() -> None:
    ours, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    setup = bench.setup_of(options())
    with ours, its_end:
        made = EngineHost(setup.configs[0])
        made.tell(commands.ReportRequest(0))
        made.step()
        assert made.engine.endpoint.effort["wakes"] == 1
        assert [event.last for event in made.events()][-1]
        made.tell(commands.Stop(0.0))
        made.engine.run()
        assert made.engine.endpoint.effort["wakes"] == 2
        made.close()


# --- what fails ----------------------------------------------------------------------------


def test_an_operation_that_does_not_end_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    setup, task = bench.setup_of(options()), EngineTask("all_reduce", 4096)
    with engine_pair(
        setup.configs, task.arena_bytes, time.monotonic() + PATIENCE, keyed=True
    ) as pair:
        requests = [task.request(rank, 1, time.monotonic()) for rank in range(RANKS)]
        monkeypatch.setattr(pair.hosts[1], "submit", lambda _: None)
        with pytest.raises(NotMeasured, match="did not finish in time"):
            pair.operate(requests, time.monotonic() + 0.05)


def test_a_failed_operation_names_its_reason() -> None:
    setup, task = bench.setup_of(options()), EngineTask("all_reduce", 4096)
    with engine_pair(setup.configs, 1 << 16, time.monotonic() + PATIENCE, keyed=True) as pair:
        requests = [task.request(rank, 1, time.monotonic()) for rank in range(RANKS)]
        requests[0].output_count = 1
        with pytest.raises(NotMeasured, match="host0: bad_message"):
            pair.operate(requests, time.monotonic() + PATIENCE)


def test_an_engine_that_ends_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> None:
        raise ValueError("a bug made on purpose")

    monkeypatch.setattr(Engine, "_tell_outcomes", broken)
    monkeypatch.setattr(bench, "patience", lambda _: 0.2)
    with pytest.raises(NotMeasured):
        measured(EngineTask("all_reduce", 4096))


@pytest.mark.parametrize("step", [2, 5, 8, 12])
def test_an_engine_that_ends_at_any_time_leaves_no_socket(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, orderly, before = 0, EngineHost.step, open_descriptors()

    def ends(host: EngineHost) -> None:
        nonlocal steps
        steps += 1
        if steps >= step:
            raise NotMeasured("a failure made on purpose")
        orderly(host)

    monkeypatch.setattr(EngineHost, "step", ends)
    with pytest.raises(NotMeasured, match="on purpose"):
        measured(EngineTask("all_reduce", 4096))
    gc.collect()  # a socket that is open raises here
    until = time.monotonic() + PATIENCE
    while open_descriptors() > before and time.monotonic() < until:
        time.sleep(0.01)  # the arenas are unmapped in a thread
    assert open_descriptors() <= before  # those of earlier tests may be gone


def test_sizes_that_fail_are_rows_without_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(pair: EnginePair, task: EngineTask) -> float:
        if task.size == 8192:
            raise NotMeasured("the engines did not finish in time")
        return pair.operate(
            [task.request(rank, pair.submitted + 1, 0.0) for rank in range(RANKS)],
            time.monotonic() + PATIENCE,
        )

    monkeypatch.setattr(bench, "_one", fails)
    code, document = result(tmp_path, "--sizes", "4K,8K")
    assert code == 0
    good, bad = document["rows"]
    assert good["wrong"] == 0
    assert (bad["size"], bad["cpu"]) == (8192, None)
    assert bad["not_measured"] == "the engines did not finish in time"
    assert "all_reduce 8K: not measured: the engines did not finish" in capsys.readouterr().out


def test_a_machine_without_the_address_or_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ADDRESSES", ("127.0.0.1", "192.0.2.1"))
    with pytest.raises(AddressUnavailable):
        measured(EngineTask("all_reduce", 4096))

    def refused(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("dlcp_lab.bench.engine_host._pair", refused)
    with pytest.raises(NotMeasured, match="Too many open files"):
        measured(EngineTask("all_reduce", 4096))


def test_a_wrong_result_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(EngineTask, "wrong", lambda *_: 3)
    code, document = result(tmp_path, "--sizes", "4K")
    assert code == 1
    assert document["rows"][0]["wrong"] == 6
    assert "WRONG RESULT of all_reduce 4K: 6 elements" in capsys.readouterr().out


def test_no_operation_begins_after_the_time_of_a_measurement() -> None:
    setup, chosen = bench.setup_of(options()), options("--repeat", "50")
    with engine_pair(setup.configs, 1 << 16, time.monotonic() + PATIENCE, keyed=True) as pair:
        row = bench._row(pair, EngineTask("all_reduce", 4096), chosen, 0.0)  # noqa: SLF001  # no time is left
    assert (row.operations, row.python_calls) == (1, None)
    assert bench.cells(row)[8:10] == [None, None]


def test_the_priority_is_raised_meanwhile_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda _which, _who, value: set_to.append(value))
    monkeypatch.setattr(priority, "_GROUP", tmp_path / "autogroup")
    priority._GROUP.write_text("/autogroup-7 nice 3\n")  # noqa: SLF001  # stands for the kernel's
    with priority.highest_priority():
        assert priority._GROUP.read_text() == "-20"  # noqa: SLF001  # likewise
    assert set_to == [-20, os.getpriority(os.PRIO_PROCESS, 0)]
    assert priority._GROUP.read_text() == "3"  # noqa: SLF001  # likewise

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", refused)
    assert main(["bench", "engine", "--priority"]) == 2
    assert capsys.readouterr().err == (
        "dlcpctl: --priority needs root or CAP_SYS_NICE: Permission denied\n"
    )


def test_too_large_a_size_is_refused() -> None:
    with pytest.raises(BadConfig, match="--sizes: 1G is too much: at most 256M"):
        bench.setup_of(options("--sizes", "4K,1G"))
