"""From samples to rows and verdicts."""

import argparse
import os
from typing import Any

import pytest

from dlcp_lab.bench.all_reduce import heading, overhead, rows_of, verdicts
from dlcp_lab.bench.all_reduce_rank import datagram_sizes
from dlcp_lab.ranks.hosts import apart, network_table, on_loopback
from dlcpd.cli.extensions import installed
from dlcpd.ctl.arguments import parser
from dlcpd.daemon.config.tables import NetworkTable

SIZE = 1 << 20


def options(*more: str) -> argparse.Namespace:
    return parser({}, installed()).parse_args(["bench", "all-reduce", "--sizes", "1M", *more])


def series(times: list[float], **counts: int) -> dict[str, Any]:
    zero = {
        "wrong": 0,
        "sent": 100,
        "retransmitted": 0,
        "waived": 0,
        "reapplied": 0,
        "segment_size": 0,
        "headers": 0,
    }
    return {"times": times, **zero, **counts}


def ranks(ours: dict[str, Any], theirs: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"dlcpd": ours, "gloo": theirs}] * 2


def test_the_ratio_is_that_of_neighbours_not_of_medians() -> None:
    ours, theirs = series([1.0, 2.0, 4.0]), series([2.0, 2.0, 20.0])
    row, other = rows_of(SIZE, ranks(ours, theirs), options())
    assert (row.transport, other.transport) == ("dlcpd", "gloo")
    assert row.ratio is not None
    assert row.ratio.p50 == pytest.approx(2.0)  # of 2, 1 and 5
    assert other.ratio is None
    assert row.time.p50 == pytest.approx(2.0)


def test_the_slowest_rank_counts() -> None:
    fast, slow = series([1.0]), series([3.0])
    [row] = rows_of(SIZE, [{"dlcpd": fast}, {"dlcpd": slow}], options())
    assert row.time.p50 == pytest.approx(3.0)
    assert row.bus_bandwidth == pytest.approx(SIZE / 3.0 / 1e9)
    assert row.ratio is None


def test_counts_of_all_ranks_add_up() -> None:
    row, _ = rows_of(SIZE, ranks(series([1.0], wrong=3, retransmitted=2), series([1.0])), options())
    assert row.wrong == 6
    assert row.segments == {"sent": 200, "retransmitted": 4, "waived": 0, "reapplied": 0}


def test_bounded_mode_excuses_what_was_booked_and_nothing_else() -> None:
    bounded = options("--mode", "bounded")
    elements = NetworkTable().largest_segment // 4  # of one segment, wrong on both ranks
    booked = ranks(series([1.0], wrong=elements, waived=1), series([1.0]))
    booked[1] = {"dlcpd": series([1.0], wrong=elements), "gloo": series([1.0])}
    row, _ = rows_of(SIZE, booked, bounded)
    assert row.wrong == 0
    booked[1]["dlcpd"]["wrong"] += 1
    row, _ = rows_of(SIZE, booked, bounded)
    assert row.wrong == 1


def said(ours: dict[str, Any], theirs: dict[str, Any], *more: str) -> str:
    chosen = options(*more)
    return "\n".join(verdicts(list(rows_of(SIZE, ranks(ours, theirs), chosen)), chosen))


def test_no_gain_is_said_with_its_reason() -> None:
    assert said(series([1.0]), series([2.0])) == ""
    assert "no gain at 1M" in said(series([2.0]), series([1.0]))
    assert "loopback" in said(series([2.0]), series([1.0]))
    assert "retransmitted" in said(series([2.0], retransmitted=50), series([1.0]))
    assert "no slow tail" in said(series([2.0]), series([1.0]), "--switch", "1gbit")


def test_bounded_loss_that_lost_nothing_gained_nothing() -> None:
    assert "no gain from bounded loss" in said(series([1.0]), series([2.0]), "--mode", "bounded")
    lossy = series([1.0], waived=1)
    assert "bounded loss" not in said(lossy, series([2.0]), "--mode", "bounded")


def test_wrong_results_are_shouted_with_their_promise() -> None:
    assert "WRONG RESULT at 1M: 2 elements (promise P1)" in said(
        series([1.0], wrong=1), series([2.0])
    )


def test_injected_loss_is_labelled() -> None:
    plans = on_loopback(2)
    assert "INJECTED" not in heading(options(), plans)
    assert "INJECTED loss 1 %" in heading(options("--loss", "0.01"), plans)
    assert "switch 1gbit, loss 5 %" in heading(
        options("--switch", "1gbit", "--switch-loss", "5%"), plans
    )


def test_what_else_bears_on_the_numbers_is_said() -> None:
    plans = apart(on_loopback(1))
    cpus = len(os.sched_getaffinity(0))
    assert f"{cpus} CPU(s) per host" in heading(options("--pin"), plans)
    assert "CPU(s)" not in heading(options(), on_loopback(2))
    assert "back to back" in heading(options("--back-to-back"), plans)
    assert "Gloo over TCP" in heading(options("--switch", "1gbit"), plans)
    assert "Gloo over TCP" not in heading(options("--switch", "1gbit", "--against", "none"), plans)


def test_settings_are_lines_of_the_configuration() -> None:
    assert network_table(["window = 8388608", "offload=false"]).window == 8 << 20
    assert network_table([]).offload


def report(address: str, *segment_sizes: int) -> dict[str, Any]:
    peers = [{"segment_size": size} for size in segment_sizes]
    return {"endpoints": {"data": [[address, 1]]}, "engine": {"sessions": {"1": {"peers": peers}}}}


def test_headers_have_their_share() -> None:
    assert datagram_sizes(report("10.0.0.1", 8896, 1408)) == {"segment_size": 1408, "headers": 68}
    assert datagram_sizes(report("fd00::1", 8832)) == {"segment_size": 8832, "headers": 88}
    assert datagram_sizes(report("10.0.0.1"))["segment_size"] == 0
    ours = series([1.0], segment_size=1408, headers=60)
    rows = [*rows_of(SIZE, ranks(ours, series([1.0])), options())]
    [line] = overhead(rows)
    assert line == "segments of 1408 B: 4.09 % of the bytes are headers"
    assert not [*overhead(rows[1:])]  # Gloo's
