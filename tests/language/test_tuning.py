"""The parts of a tuner: candidates, turns, the watch over a choice, and its files."""

import logging
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dlcp_client.auto.choice import MIN_PAUSE, TOLERANCE
from dlcp_client.auto.turns import SKIPPED, TURN
from dlcp_client.environment import Environment
from dlcp_client.fused import language as fl
from dlcp_client.fused.language.costs import predicted
from dlcp_client.fused.language.tuning import results
from dlcp_client.fused.language.tuning.candidates import candidates, kept
from dlcp_client.fused.language.tuning.measuring import (
    CHANGED,
    MAX_PAUSE,
    WINDOW,
    Comparison,
    Watch,
    fastest,
    next_pause,
)
from dlcp_client.fused.language.tuning.results import Result, Results, Row, decoded
from dlcpd.contract.errors import BadConfig
from tests.language.random_programs import made
from tests.language.test_lowering import epilogue

SHAPES: Any = {"x": (64, 16), "w": (16, 32), "bias": (32,), "r": (64, 32)}
RESULT = Result(fl.Rates(), [Row("one", 0.5, 0.25), Row("two", 0.75)], 0, 0.25)


# --- candidates -------------------------------------------------------------------------------


def test_the_candidates_of_an_optimizer_and_of_a_product() -> None:
    adam = fl.optimizers.adam(shape=(1000,))
    assert [one.title for one in candidates(adam)] == [
        "as written",
        "reduce-scatter, all-gather",
        "one operation, torch",
        "one operation, inductor",
        "one operation, eager",
    ]
    assert kept(adam) == ["m", "v"], "w is returned, so the caller has it"
    titles = [one.title for one in candidates(epilogue(**SHAPES), "eager")]
    assert titles[2:] == [
        "one operation, eager",
        *(f"one operation in {pieces} pieces, eager" for pieces in (2, 4, 8, 16)),
    ]
    assert candidates(adam)[0].program.text == adam.text
    with pytest.raises(BadConfig, match="kernel 'fast' is not known: use auto, torch"):
        candidates(adam, "fast")


@pytest.mark.parametrize("seed", range(20))
def test_candidates_of_random_programs_equal_them_to_the_bit(seed: int) -> None:
    program = made(seed, norms=False)
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            like: Tensor = node.meta["val"]
            drawn = [torch.rand(like.shape, generator=generator) for _ in range(3)]
            local = program.inputs[node.name] == fl.local
            values[node.name] = drawn if local else drawn[0].to(like.dtype)
    right = fl.simulate(program, values, 3)
    for one in candidates(program, "eager"):
        found = fl.simulate(one.program, values, 3)
        for name, value in right.updated.items():
            assert torch.equal(torch.as_tensor(found.updated[name]), torch.as_tensor(value)), name


def test_the_model_puts_pieces_first_where_a_product_takes_as_long_as_the_link() -> None:
    """And not where the link costs little, since each piece costs a round."""
    found = candidates(epilogue(**SHAPES), "eager")

    def best(link_bps: float) -> str:
        rates = fl.Rates(link_bps=link_bps, latency=1e-4, product_flops=65536 / 4e-3)
        return min(found, key=lambda one: predicted(one.program, 2, rates)).schedule

    assert best(1e10) == "one operation"
    assert best(8 * 8192 / 4e-3).startswith("one operation in ")  # half of the bytes in 4 ms


# --- turns and the watch ----------------------------------------------------------------------


@given(st.integers(1, 4), st.data())
def test_each_candidate_has_equal_turns_and_its_own_times(count: int, data: Any) -> None:
    seconds = [data.draw(st.floats(1e-6, 1e3)) for _ in range(count)]
    one, ways = Comparison(count), list[int]()
    while not one.over:
        ways.append(one.way)
        first = len(ways) % TURN in range(1, SKIPPED + 1)  # a step that does not count
        one.ran(1e9 if first else seconds[one.way])
    assert len(ways) == one.steps == 2 * count * TURN
    assert ways == ways[::-1]
    assert all(ways.count(way) == 2 * TURN for way in range(count))
    assert one.by_way(one.seconds) == [[s] * 2 * (TURN - SKIPPED) for s in seconds]


