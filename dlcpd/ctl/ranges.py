"""Numbers as people write them."""

from collections.abc import Iterable


def ranges(numbers: Iterable[int]) -> str:
    """Like "2-5,8": what `daemon.config.cpu_numbers` reads."""
    rows: list[list[int]] = []
    for number in sorted(set(numbers)):
        if rows and number == rows[-1][1] + 1:
            rows[-1][1] = number
        else:
            rows.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in rows)
