"""Presentations of all benchmarks, with measurements as a busy machine leaves them: none, one, of
0 s, and of some ranks, seeds or transports only. Each gives rows, lines and JSON, and no traceback.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.bench import (
    all_reduce,
    codecs,
    collectives,
    engine,
    group_life,
    trace,
    training_rows,
)
from dlcp_lab.bench.cuda import HEADER, rows_of
from dlcp_lab.bench.cuda import cells as cuda_cells
from dlcp_lab.bench.cuda_turns import FIGURES
from dlcp_lab.demo import full, judge, turns
from dlcp_lab.demo.pictures import html
from dlcp_lab.replay import step_rows
from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.pace import paces
from dlcp_lab.report.measured import Rows
from dlcp_lab.report.statistic import Spread
from dlcp_lab.scenarios import (
    ablation,
    drop,
    fairness,
    incast,
    loss,
    priority,
    ps,
    rtt,
    spray,
    uneven,
)
from dlcp_lab.scenarios.job import DLCPD, GLOO, Result
from dlcp_lab.training.traffic_seen import NEWS
from dlcpd.cli.extensions import installed
from dlcpd.cli.output import Output
from dlcpd.contract.errors import PeerLost
from dlcpd.ctl.arguments import parser

TIMES = st.lists(st.sampled_from([0.0, 1e-9, 1e-3, 2.0]), max_size=4)
SCENARIOS: dict[str, ModuleType] = {
    "ablation": ablation,
    "drop": drop,
    "fairness": fairness,
    "incast": incast,
    "loss": loss,
    "priority": priority,
    "ps": ps,
    "rtt": rtt,
    "spray": spray,
    "uneven": uneven,
}


def document(value: Any) -> None:
    """As --json writes it: without NaN and infinity."""
    json.dumps(value, allow_nan=False)


def options(*words: str) -> Any:
    return parser({}, installed()).parse_args(["bench", *words])


def series(times: list[float]) -> dict[str, Any]:
    counts = ("wrong", "sent", "retransmitted", "waived", "reapplied", "segment_size", "headers")
    return {"times": times, **dict.fromkeys(counts, 0)}


@given(ours=TIMES, theirs=TIMES)
def test_all_reduce_and_collectives(ours: list[float], theirs: list[float]) -> None:
    ranks = [{"dlcpd": series(ours), "gloo": series(theirs)}] * 2
    chosen = options("all-reduce")
    rows = all_reduce.rows_of(1 << 20, ranks, chosen)
    cells = rows.render(all_reduce.HEADER, lambda row: all_reduce.cells(row, chosen), left=0)
    assert len(cells.splitlines()) == 3
    assert len(rows) + len(list(rows.reasons())) == 2
    assert all(map(str, (*all_reduce.overhead(rows), *all_reduce.verdicts(rows, chosen))))
    document(rows.document())
    timed = [{name: {**found, "cpu": 1e-3} for name, found in rank.items()} for rank in ranks]
    calls = collectives.rows_of("gather", 1 << 20, timed)
    assert len(calls.render(collectives.HEADER, collectives.cells, left=1).splitlines()) == 3
    assert all(map(str, collectives.verdicts(calls)))
    document(calls.document())


@given(cpu=TIMES, size=st.sampled_from([0, 4096]))
def test_engine(cpu: list[float], size: int) -> None:
    rows = Rows(engine.EngineRow)

    def row() -> engine.EngineRow:
        spread = Spread.of(cpu)
        counts = {"READY": 1.0, "wakes": 2.0} if size else {}
        return engine.EngineRow(
            "broadcast", size, len(cpu), spread, 0, None, 3.0, 0.0, counts, 8896, {}, cpu
        )

    rows.add({"collective": "broadcast", "size": size}, row, ("broadcast", None))
    assert len(rows.render(engine.HEADER, engine.cells, left=1).splitlines()) == 2
    assert len([*rows.reasons(), *engine.lines(rows)]) == 1
    document(rows.document())


@given(on=TIMES, off=TIMES)
def test_trace(on: list[float], off: list[float]) -> None:
    said = list(trace.lines({"off": off, "on": on}))
    assert len(said) == 2
    assert all("an operation" in line or "not measured" in line for line in said)


def training(transport: str, times: list[float]) -> list[dict[str, Any]]:
    """Two ranks."""
    network = {
        "classes": {"bulk": {"sent": len(times), "lost": 0, "marked": 0}},
        "paths": [len(times)],
        "news": dict.fromkeys(NEWS, 0),
    }
    counts = dict.fromkeys(("sent", "retransmitted", "waived", "lost", "reapplied"), 0)
    rank = {
        "task": "digits",
        "transport": transport,
        "seed": 0,
        "score_name": "accuracy",
        "losses": times,
        "times": times,
        "forwards": times,
        "score": 0.9,
        "digest": "aa",
        "books": counts | {"network": network, "held_bytes": 0},
    }
    return [rank, rank]


RUNS = st.lists(TIMES, max_size=2)  # a list of times for each seed that was measured


@given(st.fixed_dictionaries({name: RUNS for name in training_rows.TRANSPORTS}))
def test_trainings(seeds: dict[str, list[list[float]]]) -> None:
    task = {name: [training(name, times) for times in of] for name, of in seeds.items()}
    rows = Rows(training_rows.TrainingRow)
    for name in task:
        same = {key: runs[: len(task[name])] for key, runs in task.items()}
        rows.add(
            {"task": "digits", "transport": name},
            partial(training_rows.row, name, same, []),
        )
    for header, cells in (
        (training_rows.SPEED, training_rows.speed),
        (training_rows.LEARNING, training_rows.learning),
    ):
        assert len(rows.render(header, cells, left=2).splitlines()) == 1 + len(task)
    assert all(map(str, training_rows.honesty(rows)))
    document(rows.document())


@given(seeds=RUNS)
def test_verdicts_of_trainings(seeds: list[list[float]]) -> None:
    task = {name: [training(name, times) for times in seeds] for name in training_rows.TRANSPORTS}
    assert list(training_rows.judge(task))
    rows = Rows(codecs.CodecRow)
    transports = (training_rows.EXACT, training_rows.BOUNDED)
    for name in transports:
        rows.add({"task": "digits", "codec": name}, partial(codecs.row, name, task))
    assert len(rows.render(codecs.HEADER, codecs.cells, left=3).splitlines()) == 3
    document(rows.document())


@given(st.lists(st.fixed_dictionaries({name: TIMES for name in step_rows.SYSTEMS}), max_size=2))
def test_steps(seeds: list[dict[str, list[float]]]) -> None:
    counts = {"sent": 0, "retransmitted": 0, "waived": 0}
    runs = [
        {
            system: [{"times": times, "counts": counts, "digest": "aa"}] * 2
            for system, times in of_seed.items()
        }
        for of_seed in seeds
    ]
    network = NETWORKS["vgg16"]()
    case = step_rows.ReplayedNetwork("vgg16", network, paces(network, 1.0, 1.5), 1.0)
    rows = step_rows.rows("vgg16", runs)
    assert len(rows.render(step_rows.HEADER, step_rows.cells, left=2).splitlines()) == 4
    assert all(map(str, step_rows.honesty(case, rows)))
    assert list(step_rows.judge("vgg16", runs, exact=True))
    document(rows.document())


@settings(deadline=None)  # the pictures are a file of 60 kB
@given(gloo=TIMES, ours=TIMES, fair=st.booleans())
def test_demo(gloo: list[float], ours: list[float], fair: bool) -> None:
    def lane(times: list[float]) -> dict[str, Any]:
        steps = [9.0] * turns.SKIPPED + times
        return {"times": steps, "losses": steps, "score": 0.9, "digest": "aa"}

    books = training("dlcpd", [1.0])[0]["books"]
    rank = {"lanes": {turns.GLOO: lane(gloo), turns.DLCPD: lane(ours)}, "books": books}
    found = turns.Turns([rank, rank], fair=fair)
    width = len(turns.header(found))
    assert [len(row) for row in turns.rows(found)] == [width, width]
    assert turns.answer(found).endswith(".")
    checks = list(turns.judge(found))
    assert html(found, checks, "a fabric")
    document(found.document())


@given(st.fixed_dictionaries({n: TIMES for n in ("gloo", "reference", "exact", "bounded")}))
def test_full_demo(times: dict[str, list[float]]) -> None:
    runs = [training(name, of) for name, of in times.items()]
    assert list(full.tables(runs))
    for trained in judge.by_task(runs):
        assert len(list(judge.judge(trained))) == 5
    tasks = judge.by_task(runs)
    assert all(map(str, (*full.honesty(tasks), *full.other_order(tasks))))


@given(st.lists(st.sampled_from([0.0, 1.0]), max_size=3))
def test_group_life(values: list[float]) -> None:
    runs = [dict.fromkeys((*group_life.TIMES, "peak"), value) for value in values]
    assert len(group_life.lines(dict.fromkeys(group_life.HOW, runs))) == 2


def test_cuda() -> None:
    row = {"model": "m", "transport": "nccl", **dict.fromkeys(FIGURES), "reason": "no NCCL"}
    rows = rows_of([row])
    shown = rows.render(HEADER, cuda_cells, left=2).splitlines()
    assert shown[1].split()[:3] == [
        "m",
        "nccl",
        "not",
    ]
    assert list(rows.reasons()) == ["m nccl: not measured: no NCCL"]


def result(times: list[float], operations: int) -> Result:
    rounds = [[time] * operations for time in times]
    counts = dict.fromkeys(("sent", "retransmitted", "waived", "lost"), 0)
    return Result(rounds, [rounds] * 4, counts, [0.0] if times else [])


@pytest.mark.parametrize("name", SCENARIOS)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_scenarios(name: str, data: st.DataObject) -> None:
    """Each run of a scenario fails, or has some measurements."""
    with pytest.MonkeyPatch.context() as patch:
        for attribute, fake in _fakes(name, lambda: data.draw(TIMES | st.none())).items():
            patch.setattr(SCENARIOS[name], attribute, fake)
        said: list[str] = []
        output = Output(None)
        patch.setattr(output, "line", said.append)
        patch.setattr(output, "progress", lambda _: None)
        patch.setattr(output, "document", document)
        words = [name, "--seeds", "2"]
        assert getattr(SCENARIOS[name], name)(options(*words), output) in (0, 1)
        assert said[0].startswith(f"{name}: ")


def _fakes(name: str, draw: Callable[[], list[float] | None]) -> dict[str, Callable[..., Any]]:
    """Functions of a scenario's module that measure, replaced."""

    def times() -> list[float]:
        found = draw()
        if found is None:
            raise PeerLost("rank 1 on host1 has not answered for 1.0 s")
        return found

    def both(operations: int = 1) -> dict[str, Result]:
        found = times()
        return {DLCPD: result(found, operations), GLOO: result(found, operations)}

    by_scenario: dict[str, dict[str, Callable[..., Any]]] = {
        "ablation": {"_measure": lambda *_: both(3)},
        "drop": {"_measure": lambda *_: result(times(), 1)},
        "fairness": {
            "_shared": lambda *_: (fairness.tcp_share(times(), times()), times()),
            "_of_two_jobs": lambda *_: {0: times(), 2: times()},
        },
        "incast": {"_measure": lambda *_: (both(), 0)},
        "loss": {"_measure": lambda phases, *_: {one.name: both() for one in phases}},
        "priority": {
            "_measure": lambda *_, layers: {"solo": result(times(), 1), "both": result(times(), 2)}
        },
        "ps": {"_measure": lambda *_: {system: times() for system in ps.SYSTEMS}},
        "rtt": {"_measure": lambda options, path, *_: _of_paths(options, path, times())},
        "spray": {
            "_measure": lambda *_: (result(times(), 1), _counters(0), _counters(len(times()))),
            "_over_both": lambda *_: times(),
            "_cut_once": lambda *_: _cut(times()),
        },
        "uneven": {
            "_measure": lambda _, into, *__: _uneven(into, times()),
            "_train": lambda _, trained, *__: _trained(trained, times()),
        },
    }
    return by_scenario[name]


