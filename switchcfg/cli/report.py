"""What became of every device that a command was about: for people a table, for programs JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from switchcfg.cli.output import error_document, put_json, tell, tell_error
from switchcfg.cli.rollout import Outcome
from switchcfg.intent.intent import Device


@dataclass(slots=True)
class Report:
    """All of them, whatever became of each."""

    devices: Sequence[Device]
    outcome: Outcome = field(default_factory=Outcome)
    said: dict[str, str] = field(default_factory=dict)  # of those that did not fail, in few words

    def status(self, name: str) -> str:
        """One device's."""
        if exc := self.outcome.failed.get(name):
            return f"failed: {exc.code}"
        if name in self.outcome.left:
            return "not begun"
        return self.said.get(name, "done")

    def table(self) -> Iterator[str]:
        """A line per device, where there are several."""
        if len(self.devices) < 2:
            return
        rows = [("device", "platform", "status")]
        rows += [(each.name, each.platform, self.status(each.name)) for each in self.devices]
        wide, narrow = (max(len(row[column]) for row in rows) for column in (0, 1))
        for name, platform, status in rows:
            yield f"{name:{wide}}  {platform:{narrow}}  {status}"

    def document(self) -> dict[str, Any]:
        """The same for programs, with the errors whole."""
        failed = self.outcome.failed.items()
        return {
            "done": self.outcome.done,
            "failed": {name: error_document(exc.code, str(exc)) for name, exc in failed},
            "not_begun": self.outcome.left,
            "devices": {
                each.name: {"platform": each.platform, "status": self.status(each.name)}
                for each in self.devices
            },
        }

    def tell_errors(self) -> None:
        """Every error, by device."""
        for name, exc in self.outcome.failed.items():
            tell_error(exc, name)

    def close(self, *, as_json: bool, **more: object) -> bool:
        """Say how it ended, where nothing but that was asked for. False: a device failed."""
        self.tell_errors()
        for line in self.table():
            tell(line)
        if as_json:
            put_json({**self.document(), **more})
        return not self.outcome.failed
