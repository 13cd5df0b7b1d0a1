"""Programs that two ranks tune in their own runs, over live daemons."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from dlcp_client import Session
from dlcp_client.auto.turns import TURN
from dlcp_client.fused import language as fl
from dlcp_client.fused.language.tuning.measuring import WINDOW
from dlcp_client.fused.language.tuning.results import Result
from dlcpd.contract.errors import ArenaFull, BadConfig, RanksDisagree
from tests.client.real import connected, each_rank
from tests.language.test_lowering import LR, on_ranks

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("one_thread")]
COUNT = 5_001
ADAM = fl.optimizers.adam(shape=(COUNT,))
COMPARED = 3 * 2 * TURN  # runs: as written, on slices, and one operation by one kernel


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    found = connected()
    yield found
    each_rank(lambda rank: found[rank].close())


def gradient(step: int, rank: int) -> Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(10 * step + rank))


def trained(group: Any, rank: int, folder: Path, steps: int) -> tuple[fl.TunedProgram, Tensor]:
    tuned = fl.tune(ADAM, group, kernel="eager", folder=folder)
    w = torch.ones(COUNT)
    for step in range(1, steps + 1):
        t = torch.tensor(float(step), dtype=torch.double)
        [found] = tuned(g=gradient(step, rank), w=w, t=t, lr=LR)
        assert torch.equal(found, w)
    return tuned, w


def expected(steps: int) -> dict[str, Any]:
    held: dict[str, Any] = {"w": torch.ones(COUNT), "m": torch.zeros(COUNT)}
    held["v"] = torch.zeros(COUNT)
    for step in range(1, steps + 1):
        t = torch.tensor(float(step), dtype=torch.double)
        g = [gradient(step, rank) for rank in range(2)]
        held |= fl.simulate(ADAM, {**held, "g": g, "t": t, "lr": LR}, 2).updated
    return held


def test_a_second_start_measures_nothing(
    sessions: list[Session], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All ranks choose alike; weights and state are those of one schedule, to the bit, though
    schedules change every few steps."""
    steps = COMPARED + 3
    right = expected(steps)

    def first(group: Any, rank: int) -> str:
        tuned, w = trained(group, rank, tmp_path, steps)
        assert torch.equal(w, right["w"])
        assert torch.equal(tuned.state("m"), right["m"])
        assert torch.equal(tuned.state("v"), right["v"])
        assert tuned.measured == 1 + COMPARED
        assert sorted(bool(row.measured) for row in tuned.rows) == [True] * 3
        assert f"{tuned.chosen} " in tuned.explain()
        assert "chosen" in tuned.explain()
        return tuned.chosen

    def second(group: Any, rank: int) -> str:
        tuned, w = trained(group, rank, tmp_path, WINDOW)  # the next run compares times
        assert tuned.measured == 0
        assert torch.equal(w, expected(WINDOW)["w"])
        assert "chosen" in tuned.explain()
        return tuned.chosen

    with caplog.at_level(logging.INFO, "dlcp_client"):
        one = on_ranks(sessions, first)
        assert on_ranks(sessions, second) == one == [one[0]] * 2
    said = [line.getMessage() for line in caplog.records if " on 2 ranks: " in line.getMessage()]
    assert sum("measured as well: " in line for line in said) == 2, "once on each rank"
    assert sum(line.endswith("from an earlier job") for line in said) == 2


def test_a_changed_link_is_noticed_and_measured_again(
    sessions: list[Session], tmp_path: Path
) -> None:
    """A result says that runs took a thousandth of what they take now."""
    on_ranks(sessions, lambda group, rank: trained(group, rank, tmp_path, COMPARED + 1)[0].chosen)
    [file] = tmp_path.iterdir()
    kept = msgspec.json.decode(file.read_bytes(), type=Result)
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, seconds=1e-6)))

    def rank(group: Any, number: int) -> tuple[int, int]:
        before, _ = trained(group, number, tmp_path, WINDOW)
        after, _ = trained(group, number, tmp_path, WINDOW + 1 + COMPARED + 2)
        return before.measured, after.measured

    assert on_ranks(sessions, rank) == [(0, 1 + COMPARED)] * 2
    again = msgspec.json.decode(file.read_bytes(), type=Result)
    assert again.seconds > 1e-5


