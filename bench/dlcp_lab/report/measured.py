"""Rows of a benchmark, of which some may lack a measurement. Pure.

A busy machine loses peers, starts processes late and measures nothing in an interval. Such a row
has its labels and a reason: "not measured" in the table, null in the JSON, and never a traceback.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Final, Protocol, TypeVar, overload

from dlcp_lab.report.amounts import show_size
from dlcp_lab.report.statistic import NotMeasured
from dlcpd.cli import table
from dlcpd.contract.errors import BadConfig, DlcpError

WORDS: Final = "not measured"


class Record(Protocol):
    """An instance of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


R = TypeVar("R", bound=Record)
T = TypeVar("T")
C = TypeVar("C", bound="Compared")


@dataclass(frozen=True, slots=True)
class Gap:
    """A row without figures: its labels by the name of their field, and the reason."""

    labels: Mapping[str, object]
    reason: str
    shown: Sequence[object] = ()  # cells of the labels, if they differ

    def line(self) -> str:
        """Text for people."""
        labels = [str(cell) for cell in self._shown() if cell is not None]
        return f"{' '.join(labels)}: {WORDS}: {self.reason}"

    def cells(self, width: int) -> list[object]:
        """A row of a table of `width` columns; the reason is in `line`."""
        known = [*self._shown(), WORDS][:width]
        return [*known, *[None] * (width - len(known))]

    def document(self, names: Iterable[str]) -> dict[str, Any]:
        """For --json: null for each of `names`, and the reason."""
        return {**dict.fromkeys(names), **self.labels, "not_measured": self.reason}

    def _shown(self) -> Sequence[object]:
        return self.shown or list(self.labels.values())


class Compared(Protocol):
    """A row whose results were compared with right ones."""

    @property
    def size(self) -> int:
        """Bytes of a tensor."""

    @property
    def wrong(self) -> int:
        """Elements that are wrong."""


def wrong_results(rows: Iterable[C], name: Callable[[C], str]) -> Iterator[str]:
    """A line for each row with wrong results, by its name and size."""
    for row in rows:
        if row.wrong:
            yield f"WRONG RESULT: {row.wrong} elements of {name(row)} {show_size(row.size)}"


def attempt(
    labels: Mapping[str, object], call: Callable[[], T], shown: Sequence[object] = ()
) -> T | Gap:
    """The value of `call`, or a gap with the error of a run that failed or measured nothing.

    Raises: BadConfig, which no repetition would change.
    """
    try:
        return call()
    except BadConfig:
        raise
    except DlcpError as exc:
        return Gap(labels, str(exc) or exc.code, shown)


def figure(call: Callable[[], T]) -> T | None:
    """The value of `call`; None if nothing was measured, where another row says why."""
    try:
        return call()
    except NotMeasured:
        return None


class Rows(Sequence[R]):
    """Rows of one kind. As a sequence it has those with a measurement; `everything` has all."""

    def __init__(self, kind: type[R]) -> None:
        self.kind = kind
        self.everything: list[R | Gap] = []

    def add(
        self, labels: Mapping[str, object], make: Callable[[], R], shown: Sequence[object] = ()
    ) -> None:
        """Add the row that `make` returns, or a gap with `labels`."""
        self.everything.append(attempt(labels, make, shown))

    def extend(self, others: "Rows[R]") -> None:
        """Add all rows of `others`, gaps included."""
        self.everything += others.everything

    @overload
    def __getitem__(self, index: int) -> R: ...

    @overload
    def __getitem__(self, index: slice) -> list[R]: ...

    def __getitem__(self, index: int | slice) -> R | list[R]:
        return self._measured()[index]

    def __len__(self) -> int:
        return len(self._measured())

    def __iter__(self) -> Iterator[R]:
        return iter(self._measured())

    @property
    def gaps(self) -> list[Gap]:
        """The rows without a measurement."""
        return [row for row in self.everything if isinstance(row, Gap)]

    def render(
        self, header: Sequence[str], cells: Callable[[R], Sequence[object]], *, left: int
    ) -> str:
        """A table of all rows."""
        rows = [
            row.cells(len(header)) if isinstance(row, Gap) else cells(row)
            for row in self.everything
        ]
        return table.render(header, rows, left=left)

    def reasons(self) -> Iterator[str]:
        """A line for each gap."""
        return (gap.line() for gap in self.gaps)

    def document(self) -> list[dict[str, Any]]:
        """For --json."""
        names = [one.name for one in fields(self.kind)]
        return [
            row.document(names) if isinstance(row, Gap) else asdict(row) for row in self.everything
        ]

    def _measured(self) -> list[R]:
        return [row for row in self.everything if not isinstance(row, Gap)]
