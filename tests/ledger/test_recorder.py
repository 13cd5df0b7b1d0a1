"""A ledger on disk: bounded, private, and never a reason for a training to fail."""

import dataclasses
import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.loss.recording import Losses, Missing
from dlcpd.collectives.order import Group, Loss, Order
from dlcpd.contract.collectives import WHOLE
from dlcpd.contract.errors import BadLedger
from dlcpd.core.transfer.layers import Layers
from dlcpd.ledger import generations
from dlcpd.ledger.reader import read
from dlcpd.ledger.recorder import About, Recorder, mark
from dlcpd.ledger.records import HostRow, Plan, Rank, decode_untrusted, encode
from dlcpd.ledger.replay import program_of
from dlcpd.numerics.residual import Hole
from dlcpd.schedules.builders.all_reduce import direct
from dlcpd.schedules.catalog import Place, Task
from dlcpd.schedules.choose import choose
from dlcpd.schedules.network import TYPICAL, Costs
from tests.schedules.networks import network_of

SIZE = 64 << 10  # bytes of a tensor
ABOUT = About("a/../job", 0xABC, 0, 0, 1, [Rank(1, "other", mark(1), mark(2))])
PROGRAM = direct(0, 2, SIZE, SIZE)
PLAN = Plan(
    1,
    "n",
    "all_reduce",
    "direct",
    "0" * 16,
    SIZE,
    [],
    1,
    "float32",
    "sum",
    0.1,
    0,
    [HostRow(0, 0), HostRow(1, 1)],
    SIZE,
    0,
    1,
)


def recorder(folder: Path, told: list[str], accounts: Accounts, most: int = 1 << 20) -> Recorder:
    return Recorder(ABOUT, folder, most=most, inputs=True, accounts=accounts, told=told.append)


def order(ticket: int) -> Order:
    layers = Layers.new([], 4, 0.1)
    return Order(ticket, Group(0, (0, 1), 0), "", 0, 9.0, "float32", "sum", layers, Loss(0.1, "n"))


def hole(ticket: int) -> Hole:
    return Hole(0, np.array([2]), 1024, np.full(256, ticket, np.float32), 1.0, ticket)