def test_a_result_holds_for_links_of_about_its_rate(
    sessions: list[Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the daemons of two hosts knew the rate; 0: they do not."""

    def measured(bps: int, steps: int = 1) -> list[int]:
        for session in sessions:
            rows = [{"session": -1, "least_bps": 1}, {"session": session.number, "least_bps": bps}]
            monkeypatch.setattr(session, "hosts", 2)
            monkeypatch.setattr(session, "status", lambda rows=rows: {"sessions": rows})
        return on_ranks(
            sessions, lambda group, rank: trained(group, rank, tmp_path, steps)[0].measured
        )

    assert measured(10**9, COMPARED + 1) == [1 + COMPARED] * 2
    assert measured(930 * 10**6) == [0, 0]
    assert measured(10**8) == measured(0) == [2, 2]


def test_a_damaged_result_is_measured_anew(
    sessions: list[Session], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_ranks(sessions, lambda group, rank: trained(group, rank, tmp_path, COMPARED + 1)[0].chosen)
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    measured = on_ranks(sessions, lambda group, rank: trained(group, rank, tmp_path, 1)[0].measured)
    assert measured == [2, 2]
    assert f"{file} is ignored, and measured anew" in caplog.text


def test_an_epilogue_keeps_its_result_in_each_schedule(
    sessions: list[Session], tmp_path: Path
) -> None:
    @fl.program(x=fl.local, w=fl.replicated, bias=fl.replicated)
    def layer(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return fl.all_reduce(x @ w) + bias

    shapes: Any = {"x": (32, 8), "w": (8, 16), "bias": (16,)}
    program = layer(**shapes)
    given = {name: torch.ones(shape) for name, shape in shapes.items()}

    def rank(group: Any, number: int) -> set[int]:
        tuned = fl.tune(program, group, kernel="eager", folder=tmp_path)
        sums = [tuned(**given | {"x": given["x"] * (number + 1)})[0] for _ in range(50)]
        assert all(torch.equal(one, torch.full((32, 16), 25.0)) for one in sums)
        assert not tuned.state_bytes
        return {len(tuned.rows)}

    assert on_ranks(sessions, rank) == [{7}] * 2


def test_mistakes_are_named(sessions: list[Session], tmp_path: Path) -> None:
    other = fl.optimizers.adam(shape=(COUNT + 1,))
    stage = fl.program(x=fl.replicated)(_stage)(shape=(3,))

    def rank(group: Any, number: int) -> None:
        with pytest.raises(RanksDisagree, match=r"rank 1 of the group has another program"):
            fl.tune(other if number else ADAM, group, folder=tmp_path)
        with pytest.raises(RanksDisagree, match=r"or another kernel= \((eager|torch)\)"):
            fl.tune(ADAM, group, kernel="eager" if number else "torch", folder=tmp_path)
        with pytest.raises(BadConfig, match=r"folder=5 is not valid: give a path"):
            fl.tune(ADAM, group, folder=5)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(BadConfig, match="state=5 is not valid: give a dict"):
            fl.tune(ADAM, group, state=5, folder=tmp_path)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(BadConfig, match="group=None is not valid: give a group of a session"):
            fl.tune(ADAM, None, folder=tmp_path)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(BadConfig, match="adam has no shapes yet"):
            fl.tune(fl.optimizers.adam, group, folder=tmp_path)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(BadConfig, match="stages run in `simulate` only"):
            fl.tune(stage, group, folder=tmp_path)
        with pytest.raises(BadConfig, match=r"state 'w' is not an input that adam updates and "):
            fl.tune(ADAM, group, state={"w": torch.ones(COUNT)}, folder=tmp_path)
        with pytest.raises(BadConfig, match=r"input m is \[3\]"):
            fl.tune(ADAM, group, state={"m": torch.ones(3)}, folder=tmp_path)
        with pytest.raises(BadConfig, match="kernel 'fast' is not known"):
            fl.tune(ADAM, group, kernel="fast", folder=tmp_path)
        tuned = fl.tune(ADAM, group, kernel="eager", folder=tmp_path)
        with pytest.raises(BadConfig, match="'w' is not state of adam: m, v"):
            tuned.state("w")
        with pytest.raises(BadConfig, match="input 'm' is state, which the tuned program keeps"):
            tuned(g=torch.ones(COUNT), m=torch.ones(COUNT))

    on_ranks(sessions, rank)


def _stage(x: Tensor) -> Tensor:
    return fl.receive(fl.send_next(x))


def test_a_schedule_without_space_in_the_arena_is_left_out(tmp_path: Path) -> None:
    """As written it fits; one operation has its memory beside the tensors of the call."""
    count = 2_500_000
    program = fl.optimizers.sgd(shape=(count,))
    small = connected(arena_bytes=16 << 20)

    def rank(group: Any, number: int) -> list[str]:
        tuned = fl.tune(program, group, kernel="eager", folder=tmp_path)
        w = torch.zeros(count)
        for _ in range(2 * 2 * TURN + 1):
            tuned(g=torch.ones(count), w=w, lr=LR)
        return sorted(row.title for row in tuned.rows if row.measured)

    try:
        assert on_ranks(small, rank) == [["as written", "reduce-scatter, all-gather"]] * 2
    except ArenaFull:
        pytest.fail("the schedules that fit were not used")
    finally:
        each_rank(lambda number: small[number].close())
