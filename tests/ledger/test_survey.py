"""What ledgers say altogether: the sums of a real run, damaged files, and bounded memory."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dlcp_client import Session
from dlcpd.contract.errors import BadLedger
from dlcpd.ctl.ledger import steps
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.inspection.private import mine
from dlcpd.ledger import survey as surveys
from dlcpd.ledger.frames import frame, record_at_untrusted
from dlcpd.ledger.masks import count_untrusted, pack, unpack_untrusted
from dlcpd.ledger.reader import find
from dlcpd.ledger.records import Record
from dlcpd.ledger.survey import UNKNOWN, BySteps, RecordFilter, Survey
from tests.ledger import jobs
from tests.ledger.examples import ENDED, FILE, OPENING, PLAN, ROW

EVERYTHING = RecordFilter()


def surveyed(folder: Path, choice: RecordFilter = EVERYTHING) -> Survey:
    made = Survey(choice)
    made.read([folder])
    return made


def written(folder: Path, count: int = 1, **changes: Any) -> Path:
    """A ledger of `count` operations, one per step."""
    folder.mkdir()
    records: list[Record] = [OPENING, PLAN]
    more: list[Record] = [
        replace(ENDED, ticket=n + 1, number=n + 1, turn=n, **changes) for n in range(count)
    ]
    (folder / "00000000.ledger").write_bytes(b"".join(map(frame, records + more)))
    return folder


def test_sums_of_a_real_run_are_those_of_its_records(recorded: Path) -> None:
    ways, segments = Counter[tuple[int, int]](), 0
    for ledger in find([recorded]):
        for _, ended in ledger.entries:
            for row in ended.waived:
                count = len(unpack_untrusted(row.mask, row.out_of))
                segments += count
                ways[ledger.rank, row.peer] += count
    found = surveyed(recorded)
    assert not (found.problems or found.cut or found.absent)
    whole = found.sum()
    assert whole.segments == segments == sum(ways.values())
    assert {key[1:]: one.segments for key, one in found.ways.items()} == dict(ways)
    assert sum(found.paths.values()) == segments
    assert sum(one.segments for one in found.names.values()) == segments
    assert sum(one.segments for *_, one in found.steps[found.members[0].opening.job].rows()) == (
        segments
    )
    assert sum(member.lost for member in found.members) >= segments  # rank 1's oldest are gone
    assert 0 < whole.bytes <= whole.allowed
    assert whole.worst == max(found.worst).share
    assert whole.worst <= jobs.POLICY.max_loss


def test_running_daemons_say_what_they_remember(tmp_path: Path) -> None:
    def train(session: Session) -> list[dict[str, Any]]:
        for step in range(4):
            tensor = jobs.gradient(session.rank, step, "large")
            session.all_reduce(tensor, name="large", policy=jobs.POLICY).wait()
        documents = []
        for number, one in enumerate(mine() if session.rank == 0 else ()):
            if one.pid == os.getpid():
                file = tmp_path / f"{number}.json"
                line = ["ledger", "--socket", one.name, "--worst", "1", "--json", str(file)]
                # A thread is no place for a command that takes signals.
                subprocess.run([sys.executable, "-m", "dlcpd.ctl.main", *line], check=True)
                documents.append(json.loads(file.read_text()))
        return documents

    [documents, _] = jobs.run([jobs.config(tmp_path, rank) for rank in range(2)], train)
    assert documents
    for said in documents:
        [now] = said["since the sessions began"]
        assert 0 < now["waived"] <= now["allowed"]
        [way] = [row for row in said["by way"] if row["from"] == now["rank"]]
        assert way["waived"] == now["waived"]
        assert {row["name"] for row in said["by name"]} == {"large"}
        [worst] = said["worst transfers of the newest"]
        assert worst["share(%)"] <= 100 * jobs.POLICY.max_loss


def test_where_the_schedule_is_unknown_so_is_what_the_bound_lets_go(tmp_path: Path) -> None:
    made = surveyed(written(tmp_path / "rank0"))  # whose fingerprint no schedule has
    assert (made.sum().segments, made.sum().of_bound) == (2, None)


def test_a_loss_of_two_ledgers_counts_once_and_one_of_an_absent_rank_as_well(
    tmp_path: Path,
) -> None:
    written(tmp_path / "rank0", lost=[ROW])
    alone = surveyed(tmp_path)
    assert alone.absent == {("job", 1, "host")}
    assert {key[1:]: one.segments for key, one in alone.ways.items()} == {(0, 1): 2, (1, 0): 2}
    folder = tmp_path / "rank1"
    folder.mkdir()
    [row] = OPENING.ranks
    other = replace(OPENING, rank=1, ranks=[row._replace(rank=0, ours=row.theirs, theirs=row.ours)])
    back = replace(ENDED, waived=[ROW._replace(peer=0)], lost=[ROW._replace(peer=0)])
    records: list[Record] = [other, PLAN, back]
    (folder / "00000000.ledger").write_bytes(b"".join(map(frame, records)))
    both = surveyed(tmp_path)
    assert not both.absent
    assert {key[1:]: one.segments for key, one in both.ways.items()} == {(0, 1): 2, (1, 0): 2}


def test_damage_and_cuts_are_named_and_the_rest_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = written(tmp_path / "rank0", count=3)
    first = folder / "00000000.ledger"
    whole = first.read_bytes()
    second = folder / "00000001.ledger"
    second.write_bytes(frame(replace(OPENING, generation=1)) + whole[len(frame(OPENING)) :][:-5])
    first.write_bytes(whole[:-1] + b"!")
    assert dlcpctl(["ledger", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert "4 operations" in text
    assert f"DAMAGED: {first}: damaged at byte" in text
    assert f"CUT: {second}: ends within a record, at byte" in text
    first.write_bytes(whole)
    assert dlcpctl(["ledger", str(tmp_path)]) == 0
    assert "5 operations" in capsys.readouterr().out


def test_a_folder_without_ledgers_and_files_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadLedger, match="holds no ledger"):
        surveyed(tmp_path)
    with pytest.raises(BadLedger, match="is no folder"):
        surveyed(tmp_path / "bogus")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "00000000.ledger").write_bytes(b"no ledger at all")
    written(tmp_path / "b")
    (tmp_path / "b" / "00000001.ledger").write_bytes(b"")
    assert dlcpctl(["ledger", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert f"DAMAGED: {tmp_path / 'a'}: no file there begins as a ledger of version 3" in text
    assert "ledgers 1, jobs 1: 1 operations" in text


def test_only_what_was_chosen_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "rank0", count=10)
    line = ["ledger", str(tmp_path), "--steps", "2-4", "--worst", "2", "--json", "-"]
    assert dlcpctl(line) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["total"]["operations"] == 3
    assert said["by rank"][0]["steps"] == "2-4"
    assert len(said["worst transfers"]) == 2
    assert said["worst transfers"][0]["waived"] == 2
    # Of rank 1 there is no ledger, so what rank 0 says of it counts.
    assert {row["from"]: row["waived"] for row in said["by path of the sender"]} == {0: 6, 1: 6}
    assert not surveyed(tmp_path, RecordFilter(job="another")).members
    assert dlcpctl(["ledger", str(tmp_path), "--job", "another"]) == 2
    assert "no ledger belongs to this job; there are ledgers of: job" in capsys.readouterr().err


def test_tables_do_not_grow_with_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveys, "MAX_KEYS", 3)
    folder = tmp_path / "rank0"
    folder.mkdir()
    records: list[Record] = [OPENING]
    for n in range(40):
        plan = replace(PLAN, plan=n, name=f"name {n}")
        row = ROW._replace(peer=n + 1, paths=b"")
        records += [plan, replace(ENDED, plan=n, number=n + 1, turn=n, waived=[row], lost=[])]
    (folder / "00000000.ledger").write_bytes(b"".join(map(frame, records)))
    found = surveyed(tmp_path)
    assert found.sum().segments == 80
    assert found.names["job", "(others)", None].operations == 37
    assert found.ways["job", None, None].segments == 74
    assert found.paths == {("job", 0, UNKNOWN): 80}
    assert len(found.worst) == 10
    assert len(list(found.steps["job"].rows())) <= surveys.STEPS


def test_rows_by_step_double_their_width_and_lose_nothing() -> None:
    table = BySteps()
    for step in range(1000):
        table.of(step).operations += 1
    rows = list(table.rows())
    assert sum(one.operations for *_, one in rows) == 1000
    assert (table.width, rows[0][:2], rows[-1][0]) == (64, (0, 63), 960)
    table.of(1 << 40)
    assert len(list(table.rows())) == 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_masks_are_counted_as_they_are_unpacked(share: float) -> None:
    generator = np.random.default_rng(7)
    for count in (1, 7, 64, 4096):
        mask = pack(np.flatnonzero(generator.random(count) < share), count)
        assert count_untrusted(mask, count) == len(unpack_untrusted(mask, count))
        with pytest.raises(BadLedger):
            count_untrusted(mask + b"\0", count)
    with pytest.raises(BadLedger):
        count_untrusted(b"", 4)
    with pytest.raises(BadLedger):
        count_untrusted(bytes([1, 0b10000]), 4)  # a segment beyond the last


def test_the_end_of_a_large_file_is_not_searched_at_every_record() -> None:
    """It took seconds per thousand records in files of 100 MB."""

    class Counting(bytes):
        read = 0

        def __getitem__(self, key: Any) -> Any:
            found = super().__getitem__(key)
            Counting.read += len(found)
            return found

    data = Counting(FILE + bytes(1 << 20))
    at = 0
    for _ in range(4):
        record, at = record_at_untrusted(data, at, may_be_torn=True)
        assert record is not None
    assert Counting.read < 2 * len(FILE)
    assert record_at_untrusted(data, at, may_be_torn=True) == (None, at)


def test_steps_are_numbers_or_ranges() -> None:
    assert steps("5") == (5, 5)
    assert steps("5-9") == (5, 9)
    assert steps("5-")[0] == 5 and steps("5-")[1] > 1 << 60


def test_steps_that_are_none_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("9-5", "a", "-3"):
        with pytest.raises(SystemExit):
            dlcpctl(["ledger", str(tmp_path), f"--steps={wrong}"])
        assert "is not a step or a range of steps, such as 100-200" in capsys.readouterr().err
    assert dlcpctl(["ledger", "--steps", "1-2"]) == 2  # what a daemon remembers has no steps
    assert "--steps needs FOLDER" in capsys.readouterr().err
