"""Reports the cost of every N steps to a logger and as a line."""

import logging
from collections.abc import Callable
from typing import Any, Final

from dlcp_client.report.text import window
from dlcp_client.report.totals import Totals
from dlcp_client.reporting import Log
from dlcpd.contract.errors import BadConfig

_log: Final = logging.getLogger("dlcp_client")


class ReportWindows:
    """The windows of one registration. `measure(since)`: its metrics since earlier totals;
    `totals`: the present ones.

    Raises: BadConfig.
    """

    def __init__(
        self,
        log: Log | None,
        every: int,
        prefix: str,
        *,
        speaks: bool,
        totals: Callable[[], Totals],
        measure: Callable[[Totals], dict[str, Any]],
    ) -> None:
        """`speaks`: whether it also logs lines."""
        if type(every) is not int or every < 1:
            raise BadConfig(
                f"report_to every={every!r} is not valid: use a whole number of steps, 1 or more"
            )
        if log is not None and not callable(log):
            raise BadConfig(
                f"report_to {log!r} is not callable with scalars and step: pass a function "
                "such as wandb.log, or each(writer.add_scalar) of dlcp_client.reporting"
            )
        self._log, self._every, self._prefix, self._speaks = log, every, prefix, speaks
        self._totals, self._measure = totals, measure
        self._last = totals()

    def ended(self, step: int) -> None:
        """Note that the steps up to `step` are complete."""
        if step - self._last.steps < self._every:
            return
        last, self._last = self._last, self._totals()
        found = self._measure(last)
        if self._speaks:
            _log.info("steps %d to %d: %s", last.steps + 1, step, window(found))
        if self._log is not None:
            self._tell(found, step)

    def _tell(self, found: dict[str, Any], step: int) -> None:
        """Call the logger. One that fails is not called again: it must not end a training."""
        assert self._log is not None  # noqa: S101  # the caller has checked
        try:
            self._log({f"{self._prefix}{name}": value for name, value in found.items()}, step)
        except Exception:
            self._log = None
            _log.warning(
                "report_to: the logger failed, and dlcp_client does not call it again",
                exc_info=True,
            )
