"""Lists of numbers as ranges, like "2-5,8"."""

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """Like "2-5,8", as `daemon.config.values.cpu_numbers` reads it."""
    rows: list[list[int]] = []
    for number in sorted(set(numbers)):
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in rows)
