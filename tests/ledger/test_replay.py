"""A real bounded run under loss, computed again from its ledgers, bit for bit."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from dlcpd.contract.errors import BadLedger
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.ledger.frames import frame, records_untrusted
from dlcpd.ledger.inputs import Asked, made_by
from dlcpd.ledger.reader import find, runs
from dlcpd.ledger.records import Ended, Record
from dlcpd.ledger.replay import Replayed, ReplayVerdict, replay
from tests.ledger import jobs

pytestmark = pytest.mark.processes


@pytest.fixture
def ledgers(recorded: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(recorded, tmp_path / "copy")


def replayed(folder: Path) -> list[Replayed]:
    """Of both engines, in their order."""
    return [replay(run) for run in runs(find([folder]))]


def files(folder: Path, rank: int) -> list[Path]:
    return sorted((folder / f"rank{rank}").rglob("*.ledger"))


def change(file: Path, edit: Callable[[Record], Record]) -> None:
    """Write a ledger's file anew, each record as `edit` returns it."""
    found = records_untrusted(file.read_bytes(), may_be_torn=False)
    file.write_bytes(b"".join(frame(edit(record)) for record in found))


def test_all_operations_are_reproduced(recorded: Path) -> None:
    found = replayed(recorded)
    assert len(found) == 2  # engines
    assert [one.different for one in found] == ["", ""]
    counts = [len(one.of(ReplayVerdict.REPRODUCED)) for one in found]
    assert all(len(one.verdicts) == count for one, count in zip(found, counts, strict=True))
    assert sum(counts) == jobs.OPERATIONS + jobs.STEPS + divided(recorded)
    assert sum(one.waived for one in found) > 20
    assert len(files(recorded, 1)) > len(files(recorded, 0)) == 2


def divided(folder: Path) -> int:
    """Operations that both engines ran a part of, beside those of "large"."""
    parts = [e.plan for ledger in find([folder / "rank0"]) for e in ledger.entries]
    return sum(p.parts == 2 and p.name != "large" for p in parts) // 2


def test_residuals_were_carried_over_by_every_name(recorded: Path) -> None:
    entries = [e for ledger in find([recorded]) for e in ledger.entries]
    assert {e.plan.name for e in entries if e.ended.reapplied} == {
        "large",
        "halves",
        "scattered",
        "of a pair",
    }


def test_the_command_says_so(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dlcpctl(["replay", str(recorded)]) == 0
    said = capsys.readouterr().out
    assert said.count("operations reproduced bit for bit") == 2
    assert "3 ranks, engine 0 of 2: all " in said


def test_inputs_may_be_made_again(recorded: Path) -> None:
    def inputs(rank: int, asked: Asked) -> Any:
        return jobs.gradient(rank, asked.step, asked.name).view(torch.uint8).numpy()

    for run in runs(find([recorded])):
        found = replay(run, made_by(inputs))
        assert not found.different
        assert len(found.of(ReplayVerdict.REPRODUCED)) == len(found.verdicts)


def test_a_flipped_bit_of_an_input_is_named(
    ledgers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = sorted((ledgers / "rank2").rglob("*.npy"))[-1]
    values = np.load(file)
    values.view(np.uint8)[-1] ^= 0x10
    np.save(file, values)
    said = [one.different for one in replayed(ledgers) if one.different]
    assert len(said) == 1
    assert "what rank 2 sent is not its input" in said[0]
    assert "operation " in said[0] and "chunk " in said[0]
    assert dlcpctl(["replay", str(ledgers)]) == 1
    assert "what rank 2 sent" in capsys.readouterr().out


@pytest.mark.parametrize("side", ["waived", "lost"])
def test_a_flipped_bit_of_a_mask_is_named(ledgers: Path, side: str) -> None:
    flipped: list[str] = []

    def flip(record: Record) -> Record:
        rows = list(getattr(record, side)) if isinstance(record, Ended) else []
        if not rows or flipped or not isinstance(record, Ended):
            return record
        mask = bytearray(rows[0].mask)
        mask[1] ^= 1
        rows[0] = rows[0]._replace(mask=bytes(mask))
        flipped.append(f"{rows[0].transfer} {rows[0].peer}")
        waived, lost = (rows, record.lost) if side == "waived" else (record.waived, rows)
        return replace(record, waived=waived, lost=lost)

    change(files(ledgers, 0)[0], flip)
    assert flipped
    said = next(one.different for one in replayed(ledgers) if one.different)
    transfer, peer = flipped[0].split()
    ends = f"rank 0 to rank {peer}" if side == "waived" else f"rank {peer} to rank 0"
    assert f"transfer {transfer} from {ends}" in said
    assert "do not say alike" in said


def test_a_mask_that_both_ends_have_wrong_shows_in_the_result(ledgers: Path) -> None:
    def forget(record: Record) -> Record:
        return replace(record, waived=[], lost=[]) if isinstance(record, Ended) else record

    for rank in range(jobs.WORLD):
        for file in files(ledgers, rank):
            change(file, forget)
    said = [one.different for one in replayed(ledgers)]
    assert any("is not the sum of what ranks" in text for text in said)


def test_a_missing_ledger_is_named(ledgers: Path) -> None:
    shutil.rmtree(ledgers / "rank1")
    with pytest.raises(BadLedger, match=r"no ledger of rank 1 of job .* on host"):
        replayed(ledgers)


def test_a_missing_generation_is_named(ledgers: Path) -> None:
    file = files(ledgers, 1)[1]
    file.unlink()
    with pytest.raises(BadLedger, match="is generation 2: one before it is missing"):
        replayed(ledgers)


def test_a_missing_input_is_named(ledgers: Path) -> None:
    next((ledgers / "rank0").rglob("*.npy")).unlink()
    with pytest.raises(BadLedger, match=r"what rank 0 contributed to operation .*--inputs"):
        replayed(ledgers)


def test_a_torn_end_costs_the_last_operation_only(ledgers: Path) -> None:
    file = files(ledgers, 2)[0]
    file.write_bytes(file.read_bytes()[:-5])
    found = replayed(ledgers)
    assert not any(one.different for one in found)
    assert sum(len(one.of(ReplayVerdict.PARTIAL)) for one in found) == 1


def test_damage_in_the_middle_names_file_and_offset(ledgers: Path) -> None:
    file = files(ledgers, 2)[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(BadLedger, match=rf"{file.name}: damaged at byte \d+: "):
        replayed(ledgers)


def test_the_oldest_generations_make_room_and_the_rest_can_be_computed(ledgers: Path) -> None:
    before = replayed(ledgers)
    for file in files(ledgers, 1):
        if file.name == "00000000.ledger":
            file.unlink()
    after = replayed(ledgers)
    for one, two in zip(before, after, strict=True):
        assert not two.different
        assert 0 < len(two.of(ReplayVerdict.REPRODUCED)) < len(one.of(ReplayVerdict.REPRODUCED))
        assert not two.of(ReplayVerdict.UNKNOWN)
