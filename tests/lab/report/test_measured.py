"""Rows that lack a measurement: in the table, as a line, and in the JSON."""

from dataclasses import dataclass

import pytest

from dlcp_lab.report.checks import OPEN, Check, judged
from dlcp_lab.report.measured import Gap, Rows, attempt, figure
from dlcp_lab.report.statistic import (
    NotMeasured,
    Sample,
    Spread,
    least,
    mean,
    median,
    most,
    percentile,
    quotient,
    ratios,
)
from dlcpd.contract.errors import BadConfig, PeerLost


@dataclass(frozen=True)
class Row:
    name: str
    size: int
    time: float


def one(*times: float) -> Row:
    return Row("a", 4, median(times))


def rows(*times: float) -> Rows[Row]:
    found = Rows(Row)
    found.add({"name": "a", "size": 4}, lambda: one(1.0))
    found.add({"name": "b", "size": 4096}, lambda: one(*times), ("b", "4K"))
    return found


def test_a_row_without_a_measurement_is_a_row_with_its_reason() -> None:
    found = rows()
    assert list(found) == [one(1.0)] == found[:]
    assert list(found.reasons()) == ["b 4K: not measured: no sample"]
    assert found.document() == [
        {"name": "a", "size": 4, "time": 1.0},
        {"name": "b", "size": 4096, "time": None, "not_measured": "no sample"},
    ]
    text = found.render(("name", "size", "ms"), lambda r: [r.name, r.size, r.time], left=1)
    assert text.splitlines()[2].split() == ["b", "4K", "not", "measured"]


def test_where_all_is_measured_nothing_is_said() -> None:
    found = rows(1.0, 3.0)
    assert len(found) == 2 and not found.gaps
    assert found[1].time == 2.0


def test_a_run_that_fails_is_a_gap_and_a_wrong_option_is_not() -> None:
    def fails(error: Exception) -> None:
        raise error

    gap = attempt({"seed": "seed 1"}, lambda: fails(PeerLost("rank 1 is silent")))
    assert isinstance(gap, Gap)
    assert gap.line() == "seed 1: not measured: rank 1 is silent"
    with pytest.raises(BadConfig):
        attempt({}, lambda: fails(BadConfig("no root")))
    with pytest.raises(TypeError):  # a bug is no measurement that failed
        attempt({}, lambda: fails(TypeError()))


@pytest.mark.parametrize("call", [median, mean, least, most, Spread.of])
def test_no_statistic_of_nothing(call: object) -> None:
    with pytest.raises(NotMeasured, match="no sample"):
        call([])  # type: ignore[operator]  # each takes a list
    with pytest.raises(NotMeasured):
        percentile([], 0.5)
    with pytest.raises(NotMeasured):
        _ = Sample([]).p99


def test_no_ratio_to_nothing() -> None:
    with pytest.raises(NotMeasured, match="a duration of 0 s"):
        quotient(1.0, 0.0)
    with pytest.raises(NotMeasured, match="no segment"):
        quotient(1.0, 0.0, "no segment")
    with pytest.raises(NotMeasured):
        ratios([1.0], [0.0])
    with pytest.raises(NotMeasured, match="0 samples against 1"):
        ratios([], [1.0])
    assert figure(lambda: quotient(1.0, 0.0)) is None


def test_a_check_without_a_measurement_is_not_judged() -> None:
    def make() -> Check:
        return Check("P1", "x", "held", str(median([])))

    assert judged("P1", "x", make) == Check("P1", "x", OPEN, "not measured: no sample")