def _of_paths(options: Any, path: rtt.Path, found: list[float]) -> rtt.Results:
    count = len(found)
    return {
        path.name(loss): {
            name: rtt.Measured(found, count, 0, count, int(loss * count)) for name in rtt.CONTENDERS
        }
        for loss in options.losses
    }


def _uneven(into: uneven.UnevenTimes, found: list[float]) -> None:
    for each in (into.gloo, into.direct, into.planned, into.uplink):
        each.extend(found)


def _trained(trained: dict[str, uneven.FsdpSteps], found: list[float]) -> None:
    for each in trained.values():
        for samples in (each.times, each.uplink, each.errors):
            samples.extend(found)


def _cut(found: list[float]) -> tuple[list[float], list[int]]:
    return found, [1] * len(found[1::3])


def _counters(sent: int) -> dict[str, Any]:
    way = type("Way", (), {"sent_bytes": sent})()
    return {f"{leaf}:s{spine}": way for leaf in ("l0", "l1") for spine in range(2)}


def test_a_scenario_of_which_every_run_failed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for attribute, fake in _fakes("drop", lambda: None).items():
        monkeypatch.setattr(drop, attribute, fake)
    file = tmp_path / "drop.json"
    assert drop.drop(options("drop", "--seeds", "1"), Output(str(file))) == 1
    said = capsys.readouterr().out
    lost = "not measured: rank 1 on host1 has not answered for 1.0 s"
    assert f"by magnitude, seed 1: {lost}" in said
    assert "not measured: energy lost per segment lost" in said
    [claim] = json.loads(file.read_text())["claims"]
    assert (claim["value"], claim["not_measured"], claim["holds"]) == (None, "no sample", False)
