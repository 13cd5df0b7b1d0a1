"""`dlcpctl trace` on real daemons: what its file holds, and who may record."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch._C._distributed_c10d import HashStore
from torch.profiler import ProfilerActivity, profile, record_function

from dlcp_client import connect, ranges
from dlcpd.contract.inquiries import Traced, TraceRequest
from dlcpd.contract.messages import Completed
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.inspection.timeline import FIRST_PROCESS
from tests.client.real import each_rank, reduce_all
from tests.daemon.kit import PATIENCE, Client, Daemon, until
from tests.daemon.test_two_hosts import COUNT, SUBMIT, Rank, close, ranks_of, start

Row = dict[str, Any]
SLACK = 10e6  # microseconds; clocks that do not match are decades apart
REQUIRED = {  # by phase; "Trace Event Format", Google 2016: what a viewer must find
    "X": {"name", "ts", "dur", "pid", "tid"}, "b": {"name", "cat", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "id", "ts", "pid", "tid"}, "i": {"name", "ts", "pid", "tid", "s"},
    "M": {"name", "pid", "tid", "args"},
}  # fmt: skip


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    folder = tmp_path_factory.mktemp("trace")
    lossy = "[inject]\nloss = 0.05\nseed = 3\n"
    with start(folder, 7, more=lossy) as one, start(folder, 8, more=lossy) as two:
        yield [one, two]


class Training:
    """Steps of two buckets, bounded, until it is told to stop."""

    def __init__(self, ranks: list[Rank]) -> None:
        self._ranks, self._stop = ranks, threading.Event()
        self.steps = 0
        self._thread = threading.Thread(target=self._train)
        self._thread.start()

    def _train(self) -> None:
        number = 0
        while not self._stop.is_set():
            for name in ("first", "second"):
                number += 1
                ask = replace(SUBMIT, operation=number, name=name, max_loss=0.1)
                for rank in self._ranks:
                    rank.submit(ask)
                assert all(isinstance(rank.result(), Completed) for rank in self._ranks)
            self.steps += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)


@pytest.fixture
def training(hosts: list[Daemon]) -> Iterator[Training]:
    ranks = ranks_of(hosts, "traced")
    for rank in ranks:
        rank.values[:COUNT] = 1.0
    made = Training(ranks)
    yield made
    made.stop()
    close(ranks)


def record(daemon: Daemon, file: Path, *more: str) -> Row:
    words = ["trace", "--socket", str(daemon.socket), "--steps", "3", "-o", str(file), *more]
    assert dlcpctl(words) == 0
    found: Row = json.loads(file.read_text())
    return found


def check_schema(rows: list[Row]) -> None:
    open_: Counter[tuple[str, str]] = Counter()
    for row in rows:
        assert row.keys() >= REQUIRED[row["ph"]] | {"ph"}, row
        assert row["ph"] == "M" or row["ts"] > 0
        assert row.get("dur", 0) >= 0
        if row["ph"] in "be":
            open_[row["cat"], row["id"]] += 1 if row["ph"] == "b" else -1
    assert not any(open_.values()), "each span that begins also ends"


def test_steps_operations_and_data_are_on_the_timeline(
    hosts: list[Daemon], training: Training, tmp_path: Path
) -> None:
    document = record(hosts[0], tmp_path / "trace.json")
    rows = document["traceEvents"]
    check_schema(rows)
    steps = [row for row in rows if row.get("cat") == "step"]
    assert [row["name"] for row in steps] == ["step 1", "step 2", "step 3"]
    begun = [row for row in rows if row["ph"] == "b" and row["cat"] == "operation"]
    names = Counter(row["name"] for row in begun)
    assert names["first"] == names["second"] == 3
    assert names["exchange"] == 6, "each has its result"
    [example] = [row for row in begun if row["name"] == "first"][:1]
    assert example["args"]["bytes"] == 4 * COUNT and example["args"]["bound"] == 0.1
    sent = [row for row in rows if row["name"] in ("sent", "retransmitted")]
    assert {row["args"]["path"] for row in sent} == {0} and sent[0]["args"]["class"] == "bulk"
    assert sum(row["args"]["segments"] for row in sent) > 6 * 100
    assert any(row["name"] == "received" for row in rows)
    assert any(row["name"] == "waived" for row in rows), "5 % are lost, 10 % may be"
    assert any(row["name"].startswith("to rank 1: ") for row in rows)
    assert [row for row in rows if row.get("cat") == "reduction"]
    titles = {row["args"]["name"] for row in rows if row["name"] == "process_name"}
    assert titles == {"dlcpd: rank 0 of traced"}
    run = document["otherData"]["run"]
    assert (run["jobs"], run["ranks"], len(run["hosts"])) == (["traced"], 2, 2)
    assert run["recorded on"] in run["hosts"]
    assert run["settings"]["inject.loss"] == 0.05


def test_nothing_is_noted_unless_somebody_records(hosts: list[Daemon], training: Training) -> None:
    until(lambda: training.steps > 2, "steps")
    with hosts[0].client() as client:
        client.greet()
        client.send(TraceRequest(0, "look"))
        assert "nothing is recorded" in client.refused("bad_message")


def look(client: Client, what: str) -> Row:
    client.send(TraceRequest(0, what))
    return client.expect(Traced).read()


def test_one_records_at_a_time_and_it_ends_with_its_connection(
    hosts: list[Daemon], training: Training
) -> None:
    with hosts[0].client() as first, hosts[0].client() as second:
        for client in (first, second):
            client.greet()
        assert look(first, "start")["on"]
        until(lambda: look(first, "look")["left"] > 0, "events")
        second.send(TraceRequest(0, "start"))
        assert "somebody else records" in second.refused("too_many")
        first.close()

        def free() -> bool:
            second.send(TraceRequest(0, "start"))
            return isinstance(second.receive(), Traced)

        until(free, "the recording to end")
        assert not look(second, "forget")["on"]
        second.send(TraceRequest(1, "start"))
        assert "no engine 1" in second.refused("bad_message")


def test_without_a_training_it_says_so(
    hosts: list[Daemon], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.json"
    words = ["trace", "--socket", str(hosts[0].socket), "--timeout", "1", "-o", str(file)]
    assert dlcpctl(words) == 1
    assert "0 steps" in capsys.readouterr().out
    assert json.loads(file.read_text())["traceEvents"] == []


def test_it_joins_a_profile_of_torch_on_its_clock(
    hosts: list[Daemon], training: Training, tmp_path: Path
) -> None:
    alone, theirs, both = (tmp_path / name for name in ("a.json", "profile.json", "both.json"))
    with profile(activities=[ProfilerActivity.CPU]) as profiled, record_function("recorded"):
        torch.ones(4).sum()
        before = record(hosts[0], alone)["traceEvents"]
    profiled.export_chrome_trace(str(theirs))
    assert dlcpctl(["trace", "--join", str(alone), str(theirs), "-o", str(both)]) == 0
    document = json.loads(both.read_text())
    rows = document["traceEvents"]
    [here] = [row for row in rows if row["name"] == "recorded" and row["ph"] == "X"]
    ours = [row for row in rows if type(row["pid"]) is int and row["pid"] >= FIRST_PROCESS]
    assert len(ours) == len(before) and document["baseTimeNanoseconds"]
    for row in ours:
        assert row["ph"] == "M" or -SLACK < row["ts"] - here["ts"] < here["dur"] + SLACK


def test_operations_have_the_numbers_of_the_ranges_in_the_profile(
    hosts: list[Daemon], tmp_path: Path
) -> None:
    alone, theirs, both = (tmp_path / name for name in ("a.json", "profile.json", "both.json"))
    store = HashStore()
    sessions = each_rank(
        lambda rank: connect(store, rank, 2, socket=str(hosts[rank].socket), timeout=PATIENCE)
    )
    begun, over = threading.Event(), threading.Event()

    def train() -> None:
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiled:
            while not over.is_set():
                reduce_all(sessions, name="bucket")
                begun.set()
        profiled.export_chrome_trace(str(theirs))

    training = threading.Thread(target=train)
    training.start()
    try:
        assert begun.wait(PATIENCE)
        record(hosts[0], alone)
    finally:
        over.set()
        training.join(PATIENCE)
        for session in sessions:
            session.close()
    assert dlcpctl(["trace", "--join", str(alone), str(theirs), "-o", str(both)]) == 0
    rows = json.loads(both.read_text())["traceEvents"]
    kept = ("session", "operation", "collective", "bytes")
    shown = [
        tuple(row["args"][key] for key in kept) for row in rows if row["name"] == ranges.SUBMIT
    ]
    ours = [
        tuple(row["args"][key] for key in kept)
        for row in rows
        if row["ph"] == "b" and row["cat"] == "operation" and row["name"] == "bucket"
    ]
    assert len(ours) == 3 and len(set(shown)) == len(shown)
    assert set(ours) <= set(shown)
    assert {row[0] for row in ours} == {str(sessions[0].number)}


@pytest.mark.parametrize("content", ["{", "[]", '{"traceEvents": 1}', '{"traceEvents": []}'])
def test_what_cannot_be_joined_is_named(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.json"
    file.write_text(content)
    words = ["trace", "--join", str(file), str(file), "-o", str(tmp_path / "both.json")]
    assert dlcpctl(words) == 2
    assert f"--join {file}" in capsys.readouterr().err
    assert dlcpctl(["trace", "-o", str(tmp_path / "no" / "such.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
