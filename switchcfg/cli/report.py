"""Report of a command: the result of every device, as a table or as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from switchcfg.cli.output import error_document, put_json, tell, tell_error
from switchcfg.cli.rollout import Outcome
from switchcfg.intent.intent import Device


@dataclass(slots=True)
class Report:
    """The results of all devices of a command."""

    devices: Sequence[Device]
    outcome: Outcome = field(default_factory=Outcome)
    said: dict[str, str] = field(default_factory=dict)  # device -> status, unless it failed

    def status(self, name: str) -> str:
        """The status of one device."""
        if exc := self.outcome.failed.get(name):
            return f"failed: {exc.code}"
        if name in self.outcome.left:
            return "not started"
        return self.said.get(name, "done")

    def table(self) -> Iterator[str]:
        """A heading and a line per device, if there are several devices."""
        if len(self.devices) < 2:
            return
        rows = [("device", "platform", "status")]
        rows += [(each.name, each.platform, self.status(each.name)) for each in self.devices]
        wide, narrow = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, platform, status in rows:
            yield f"{name:{wide}}  {platform:{narrow}}  {status}"

    def document(self) -> dict[str, Any]:
        """The report as a JSON value, with full error messages."""
        failed = self.outcome.failed.items()
        return {
            "done": self.outcome.done,
            "failed": {name: error_document(exc.code, str(exc)) for name, exc in failed},
            "not_begun": self.outcome.left,
            "interrupted": bool(self.outcome.interrupts),
            "devices": {
                each.name: {"platform": each.platform, "status": self.status(each.name)}
                for each in self.devices
            },
        }

    def tell_errors(self) -> None:
        """Print every error, by device."""
        for name, exc in self.outcome.failed.items():
            tell_error(exc, name)

    def close(self, *, as_json: bool, **more: object) -> bool:
        """Print errors and the table; `as_json`: also the document and `more`. False: a device
        failed."""
        self.tell_errors()
        for line in self.table():
            tell(line)
        if as_json:
            put_json({**self.document(), **more})
        return not self.outcome.failed
