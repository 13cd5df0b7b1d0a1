"""`dlcpctl demo`: its table, its sentence, its verdicts and its file, from results of ranks."""

from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.demo import command
from dlcp_lab.demo.pictures import html
from dlcp_lab.demo.turns import DLCPD, GLOO, SKIPPED, Turns, answer, header, judge, rows
from dlcp_lab.emulation.own_namespace import inside
from dlcp_lab.report.checks import broken
from dlcp_lab.training.traffic_seen import NEWS
from dlcpd.ctl.main import main

STEPS = 20


def lane(seconds: float, *, digest: str = "same", score: float = 0.9) -> dict[str, Any]:
    return {
        "times": [9.0] * SKIPPED + [seconds] * (STEPS - SKIPPED),
        "losses": [2.0 - n / STEPS for n in range(STEPS)],
        "score": score,
        "digest": digest,
    }


def rank(gloo: float = 2.0, ours: float = 1.0, **changes: Any) -> dict[str, Any]:
    books = {"sent": 1000, "waived": 5, "lost": 5, "reapplied": 4, "held_bytes": 1408}
    network = {
        "classes": {},
        "paths": [7, 3],
        "news": dict.fromkeys(NEWS, 0),
    }
    return {
        "lanes": {GLOO: lane(gloo, score=0.8), DLCPD: lane(ours)},
        "books": books | {"network": network} | changes,
    }


def turns(*ranks: dict[str, Any], fair: bool = True) -> Turns:
    return Turns(ranks or (rank(), rank()), fair=fair)


def test_the_table_has_a_row_for_each_and_the_sentence_the_answer() -> None:
    gloo, ours = rows(turns())
    assert gloo == ["Gloo", "2000", "2000", None, None, None, "0.800"]
    assert ours == ["dlcpd, bounded loss of 1 %", "1000", "1000", "2.00", 10, 8, "0.900"]
    assert len(header(turns())) == len(ours)
    assert answer(turns()) == (
        "On this network dlcpd's steps were 2.0 times as fast as Gloo's (2.0 times at p99); "
        "accuracy 0.900, Gloo's 0.800, after 20 steps."
    )


def test_a_slower_dlcpd_is_said_to_be_slower() -> None:
    assert "gained nothing: 0.50 times as fast as Gloo" in answer(turns(rank(1.0, 2.0)))
    assert "gained nothing" in answer(turns(rank(1.0, 0.99)))


def test_the_slowest_rank_counts_and_the_first_steps_do_not() -> None:
    found = turns(rank(), rank(ours=1.5))
    assert found.times(DLCPD) == [1.5] * (STEPS - SKIPPED)


def test_without_a_network_no_time_is_shown() -> None:
    found = turns(fair=False)
    assert header(found) == ["over", "waived", "reapplied", "accuracy"]
    assert [len(row) for row in rows(found)] == [4, 4]
    text = html(found, list(judge(found)), "loopback")
    assert "times as fast" not in text and "Milliseconds of each step" not in text


@pytest.mark.parametrize(
    ("changes", "promise"),
    [
        ({"waived": 50, "lost": 50}, "P3"),
        ({"lost": 4}, "P3"),
        ({"reapplied": 6}, "P4"),
        ({"held_bytes": 0}, "P4"),
        ({"waived": 4, "lost": 4, "reapplied": 4}, "P4"),
    ],
    ids=str,
)
def test_a_broken_promise_is_named(changes: dict[str, int], promise: str) -> None:
    assert broken(list(judge(turns()))) == []
    assert broken(list(judge(turns(rank(**changes))))) == [promise]


def test_ranks_with_different_models_break_a_promise() -> None:
    other = rank()
    other["lanes"][DLCPD] = lane(1.0, digest="another")
    assert broken(list(judge(turns(rank(), other)))) == ["P2"]


def test_the_file_has_the_answer_and_the_curves() -> None:
    text = html(turns(), list(judge(turns())), "a fabric")
    for part in (answer(turns()), "Conditions: a fabric.", "Training loss over seconds", "by path"):
        assert part.replace("'", "&#x27;") in text or part in text


@pytest.mark.processes
def test_without_namespaces_promises_are_judged_on_loopback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "unavailable", lambda: "nft not found")
    monkeypatch.setattr(command, "inside", lambda _: [])
    file = tmp_path / "demo.html"
    assert main(["demo", "--seconds", "1", "--report", str(file)]) == 0
    said = capsys.readouterr().out
    assert "this host cannot create the emulated fabric (nft not found)" in said
    assert "is broken" in said or "all promises held" in said
    assert "times as fast" not in said
    assert file.stat().st_size > 50_000


@pytest.mark.processes
def test_a_command_runs_in_namespaces_of_its_own_or_not_at_all() -> None:
    made = inside(["true"])
    assert not made or made[-1] == "true"


def test_a_report_that_cannot_be_written_is_refused_before_the_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--report", "/no/such/folder/x.html"]) == 2
    assert "--report /no/such/folder/x.html: there is no folder" in capsys.readouterr().err