def test_a_choice_stays_within_the_tolerance() -> None:
    assert fastest([3.0, 1.0, 2.0]) == 1
    assert fastest([1.0 + TOLERANCE / 2, 1.0], before=0) == 0
    assert fastest([1.0 + TOLERANCE * 2, 1.0], before=0) == 1


@pytest.mark.parametrize(
    ("factor", "off"),
    [(CHANGED * 1.01, True), (CHANGED / 1.01, False), (1.01 / CHANGED, False), (0.6, True)],
)
def test_a_run_that_is_off_is_noticed(factor: float, off: bool) -> None:
    watch = Watch(1.0, cached=True)
    for number in range(WINDOW + 1):
        assert not watch.due
        watch.ran(factor if number == 5 else factor * 9)  # other work delays runs
    assert watch.due
    assert watch.changed(watch.seconds) == pytest.approx(factor if off else 0.0)
    assert not watch.due
    assert not watch.seconds


def test_a_choice_that_was_confirmed_is_compared_less_often() -> None:
    pause = MIN_PAUSE
    for _ in range(20):
        pause = next_pause(pause, confirmed=True)
    assert pause == MAX_PAUSE
    assert next_pause(pause, confirmed=False) == MIN_PAUSE
    watch = Watch(1.0, cached=False, pause=3)
    for _ in range(3):
        assert not watch.due
        watch.ran(1.0)
    assert watch.due


# --- files ------------------------------------------------------------------------------------


class Alone:
    """A group of one rank, whose operations end at once."""

    rank, size = 0, 1

    def all_gather(self, output: Tensor, given: Tensor, sizes: Any = None) -> Any:
        output.copy_(given)
        return self

    def wait(self) -> None:
        pass


def shared(folder: Path, key: str = "a") -> Result | None:
    group: Any = Alone()
    return Results(folder).shared(group, key)


def test_a_result_is_kept_for_its_user_only(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "tuning"
    assert shared(folder) is None
    Results(folder).keep("a", RESULT)
    assert shared(folder) == RESULT
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [one.name for one in folder.iterdir()] == ["a.json"], "nothing unfinished"
    assert shared(folder, "b") is None


def test_the_oldest_result_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "MOST_FILES", 2)
    for name in "abc":
        Results(tmp_path).keep(name, RESULT)
        if name == "a":
            os.utime(tmp_path / "a.json", (1, 1))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["b.json", "c.json"]


GOOD = msgspec.json.encode(RESULT)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "truncated"),
        (GOOD[:-1], "truncated"),
        (GOOD.replace(b'"chosen":0', b'"chosen":2'), "it chooses row 2 of 2"),
        (GOOD.replace(b'"chosen":0', b'"chosen":-1'), "chosen"),
        (GOOD.replace(b'"seconds":0.25', b'"seconds":0'), "seconds"),
        (GOOD.replace(b'"seconds":0.25', b'"seconds":1e999'), "not a positive number|out of range"),
        (GOOD.replace(b'"link_bps":1000000000.0', b'"link_bps":-1.0'), "not a positive number"),
        (GOOD.replace(b'"title"', b'"tittle"'), "tittle|title"),
        (b" " * (results.MOST_BYTES + 1), "more than 65536 bytes"),
    ],
)
def test_a_damaged_result_is_named_and_ignored(
    data: bytes, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.json").write_bytes(data)
    with caplog.at_level(logging.WARNING, "dlcp_client"):
        assert shared(tmp_path) is None
        assert shared(tmp_path) is None
    [said] = [one.getMessage() for one in caplog.records]
    assert str(tmp_path / "a.json") in said
    assert "is ignored, and measured anew" in said
    if data and len(data) <= results.MOST_BYTES:
        with pytest.raises(ValueError, match=text):
            decoded(data)


def test_a_folder_that_others_can_write_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING, "dlcp_client"):
        Results(folder).keep("a", RESULT)
    assert "is not kept in" in caplog.text
    assert not list(folder.iterdir())
    assert shared(folder) is None
    Results(None).keep("a", RESULT)  # a user without a home
    assert Results(None).shared(Alone(), "a") is None  # type: ignore[arg-type]  # as in `shared`


@pytest.mark.parametrize(
    ("variables", "cache"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache")),
        ({"HOME": "/h"}, Path("/h/.cache")),
        ({}, None),
    ],
)
def test_the_users_cache(variables: dict[str, str], cache: Path | None) -> None:
    assert Environment.read(variables).cache == cache
