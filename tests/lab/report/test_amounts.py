import argparse

import pytest

from dlcp_lab.report.amounts import (
    duration,
    fraction,
    several,
    show_duration,
    show_fraction,
    show_size,
    size,
    sizes,
)


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("1", 1), ("4096", 4096), ("4K", 4096), ("4k", 4096), ("16MiB", 16 << 20), ("1G", 1 << 30)],
)
def test_size(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


@pytest.mark.parametrize("text", ["", "0", "-1", "4T", "4.5K", "K", "4K,", "1" * 13])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a size"):
        size(text)


def test_sizes_is_a_list_and_refuses_a_hole_in_it() -> None:
    assert sizes("4K,1M") == [4096, 1 << 20]
    with pytest.raises(argparse.ArgumentTypeError):
        sizes("4K,,1M")


@pytest.mark.parametrize(("text", "value"), [("0", 0.0), ("0.05", 0.05), ("5%", 0.05), ("1", 1.0)])
def test_fraction(text: str, value: float) -> None:
    assert fraction(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["-0.1", "1.01", "101%", "nan", "five", "%"])
def test_what_is_no_fraction(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a fraction"):
        fraction(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("250us", 0.00025), ("2.5ms", 0.0025), ("1s", 1.0), ("0ms", 0.0)]
)
def test_duration(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)
    assert duration(show_duration(seconds).replace(" ", "")) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "2", "-1ms", "2 ms", "2min", ".5s", "1e3us"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a time"):
        duration(text)


def test_several_are_separated_by_commas() -> None:
    assert several(fraction)("0,1%") == [0.0, 0.01]
    with pytest.raises(argparse.ArgumentTypeError):
        several(fraction)("0,,1%")


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1, "1"), (1000, "1000"), (1024, "1K"), (3 << 20, "3M"), (1 << 30, "1G")],
)
def test_show_size(count: int, text: str) -> None:
    assert show_size(count) == text
    assert count == 0 or size(text) == count


def test_show_fraction() -> None:
    assert [show_fraction(x) for x in (0.0, 0.01, 0.0125, 1.0)] == ["0 %", "1 %", "1.25 %", "100 %"]
