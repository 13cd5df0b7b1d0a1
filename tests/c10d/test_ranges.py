"""Ranges in torch.profiler of two ranks over real daemons, in every mode."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.autograd.profiler import emit_itt
from torch.profiler import itt

from dlcp_client.ranges import PREFIX, RANGES, SUBMIT, WAIT, WAIT_FOR_ROOM
from tests import pages
from tests.c10d import ranges_programs
from tests.c10d.ranges_programs import COUNT, WIDTH, Row
from tests.c10d.worlds import over

WEIGHTS = WIDTH * WIDTH  # elements of the large layer
SMALL = 2 * WIDTH + 2  # of the other one
ALL = WEIGHTS + SMALL


@pytest.fixture(scope="module")
def modes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank's profiler showed, by mode; and lines, of the page."""
    folder = tmp_path_factory.mktemp("ranges")
    return over("dlcp", ranges_programs.everything, 2, folder, page("python"))


def page(language: str) -> str:
    """The block of a language that shows ranges, and what it prints."""
    found = pages.blocks(pages.ROOT / "docs" / "pytorch.md")
    [text] = [one.text for one in found if one.language == language and PREFIX in one.text]
    return text


def operations(rows: list[Row]) -> list[tuple[str, str, int, int]]:
    """Name, dtype, elements in and out."""
    return [
        (name.removeprefix(PREFIX), facts["dtype"], facts["In msg nelems"], facts["Out msg nelems"])
        for name, facts in rows
        if name not in (SUBMIT, WAIT, WAIT_FOR_ROOM)
    ]


def numbers(rows: list[Row], name: str) -> Counter[tuple[str, int]]:
    return Counter((f["session"], f["operation"]) for shown, f in rows if shown == name)


@pytest.mark.parametrize("mode", ["c10d", "compiled", "cross_step", "fsdp", "gossip"])
def test_each_operation_is_submitted_and_waited_for_once(
    modes: list[dict[str, list[Row]]], mode: str
) -> None:
    for rank in modes:
        rows = rank[mode]
        asked = [name for name, _ in rows if name not in (SUBMIT, WAIT, WAIT_FOR_ROOM)]
        submitted, waited = numbers(rows, SUBMIT), numbers(rows, WAIT)
        assert len(asked) == len(submitted) == submitted.total() > 0
        # Of cross_step, the operations of the step before are waited for in this one.
        assert waited.total() == len(waited)
        assert waited >= submitted and (mode == "cross_step" or waited == submitted)


def test_collectives_have_the_names_of_gloo_and_the_sizes_that_were_given(
    modes: list[dict[str, list[Row]]],
) -> None:
    both = 2 * COUNT
    for rank, found in enumerate(modes):
        root = rank == 0
        message = ("send" if root else "recv", "BFloat16", COUNT, COUNT)
        assert operations(found["c10d"]) == [
            ("all_reduce", "Double", COUNT, COUNT),
            ("all_reduce", "Int", COUNT, COUNT),
            ("reduce", "Float", COUNT, COUNT),
            ("broadcast", "Float", COUNT, COUNT),
            ("all_gather", "Float", COUNT, both),
            ("all_gather", "Float", COUNT, both),
            ("gather", "Float", COUNT, both if root else 0),
            ("scatter", "Float" if root else "Byte", both if root else 0, COUNT),
            ("reduce_scatter", "Float", both, COUNT),
            ("reduce_scatter", "Float", both, COUNT),
            ("all_to_all", "Float", both, both),
            ("all_to_all", "Float", both, both),
            message,
            ("barrier", "Byte", 0, 0),
        ]
        facts = dict(found["c10d"])
        wanted = {
            "Collective name": "allreduce",
            "Group size": 2,
            "Rank": rank,
            "Process Group Name": "0",
            "Process Group Ranks": "[0, 1]",
            "traffic class": "bulk",
            "bound": "0",
        }
        assert wanted.items() <= facts["dlcp:all_reduce"].items()
        name = f"dlcp:{message[0]}"
        assert (facts[name]["Src Rank"], facts[name]["Dst Rank"]) == (0, 1)


def test_compiled_code_shows_its_collectives(modes: list[dict[str, list[Row]]]) -> None:
    for rank in modes:
        names = [name for name, *_ in operations(rank["compiled"])]
        assert names == ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]


def test_the_example_of_the_page_prints_what_the_page_says(
    modes: list[dict[str, Any]],
) -> None:
    assert [rank["page"] for rank in modes] == [page("text").splitlines()] * 2


def test_an_operation_that_has_ended_shows_no_wait(modes: list[dict[str, list[Row]]]) -> None:
    for rank in modes:
        assert [name for name, _ in rank["polled"]] == ["dlcp:all_reduce", SUBMIT]


def test_ddp_as_it_is_shows_its_buckets_and_where_it_waits(
    modes: list[dict[str, list[Row]]],
) -> None:
    for rank in modes:
        rows = rank["unhooked"]
        assert [name for name, _ in rows] == ["dlcp:all_reduce", SUBMIT, WAIT], rows
        assert operations(rows) == [("all_reduce", "Float", ALL, ALL)]


def test_a_bucket_of_ddp_says_its_bound_and_the_pass_where_it_waits(
    modes: list[dict[str, list[Row]]],
) -> None:
    for rank in modes:
        # A peer may still read this bucket's last result: the bucket then waits for its memory.
        rows = [row for row in rank["ddp"] if row[0] != WAIT_FOR_ROOM]
        assert [name for name, _ in rows] == ["dlcp:all_reduce", SUBMIT, WAIT], rows
        assert operations(rows) == [("all_reduce", "Float", ALL, ALL)]
        bucket = rows[0][1]
        assert bucket["bound"] == "0.01" and bucket["traffic class"] == "front, back"
        assert bucket["gradient"].startswith("ddp")
        assert rows[1][1]["bytes"] == 4 * ALL


def test_gradients_of_cross_step_fsdp_and_gossip(modes: list[dict[str, list[Row]]]) -> None:
    for rank, found in enumerate(modes):
        crossing = operations(found["cross_step"])
        assert [one for one in crossing if one[0] == "all_reduce"] == [
            ("all_reduce", "Float", ALL, ALL)
        ]
        gathered = Counter(one for one in operations(found["fsdp"]) if one[0] == "all_gather")
        assert gathered == {
            ("all_gather", "Float", WEIGHTS // 2, WEIGHTS): 2,
            ("all_gather", "Float", SMALL // 2, SMALL): 2,
        }
        reduced = [one for one in operations(found["fsdp"]) if one[0] == "reduce_scatter"]
        assert reduced == [
            ("reduce_scatter", "Float", SMALL, SMALL // 2),
            ("reduce_scatter", "Float", WEIGHTS, WEIGHTS // 2),
        ]
        assert operations(found["gossip"]) == [("recv", "Float", 0, ALL), ("send", "Float", ALL, 0)]
        ends = [facts.get("Src Rank") for name, facts in found["gossip"] if name == "dlcp:recv"]
        assert ends == [1 - rank]


@pytest.mark.skipif(
    not itt.is_available(),  # type: ignore[no-untyped-call]
    reason="this torch has no ITT",
)
def test_what_feeds_other_profilers_sees_ranges() -> None:
    """Under `emit_itt`, as under `emit_nvtx`, which needs a GPU."""
    assert not RANGES.on()
    with emit_itt():  # type: ignore[no-untyped-call]
        assert RANGES.on()


def test_without_a_profiler_no_range_is_made(tmp_path: Path) -> None:
    calls: list[Any] = over("dlcp", ranges_programs.unprofiled, 2, tmp_path)
    assert calls == [[], []]