def operate(made: Recorder, ticket: int, reapplied: list[Hole], *, fail: bool = False) -> None:
    tensor = np.full(SIZE, ticket, np.uint8)
    recording: Any = made.recording(order(ticket), PLAN, PROGRAM)
    recording.begin(tensor)
    recording.contribute(tensor, reapplied)
    if fail:
        recording.fail(ticket)
    else:
        lost = Missing(1, 0, SIZE // 2048, 1024, np.array([2]), {0: 1})
        recording.end(ticket, tensor, Losses([lost], [lost]))


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_it_stays_within_its_bytes_and_can_be_read_from_any_generation(tmp_path: Path) -> None:
    told: list[str] = []
    accounts = Accounts()
    made = recorder(tmp_path, told, accounts)
    for ticket in range(1, 101):
        reapplied = [hole(ticket - 1)] if ticket > 1 else []
        accounts.residuals.take(("n", "float32", 1))
        accounts.residuals.put(("n", "float32", 1), [hole(ticket)])
        operate(made, ticket, reapplied)
        assert size(tmp_path) <= (1 << 20) + 2 * SIZE
    made.close()
    ledger = read(next(tmp_path.iterdir()))
    assert not told
    tickets = [entry.ended.ticket for entry in ledger.entries]
    assert 5 < len(tickets) < 20 and tickets[-1] == 100  # 1 MiB holds sixteen inputs
    assert [kept.source for kept in ledger.kept] == [tickets[0] - 1]
    assert ledger.entries[-1].ended.turn == 99
    for entry in ledger.entries:
        assert generations.input_of(ledger.folder, entry.ended) is not None


def test_what_an_operation_in_flight_has_brought_back_is_kept_as_well(tmp_path: Path) -> None:
    made = recorder(tmp_path, [], Accounts(), most=generations.COUNT + 1)  # all are full at once
    slow: Any = made.recording(order(50), PLAN, PROGRAM)
    slow.contribute(np.zeros(SIZE, np.uint8), [])
    made.began(51, [hole(7)])
    for ticket in range(1, 20):
        operate(made, ticket, [])
    made.close()
    assert read(next(tmp_path.iterdir())).opening.whole == 0  # more than half of a generation
    made = recorder(tmp_path / "other", [], Accounts(), most=100 << 10)
    made.began(51, [hole(7)])
    for ticket in range(1, 20):
        operate(made, ticket, [])
    assert [k.source for k in read(next((tmp_path / "other").iterdir())).kept] == [7]


def test_what_an_earlier_session_waived_gets_tickets_that_no_operation_has(tmp_path: Path) -> None:
    accounts = Accounts()
    made = recorder(tmp_path, [], accounts)
    for name in ("m", "n"):
        accounts.residuals.put((name, "float32", 1), [hole(7), hole(8)])
    made.inherited()
    reapplied = accounts.residuals.take(("n", "float32", 1))
    operate(made, 7, reapplied)
    ledger = read(next(tmp_path.iterdir()))
    kept = [one.source for one in ledger.kept]
    assert len(kept) == 4 and len(set(kept)) == 2 and min(kept) > 1 << 31
    assert ledger.entries[0].ended.reapplied == [reapplied[0].source] == [kept[2]]


def test_a_failed_operation_is_known_to_have_failed(tmp_path: Path) -> None:
    made = recorder(tmp_path, [], Accounts())
    operate(made, 1, [hole(9)], fail=True)
    [entry] = read(next(tmp_path.iterdir())).entries
    assert (entry.ended.done, entry.ended.reapplied, entry.ended.result) == (0, [9], b"")


def test_nobody_else_reads_it_and_no_job_chooses_where_it_lies(tmp_path: Path) -> None:
    operate(recorder(tmp_path / "new", [], Accounts()), 1, [])
    [folder] = (tmp_path / "new").iterdir()
    assert folder.name == "a_.._job-rank0-engine0-abc"
    assert all(f.stat().st_mode & 0o077 == 0 for f in [folder, *folder.rglob("*")])


def test_a_full_disk_ends_the_ledger_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    made = recorder(tmp_path, told, Accounts())
    operate(made, 1, [])

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    operate(made, 2, [])
    operate(made, 3, [])
    [text] = told
    assert "ends here" in text and "No space left" in text
    monkeypatch.undo()
    assert [e.ended.ticket for e in read(next(tmp_path.iterdir())).entries] == [1]


def test_a_folder_that_cannot_be_made_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told: list[str] = []
    operate(recorder(tmp_path / "file", told, Accounts()), 1, [])
    assert len(told) == 1


def test_the_folder_of_a_ledger_is_a_new_one(tmp_path: Path) -> None:
    generations.Generations(tmp_path / "a", 1 << 20).close()
    with pytest.raises(FileExistsError):
        generations.Generations(tmp_path / "a", 1 << 20)


@pytest.mark.parametrize("rates", [(), (25, 100, 100)])
def test_a_plan_with_the_network_gives_the_program_that_ran(rates: tuple[int, ...]) -> None:
    network = network_of(rates) if rates else None
    if network is not None:  # the costs of a job decide on the chunks of its forests
        network = dataclasses.replace(network, costs=Costs(400_000, 1, 2, 3))
    place = Place(1, ((0,), (1,), (2,)), 1 << 20, network)
    task, group = Task(collective="all_reduce", size=1 << 20), Group(0, (0, 1, 2), 1)
    choice = choose(task, place)
    assert choice.name == ("forest" if rates else "direct")
    ask: Any = SimpleNamespace(
        name="n", collective="all_reduce", dtype="float32", reduce="sum", max_loss=0.0, codec=""
    )
    plan = Recorder.plan(SimpleNamespace(_plans=0), ask, group, task, choice, place, WHOLE)  # type: ignore[arg-type]
    assert len(encode(plan)) < 400
    again = decode_untrusted(encode(plan))
    assert again == plan
    assert isinstance(again, Plan)
    assert program_of(again, 1).steps == choice.program.steps
    if rates:
        with pytest.raises(BadLedger, match="another schedule of"):
            program_of(replace(again, costs=TYPICAL), 1)
        other = replace(again, network=network_of((100, 100, 25)).capacities)
        with pytest.raises(BadLedger, match="another schedule of"):
            program_of(other, 1)
        fewer = replace(again, network=network_of((25, 100)).capacities)
        with pytest.raises(BadLedger, match="needs the network of two hosts"):
            program_of(fewer, 2)
