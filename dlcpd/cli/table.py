"""Tables of text: columns as wide as their widest cell, numbers to the right."""

from collections.abc import Sequence
from typing import Final

from dlcpd.contract.printable import one_line

GAP: Final = "  "


def render(header: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> str:
    """Lines of a table; the first `left` columns are set flush left, the others right."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(_line(row, widths, left) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    padded = [
        text.ljust(width) if column < left else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return GAP.join(padded).rstrip()


def _cell(value: object) -> str:
    """Text of a value; "-" for None."""
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else one_line(str(value))
