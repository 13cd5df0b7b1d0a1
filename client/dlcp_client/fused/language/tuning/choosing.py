"""The candidate of each step of a job: some are compared in turns, then the fastest is used, until
steps take another time. All ranks use the same one in the same step."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from torch import Tensor

from dlcp_client.auto.choice import MIN_PAUSE
from dlcp_client.auto.turns import typical
from dlcp_client.fused.language.costs import Rates
from dlcp_client.fused.language.explanation import table
from dlcp_client.fused.language.tuning.measuring import Comparison, Watch, fastest, next_pause
from dlcp_client.fused.language.tuning.probes import LEAST, agreed
from dlcp_client.fused.language.tuning.results import Result, Results, Row
from dlcp_client.group import Group

_log: Final = logging.getLogger("dlcp_client")


@dataclass(frozen=True, slots=True)
class Finalists:
    """Titles to compare, all candidates with predictions, and the rates of these by title."""

    titles: Sequence[str]
    rows: list[Row]
    rates: Mapping[str, Rates] = field(default_factory=dict)


class StepChoice:
    """The choice for one program, or one training. Every rank calls it alike."""

    def __init__(  # noqa: PLR0913  # all but the first two by keyword
        self,
        what: str,
        group: Group[Tensor],
        *,
        results: Results,
        key: str,
        usable: Callable[[str], bool],
        finalists: Callable[[str], Finalists],
        seconds: Literal["min", "max"],
    ) -> None:
        """Use the result of an earlier job, or begin to compare.

        what: for the log. key: of the result. usable: whether the candidate of a result works.
        finalists: what to compare, from the title in use, or "". seconds: of a step, by those of
        the ranks: "min" from the call of the last rank on, "max" of whole steps.
        """
        self._what, self._group, self._results, self._key = what, group, results, key
        self._finalists, self._seconds = finalists, seconds
        self.measured = 0  # comparisons begun, and steps whose times were taken in them
        self.result: Result | None = None
        self.rows: list[Row] = []
        self._title = ""  # in use
        self._compared = Finalists([], [])
        self._comparison: Comparison | None = None
        self._watch: Watch | None = None
        self._pause = MIN_PAUSE
        cached = results.shared(group, key)
        if cached is None or not usable(cached.title):
            self._begin()
        else:
            self.result, self.rows = cached, cached.rows
            self._watch = Watch(cached.seconds, cached=True)
            self._say("from an earlier job")

    @property
    def chosen(self) -> str:
        """Title of the candidate in use after the comparison; empty: the first one is not over."""
        return self.result.title if self.result is not None else ""

    @property
    def comparing(self) -> bool:
        """Whether the next step is part of a comparison."""
        return self._comparison is not None

    def next(self) -> str:
        """The title for the next step. Raises: the error that ended an operation."""
        if self._comparison is not None and self._comparison.over:
            self._decide(self._comparison)
        elif self._watch is not None and self._watch.due:
            now = self._watch.changed(agreed(self._group, self._watch.seconds, self._seconds))
            if now and self.result is not None:
                _log.info(
                    "%s: it takes at least %.3g ms, not %.3g ms: candidates are measured again",
                    self._what,
                    now * 1e3,
                    self.result.seconds * 1e3,
                )
                self._begin()
        if self._comparison is not None:
            self._title = self._compared.titles[self._comparison.way]
        else:
            self._title = self.chosen
        return self._title

    def ran(self, seconds: float) -> None:
        """The step is done."""
        if self._comparison is not None:
            self._comparison.ran(seconds)
            self.measured += 1
        elif self._watch is not None:
            self._watch.ran(seconds)

    def table(self) -> str:
        """The candidates with predicted and measured times."""
        rows = [("candidate", "predicted (ms)", "measured (ms)", "")]
        for row in self.rows:
            mark = "chosen" if row.title == self.chosen else ""
            rows.append((row.title, _ms(row.predicted), _ms(row.measured), mark))
        return table(rows)

    def _begin(self) -> None:
        self.measured += 1
        self._compared = self._finalists(self._title)
        self.rows = self._compared.rows
        self._comparison, self._watch = Comparison(len(self._compared.titles)), None

    def _decide(self, comparison: Comparison) -> None:
        runs = comparison.by_way(agreed(self._group, comparison.seconds, self._seconds))
        titles, times = list(self._compared.titles), [typical(one) for one in runs]
        before = titles.index(self.chosen) if self.chosen in titles else None
        chosen = fastest(times, before)
        title, seconds = titles[chosen], max(min(runs[chosen]), LEAST)
        measured = dict(zip(titles, times, strict=True))
        self.rows = [Row(r.title, r.predicted, measured.get(r.title, 0.0)) for r in self.rows]
        at = [row.title for row in self.rows].index(title)
        self.result = Result(self._compared.rates.get(title, Rates()), self.rows, at, seconds)
        self._pause = next_pause(self._pause, confirmed=chosen == before)
        self._watch = Watch(seconds, cached=False, pause=self._pause)
        self._comparison = None
        self._results.keep(self._key, self.result)
        others = ", ".join(f"{name} {s * 1e3:.3g}" for name, s in measured.items() if name != title)
        self._say(f"{measured[title] * 1e3:.3g} ms; measured as well: {others or 'none'} (ms)")

    def _say(self, how: str) -> None:
        _log.info("%s on %d ranks: %s; %s", self._what, self._group.size, self.chosen, how)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}" if seconds else ""
